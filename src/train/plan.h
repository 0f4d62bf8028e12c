/* plan.h -- the communication plan of a step of a job's ranks, before any of them is started. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_PLAN_H
#define TD_TRAIN_PLAN_H

#include "plan/plan.h"
#include "train/memory.h"

/* Of t's job on so many ranks (td__memory_case; saves is of no account): the rule that they train
 * by, of replicas if they hold parts of layers, and the plan of a full step with everything in it
 * that a step may have, checked, with what its runs are expected to take. The caller destroys it;
 * NULL: the rule has none, and says why (td__sync_ops.unplanned). */
TD_NODISCARD td_status td__trainer_step_plan(td__trainer *t, const td__memory_case *c,
                                             const td__sync_ops **rule, td__plan **out);

#endif
