/* step.h -- one training step: micro-batches forward and backward, gradients added in the
 * micro-batch tree, one update of the params. The result does not depend on the number of compute
 * threads, nor on the number of ranks that share the work: with more than one, all of them make the
 * same calls, each with the rows of its own micro-batches. Ranks that share memory add up at the
 * end of backward (parallel/data_parallel.h); others bucket by bucket while it runs
 * (parallel/bucket_sum.h), and with a compressor (parallel/compressor.h) in another way than the
 * tree, with other bits.
 *
 * A step of k batches (accumulation) is one tree over k V micro-batches. The weight of a
 * micro-batch is its share of the step's rows, so that the sum is the gradient of the mean over all
 * rows.
 *
 *     begin, batch (k times), end, gather        or abandon, after a failure
 *
 * Recovery  Params and optimizer state change in `end` alone. If it fails, some buckets may have
 *           been updated and others not, on each rank different ones; with update_late, and always
 *           when clipping by the norm, nothing changes before all of the sum has arrived, and a
 *           failure of another rank leaves the state of before the step: ranks that were told of
 *           the failure inside a step then differ from those that had got the whole sum by one
 *           step at most. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_STEP_H
#define TD_TRAIN_STEP_H

#include "parallel/bucket_queue.h"
#include "step/grad_tree.h"
#include "parallel/compressor.h"
#include "parallel/zero.h"
#include "tandem/coll.h"
#include "tandem/optim.h"
#include "step/micro_batches.h"
#include "run/span_log.h"
#include "run/step_times.h"

typedef struct td__step_engine td__step_engine;

/* Somebody who looks at micro-batches as they are run (verify.h). */
enum { TD__STEP_WORDS = 32 };
typedef struct td__step_watch {
    void *user;
    /* Is this micro-batch to be looked at before its gradients are used? */
    bool (*watched)(void *user, int batch, int micro_batch);
    /* It was run; its gradients are where it left them. On the compute thread, every micro-batch.
     * */
    td_status (*ran)(void *user, int batch, const td__micro_batch *s);
    /* Words for the other ranks, added up over all of them: zeros, to be filled in. */
    void (*say)(void *user, double *words);
    /* What came of it; a failure is the step's, before anything is updated. */
    td_status (*check)(void *user, const double *words);
} td__step_watch;

typedef struct td__step_opts {
    td__micro_batch_set *set; /* of TD__USE_TRAIN; all are borrowed */
    td__pool *pool;
    td_params *params;
    td_optimizer *optimizer;
    const td_program *program; /* of one micro-batch of the usual size */
    int micro_batches, accumulate;
    const int *bounds;    /* of td__work_partition; NULL: all ranks have the same share */
    td_comm *comm;        /* of the ranks that share the work; NULL: this one is alone */
    size_t bucket_nbytes; /* what is reduced at once where messages are; 0: the default */
    int in_flight;        /* micro-batches that a thread runs side by side there; 0: the default */
    td__span_log *spans;  /* where the step's phases are recorded; NULL: nowhere */
    const td__step_watch *watch; /* NULL: nobody; with it updates are late */
    bool update_late;            /* no update before the sum has arrived whole: see Recovery */
    const char
        *compressor; /* a name of compressors.def; NULL: the tree, with the bits of one rank */
    td__compressor_opts with; /* of the compressor; comm, params and buckets are filled in */
    td__zero *zero; /* what ranks hold in slices; NULL: nothing. The optimizer holds its ranges */
    /* Without a comm: run the micro-batches of rank `rank` of `ranks` alone; the caller carries
     * shares from rank to rank. ranks 0: all micro-batches. */
    int rank, ranks;
} td__step_opts;

/* Requests of a rank to all; the votes for each are added up over ranks. */
typedef enum td__request {
    TD_REQUEST_STOP,   /* this process is to stop; without members, all of them */
    TD_REQUEST_CHANGE, /* the membership is to change after this step */
    TD_REQUEST_END,    /* the whole job is to stop: one vote is enough */
    TD_REQUEST_FAULT,  /* rank 0 alone: an injected fault is due by the clock */
    TD_REQUESTS
} td__request;

/* What a rank has to say to the others in a step; it travels with the losses. */
typedef struct td__step_say {
    double requests[TD_REQUESTS]; /* 1: it makes this request */
    double seconds;               /* that it took to run its micro-batches */
} td__step_say;

typedef struct td__step_result {
    double loss;                  /* mean over the step's rows, before the update */
    double grad_norm;             /* -1 unless gradients are clipped by their norm */
    double requests[TD_REQUESTS]; /* ranks that make each: the same numbers on all of them */
    const double *seconds;        /* (ranks) what each said of itself; until the next step begins */
    td__step_times times;
} td__step_result;

/* Blocks of gradients that a rank's micro-batch tree needs at once; g only says if there are
 * row-sparse ones. */
typedef struct td__step_blocks_opts {
    int micro_batches, accumulate, threads, rank, size;
    const int *bounds; /* of td__work_partition */
    int in_flight;     /* td__step_in_flight() */
} td__step_blocks_opts;
int td__step_blocks(const td__grad_pool *g, const td__step_blocks_opts *o);

/* How many micro-batches a thread runs side by side at the end of a step, so that buckets leave
 * while backward goes on in all of them: `most`, where messages are; 1 where nothing leaves early.
 * */
typedef struct td__step_in_flight_opts {
    int size;
    bool shared, watched, zero;
    const char *compressor;
    int most; /* 0: the default */
} td__step_in_flight_opts;
enum { TD__BESIDE = 4 };
int td__step_in_flight(const td__step_in_flight_opts *o);

/* How many of `threads` compute threads a step of so many micro-batches may have: all, but for
 * hundreds of threads with many micro-batches each, whose partials would be more than
 * TD__GRAD_STACK. */
int td__step_threads(int threads, int micro_batches);
/* With a comm: collective. */
TD_NODISCARD td_status td__step_engine_create(const td__step_opts *opts, td__step_engine **out);
void td__step_engine_destroy(td__step_engine *e); /* NULL is allowed */

/* Begin step `step` (from 1) of `batches` batches, with `rows` rows in all. */
void td__step_begin(td__step_engine *e, uint32_t step, int batches, int64_t rows);
/* Run the next batch. Borrowed for the call. */
TD_NODISCARD td_status td__step_batch(td__step_engine *e, const td__batch *batch);
int td__step_micro_batches(
    const td__step_engine *e); /* that this rank has in a batch; the first's */
/* Update the params. */
TD_NODISCARD td_status td__step_end(td__step_engine *e, double lr, td__step_say say,
                                    td__step_result *out);
/* After end: where ranks hold slices, params that others have updated come to this one. Adds to
 * times. Collective; if it fails the step is done all the same, with these params missing. */
TD_NODISCARD td_status td__step_gather(td__step_engine *e, td__step_times *times);
/* end has failed, yet nothing is missing for the update: other ranks may have made it. Then, if
 * they have: make it too; local, until the next step begins. */
bool td__step_prepared(const td__step_engine *e);
TD_NODISCARD td_status td__step_forward(td__step_engine *e);
/* Where the caller adds up: this rank's share, but for its rows, instead of `end`; valid until the
 * next step begins. Shares have td__step_floats() elements and td__step_lists() lists. */
size_t td__step_floats(const td__step_engine *e);
int td__step_lists(const td__step_engine *e);
void td__step_widths(const td__step_engine *e, int64_t *out); /* of the lists' rows */
TD_NODISCARD td_status td__step_own_share(td__step_engine *e, td__grad_share *out);
double td__step_compute(const td__step_engine *e); /* seconds of the step's micro-batches */
/* Then: update the params with the mean over the rows of the own share, which has own_rows, and of
 * n others, added in this order. */
TD_NODISCARD td_status td__step_apply(td__step_engine *e, int64_t own_rows,
                                      const td__grad_share *others, int n, double lr,
                                      td__step_result *out);
/* With buckets on their way this aborts the comm, telling the others td_last_error(). */
void td__step_abandon(td__step_engine *e);

/* When the buckets of the last step were carried, and last the losses; 0 of them if none were. */
int td__step_spans(const td__step_engine *e, const td__bucket_span **out);
/* Of bucket k of them; of the losses 0. */
size_t td__step_bucket_nbytes(const td__step_engine *e, int k);

#endif
