/* sync_zero.h -- the sync rule of shards, between its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SYNC_ZERO_H
#define TD_PARALLEL_SYNC_ZERO_H

#include "parallel/step_plan.h"

/* Stages 2 and 3: micro-batches from `first` on, one on each rank, as far as there are some; -1:
 * none. */
static inline void td__zero_deal(int first, int micro_batches, int ranks, int *run)
{
    for (int r = 0; r < ranks; r++)
        run[r] = first + r < micro_batches ? first + r : -1;
}

void td__zero_plan(td__planner *w);

#endif
