/* step_impl.h -- the step engine, for the files that make it up: step.c (the step and its
 * micro-batches), step_update.c (the rest of the tree and the update), step_world.c (ranks that
 * share memory), step_shares.c (shares that the caller adds up). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_STEP_IMPL_H
#define TD_TRAIN_STEP_IMPL_H

#include <stdatomic.h>

#include "base/clock.h"
#include "parallel/bucket_sum.h"
#include "parallel/data_parallel.h"
#include "train/step.h"
#include "train/step_zero.h"

/* Elements [begin, begin + count) of the gradient block, one thread's work at a time. */
typedef struct td__step_part {
    size_t begin, count;
    bool update; /* gradients; else statistics, or padding */
} td__step_part;

/* What a compute thread has lent to the sum. */
typedef struct td__step_borrowed {
    td__grad_block *rows; /* of a micro-batch that is lent */
    td__partial leaf;     /* of another that is running */
    float weight;
    uint64_t begin_ns; /* if the run is traced */
    bool watched;      /* nothing leaves before somebody has looked at it */
} td__step_borrowed;

struct td__step_engine {
    td__step_opts o;
    td__grad_pool *blocks;
    td__grad_stack *stacks;      /* by thread */
    td__step_borrowed *borrowed; /* (threads, TD__MOST_BESIDE) */
    bool *busy;                  /* by thread: it has micro-batches in this batch */
    td__grad_stack total;        /* of the batches before */
    td__grad_sum sum;
    td__dp *world;           /* ranks that share memory */
    td__bucket_sum *buckets; /* other ranks, or a compressor */
    size_t *marks;           /* by bucket: where it ends */
    int in_flight;           /* micro-batches that a thread runs side by side in the last batch */
    td__step_zero *zero;     /* ranks that hold something in slices; all NULL: alone */
    int rank, size;
    double *sums;   /* over ranks: their requests, the seconds of each, words, the losses */
    double *losses; /* by micro-batch of the step, weighted; 0 for those of other ranks */
    td__step_part *parts;
    int n_parts;
    double *squares; /* by param */
    /* The step under way. */
    uint32_t step;
    int64_t rows, last_rows;
    int batches, done; /* in the step; of them run */
    bool lends;      /* the batch being run is the last one in which this rank has micro-batches */
    atomic_int next; /* part, slice or param that nobody has taken yet */
    int end;         /* and the one that is not to be taken */
    const float *grads; /* where the total will lie */
    /* Shares that the caller adds up. */
    td__blend_op *ops; /* (ranks) */
    int n_ops;
    td_sparse_grad lists[TD__MAX_SPARSE];
    bool update; /* phase 2 updates the params as well */
    bool totals; /* the sum over ranks is made while updating */
    td__step_times times;
    uint64_t sent_before; /* by td__zero, in the steps before */
};

static inline double td__step_seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(td__clock_ns() - ns);
}

/* Numbers in e->sums: what is before the losses, and they. */
size_t td__step_n_sums(const td__step_engine *e);

/* For the trace. lane and id: a micro-batch's. */
void td__step_span(td__step_engine *e, td__span_kind kind, uint64_t begin_ns, uint64_t end_ns,
                   int lane, int id);

/* Call fn, on all threads, for parts [begin, end), or for all. Little work is done by the caller
 * alone, rather than wake everybody. */
TD_NODISCARD td_status td__step_in_some_parts(td__step_engine *e, td__pool_fn *fn, int begin,
                                              int end);
TD_NODISCARD td_status td__step_in_parts(td__step_engine *e, td__pool_fn *fn);
/* Blends, and the update where it goes with them, of parts until none is left. */
TD_NODISCARD td_status td__step_sum_parts(void *user, int thread);
/* Update the params with e->grads, or with what is still to be added up. */
TD_NODISCARD td_status td__step_update(td__step_engine *e, double lr);

/* The sum over all ranks of e->world, in e->grads; or e->totals is true, and it is left to the
 * update, whose parts are then td__step_totals. */
TD_NODISCARD td_status td__step_sum_world(td__step_engine *e);
TD_NODISCARD td_status td__step_totals(void *user, int thread);

#endif
