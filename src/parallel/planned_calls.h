/* planned_calls.h -- what is checked is what runs: the calls that a plan has for a rank on one
 * communicator, in order, and a guard there that every call is held against. A call that is not the
 * next one, and an end before all of them were made, are errors that name what was called and what
 * the plan has.
 *
 * Threads   Calls may come from any thread, one at a time, as those of a communicator do. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_PLANNED_CALLS_H
#define TD_PARALLEL_PLANNED_CALLS_H

#include "coll/comm.h"
#include "plan/plan.h"

/* Zero-initialise. */
typedef struct td__planned_calls {
    td__comm_guard guard;
    const td__plan *plan; /* borrowed */
    int role, *at, n;     /* operations of this role that are calls, (n) */
    td_comm *comm;        /* NULL: none is guarded now */
    int rank;             /* of the world, for texts */
    uint64_t step;
    size_t numbers; /* bytes of a call of TD__PLAN_NUMBERS; 0: as the plan has it */
    int made, end;  /* calls that were made; that the step has. Both count from the first of all */
} td__planned_calls;

/* Those of a role that `of` says are made on the communicator that is meant. */
TD_NODISCARD td_status td__planned_calls_init(td__planned_calls *c, const td__plan *plan, int role,
                                              bool (*of)(const td__plan_op *o));
void td__planned_calls_fini(td__planned_calls *c);
/* A step begins: from now on calls on comm are looked at. comm NULL: nothing. */
void td__planned_calls_begin(td__planned_calls *c, td_comm *comm, int rank, uint64_t step);
/* After begin, where the plan is of several steps: this one has the calls of one micro-batch. */
void td__planned_calls_part(td__planned_calls *c, uint32_t micro_batch);
/* It is over. TD_EMISMATCH if calls were not made. Where none has begun: nothing. */
TD_NODISCARD td_status td__planned_calls_end(td__planned_calls *c);
/* It has failed: calls are no longer looked at. */
void td__planned_calls_leave(td__planned_calls *c);

#endif
