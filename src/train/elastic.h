/* elastic.h -- a run whose ranks come and go.
 *
 * Every process holds the whole state of the run: weights, optimizer, schedule, position; with
 * parallel.zero slices of it, each of which a second process holds too (catch_up_slices.c). The
 * world is that of td__members (coll/members.h): a run is a loop over generations.
 *
 *   1. next       a comm of the ranks that are there now.
 *   2. catch up   Every rank says which moment of the run it holds. Who is furthest brings the
 *                 others forward, from memory to memory; who was at the same moment already is left
 *                 alone, and helps to send where several have to be brought forward. Only if nobody
 *                 holds any: the newest checkpoint on disk, or else the beginning.
 *   3. lead       Rank 0 may be another process now. It opens the run's directory as --resume does,
 *                 cuts off what its predecessor wrote about steps that are about to happen again,
 *                 and writes what it had no time to write (event_log.h).
 *   4. steps      Micro-batches are dealt out to the ranks that there are, so bits stay the same.
 *   5. leave      When a call on the comm fails, or all agreed at a step's border that the
 *                 membership changes. Engine, buffers and comm are dropped; programs, runners,
 *                 weights and the loader stay.
 *
 * A step is applied whole or not at all. A rank updates its params only after it has the sum of all
 * gradients; a rank that fails before that has the state of the step before. So when a generation
 * ends, every rank is at step s or s + 1, and those at s + 1 are further. A state that arrives
 * takes the place of the old one only when it is complete: a rank that fails while it is brought
 * forward still has what it had.
 *
 * Failures  TD_EPEER, TD_ETIMEDOUT and TD_EABORTED of the comm end a generation. What this host
 *           alone lacks (memory, its disk, data that do not come in time) ends the part of this
 *           process, with a line about the cause. All others end the run: what is
 *           wrong with the job or its numbers is wrong on every rank, and the rank that finds it
 *           takes all others with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_ELASTIC_H
#define TD_TRAIN_ELASTIC_H

#include "train/trainer.h"

/* Does this failure of a comm end a generation rather than the run? */
static inline bool td__elastic_survives(td_status st)
{
    return st == TD_EPEER || st == TD_ETIMEDOUT || st == TD_EABORTED;
}

#endif
