/* held_step.h -- what ranks of an elastic run do between the sum of a step's gradients and its
 * update, so that a rank may be lost at any moment: no param changes before every rank is known to
 * have all that its update needs.
 *
 *   take      the sum comes here, from the rule that adds it up (a td__step_taker)
 *   mirror    a rank whose stage has no other replica sends its sum to the rank that holds its
 *             params and states, too (parallel/ownership.h), which makes the same update of them
 *   prepare   the step's rate and scale; from here on the update needs nobody
 *   apply     all that this rank holds, its own and others'
 *
 * All ranks meet between prepare and apply. A rank that fails in this meeting is prepared: it makes
 * the update when it learns that others have (parallel/sync.h). Running averages are made from the
 * statistics of all stages, so that they are the same on all ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_HELD_STEP_H
#define TD_PIPELINE_HELD_STEP_H

#include "parallel/shards.h"
#include "step/step.h"

typedef struct td__held_step td__held_step;

/* All are borrowed; the comm until leave. */
typedef struct td__held_opts {
    td_comm *comm;
    const td__shards *shards;
    td_params *params;
    td_optimizer *optimizer;
    const td_program *program; /* of the whole model */
    bool sends;                /* a rank has no sums of what it mirrors: they are sent */
} td__held_opts;

TD_NODISCARD td_status td__held_step_create(const td__held_opts *o,
                                            td__held_step **out); /* local */
void td__held_step_destroy(td__held_step *h);                     /* NULL is allowed; local */

const td__step_taker *td__held_step_taker(const td__held_step *h);
/* A block that is laid out as the gradients. */
float *td__held_step_sum(const td__held_step *h);
/* The step begins: what was prepared before is not wanted any more. */
void td__held_step_begin(td__held_step *h);
/* Collective. *sent: bytes that this rank has sent. */
TD_NODISCARD td_status td__held_step_mirror(td__held_step *h, uint64_t *sent);
/* Local, as are those that follow. Until apply or begin the step is prepared. */
TD_NODISCARD td_status td__held_step_prepare(td__held_step *h, double lr, double scale);
bool td__held_step_prepared(const td__held_step *h); /* NULL: false */
TD_NODISCARD td_status td__held_step_apply(td__held_step *h);

#endif
