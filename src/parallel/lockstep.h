/* lockstep.h -- running micro-batches on all ranks step by step together, where ranks hold
 * gradients or params in shards (parallel/shards.h).
 *
 * A round is one micro-batch on each rank, or none on some. All follow the script of the
 * micro-batches' program (parallel/shard_script.h): gathering, giving back, reducing are calls that
 * all ranks make, also those without a micro-batch. Where the micro-batches of a round are of two
 * sizes and their programs' scripts differ, the round follows the plain script, which fits all
 * programs but has all params there at once.
 *
 * Threads   One: the trainer's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_LOCKSTEP_H
#define TD_PARALLEL_LOCKSTEP_H

#include "parallel/shards.h"
#include "step/micro_batches.h"

typedef struct td__lockstep td__lockstep;

/* For micro-batches of a set (its first thread's runners); all are borrowed. evaluate: no
 * gradients. */
TD_NODISCARD td_status td__lockstep_create(td__shards *shards, td__micro_batch_set *set,
                                           td_params *ps, bool evaluate, td__lockstep **out);
void td__lockstep_destroy(td__lockstep *l); /* NULL is allowed */

/* Bucket b is final on all ranks that run a micro-batch; grads: of this rank's, or NULL. */
typedef td_status td__lockstep_reduce(void *user, int bucket, const float *grads);

typedef struct td__lockstep_round {
    const td__batch *batch;
    int micro_batches;          /* that the batch is cut in */
    const int *run;             /* by rank: which of them it runs; -1: none */
    int64_t at;                 /* where the rows of this rank's lie in the batch's memory */
    uint32_t step, micro_batch; /* what its random numbers are keyed by */
    td__lockstep_reduce *reduce;
    void *user;
} td__lockstep_round;

/* Collective. *ran: the runner that has run this rank's micro-batch; NULL: it had none with rows.
 * */
TD_NODISCARD td_status td__lockstep_run(td__lockstep *l, const td__lockstep_round *round,
                                        td_runner **ran);

#endif
