/* micro_batches_impl.h -- a set of programs and runners, for the files that run micro-batches:
 * micro_batches.c (programs, one micro-batch after the other, some side by side) and
 * micro_batches_in_step.c (all of a thread, from one value of all micro-batches to the next). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_MICRO_BATCHES_IMPL_H
#define TD_STEP_MICRO_BATCHES_IMPL_H

#include <pthread.h>

#include "graph/runner.h"
#include "step/micro_batches.h"
#include "step/row_cache.h"

/* A program for one number of rows. */
typedef struct td__sized {
    int64_t rows; /* 0: free */
    td_program *program;
    td__model_facts facts;
    td_runner **runners; /* (threads, TD__PLACES) NULL until needed */
} td__sized;

/* The batch being run. */
typedef struct td__batch_run {
    const td__batch *batch;
    td__micro_batch_cut cut;
    uint32_t step, first;
    td__sized *low, *high; /* of rows / micro-batches, and of one row more */
    td__micro_batch_calls calls;
} td__batch_run;

/* A micro-batch that is in flight with others of its batch. */
typedef struct td__in_step {
    td__micro_batch at;
    td__synced value; /* that it has come to */
} td__in_step;

struct td__micro_batch_set {
    td__micro_batch_set_opts o;
    td__sync_values *values;
    td__in_step *in_step; /* (threads, TD__PLACES) with values */
    int64_t *begins;      /* rows of micro-batches, with values */
    td_params *ps;
    int threads;
    td__sized sizes[TD__ROW_PLACES]; /* by place of the cache */
    td__row_cache cache;
    int field_of[TD__MAX_MODEL_INPUTS]; /* by input; -1: the program does not read it */
    size_t row_nbytes[TD__MAX_MODEL_INPUTS];
    td__batch_run now;
    pthread_mutex_t lock; /* of the list of programs and runners, which other threads look at */
};

/* The first micro-batch of a thread in the batch that is run. */
static inline int td__micro_batch_first(const td__micro_batch_set *s, int thread)
{
    return td__micro_batch_of_thread(s->now.cut, thread, s->threads);
}

/* The thread's next micro-batches, from i on: one, or those that it runs last. A runner has one of
 * them at a time, so of those of one size each has its own. */
TD_NODISCARD td_status td__micro_batch_take(td__micro_batch_set *s, int thread, int i,
                                            td__micro_batch *out, int *n);
/* Ready to be run. */
TD_NODISCARD td_status td__micro_batch_start(td__micro_batch_set *s, const td__micro_batch *m);
/* All micro-batches of this rank, from one value to the next. A rank without any takes part in the
 * exchange where all ranks do. */
TD_NODISCARD td_status td__micro_batches_in_step(td__micro_batch_set *s);

#endif
