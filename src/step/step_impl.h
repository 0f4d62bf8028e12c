/* step_impl.h -- the step engine, for the files that make it up: step.c (the step and its
 * micro-batches), step_update.c (the rest of the tree and the update), step_shares.c (shares that
 * a rule adds up). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_STEP_IMPL_H
#define TD_STEP_STEP_IMPL_H

#include <stdatomic.h>

#include "base/clock.h"
#include "step/step.h"
#include "step/work_partition.h"

/* Elements [begin, begin + count) of the gradient block, one thread's work at a time. */
typedef struct td__step_part {
    size_t begin, count;
    bool update; /* gradients; else statistics, or padding */
    bool others; /* another rank updates the params */
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
    td__grad_stack *stacks;      /* by thread, */
    td__partial *stacked;        /* in (threads, TD__GRAD_RANGE) */
    td__step_borrowed *borrowed; /* (threads, TD__PLACES) */
    bool *busy;                  /* by thread: it has micro-batches in this batch */
    td__grad_stack total;        /* of the batches before */
    td__partial in_total[TD__GRAD_STACK];
    td__grad_sum sum;
    TD__GRAD_JOINS(TD__GRAD_STACK) in_sum;
    const td__step_weights *factors; /* of losses, in place of o.weights; NULL: none */
    const td__step_stream *stream;   /* NULL: gradients leave after backward */
    double *sums;   /* over ranks: their requests, the seconds of each, words, the losses */
    double *losses; /* by micro-batch of the step, weighted; 0 for those of other ranks */
    td__step_part *parts;
    int n_parts;
    size_t slice;          /* elements of a part at most */
    double *squares;       /* by param */
    double *piece_squares; /* (cuts, TD__MOST_PIECES) */
    /* The step under way. */
    uint32_t step;
    int64_t rows, own_rows, last_rows;
    double own_share;  /* of the step, where rows do not count alike */
    int batches, done; /* in the step; of them run */
    bool lends;      /* the batch being run is the last one in which this rank has micro-batches */
    atomic_int next; /* part, slice or param that nobody has taken yet */
    int end;         /* and the one that is not to be taken */
    td__step_sum from;         /* where the sum over all ranks comes from */
    const float *grads;        /* where it lies, or will */
    bool update;               /* blends are followed by the update of the part */
    td__step_part_fn *publish; /* of td__step_join */
    td__step_range_fn *range;  /* of td__step_in_ranges */
    size_t range_count;
    void *user;
    /* Shares that a rule adds up. */
    td__blend_op *ops; /* (ranks) */
    int n_ops;
    td_sparse_grad lists[TD__MAX_SPARSE];
    td__step_times times;
};

/* Does this rank update the params and states in [begin, end) of the block of params? */
static inline bool td__step_owns(const td__step_engine *e, size_t begin, size_t end)
{
    const td__step_stage *s = e->o.stage;
    for (int i = 0; s && i < s->n_own; i++)
        if (s->own[i].begin <= begin && end <= s->own[i].end)
            return true;
    return !s;
}
/* Does this rank update the param at that element of the block? */
bool td__step_updates(const td__step_engine *e, size_t element);

static inline double td__step_seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(td__clock_ns() - ns);
}

/* Call fn, on all threads, for all parts. Little work is done by the caller alone, rather than wake
 * everybody. */
TD_NODISCARD td_status td__step_in_parts(td__step_engine *e, td__pool_fn *fn);
/* Blends, and the update where it goes with them, of parts until none is left. */
TD_NODISCARD td_status td__step_sum_parts(void *user, int thread);
/* The same as td__step_update with this rank's block of gradients, in which nothing is left to
 * blend; row-sparse ones are those of its first partial. */
TD_NODISCARD td_status td__step_update_with(td__step_engine *e, double lr, const float *grads);

#endif
