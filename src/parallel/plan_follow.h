/* plan_follow.h -- what is checked is what runs: while a step is made, every call on the rule's
 * communicator is held against the rank's list in the step's plan (step_plan.h). A call that is not
 * the next one there, and a step that ends before all of them were made, are errors that name what
 * was called and what the plan has.
 *
 * Plans are made when the first step of their kind and shape begins, and kept; a step of the usual
 * kind makes none and allocates nothing. All of them are checked (td__plan_check), and that of the
 * first kind is compared with the other ranks' before any step.
 *
 * Threads   Calls may come from any thread, one at a time, as those of a communicator do. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_PLAN_FOLLOW_H
#define TD_PARALLEL_PLAN_FOLLOW_H

#include "parallel/step_plan.h"

typedef struct td__plan_follower td__plan_follower;

/* For the steps of a rule that has a plan; comm is borrowed. usual: a step as most are, whose plan
 * all ranks must have: TD_EMISMATCH otherwise. Collective. */
TD_NODISCARD td_status td__plan_follower_create(const td__sync_ops *rule, td_comm *comm,
                                                const td__plan_case *usual,
                                                td__plan_follower **out);
void td__plan_follower_destroy(td__plan_follower *f); /* NULL is allowed; local */

/* A step begins; from now on calls are looked at. */
TD_NODISCARD td_status td__plan_follow(td__plan_follower *f, const td__plan_case *at);
/* It is over. TD_EMISMATCH if calls of the plan were not made. Without a step: nothing. */
TD_NODISCARD td_status td__plan_followed(td__plan_follower *f);
/* It has failed: calls are no longer looked at. */
void td__plan_leave(td__plan_follower *f);

#endif
