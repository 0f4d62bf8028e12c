/* step.h -- one training step of one rank: micro-batches forward and backward on compute threads,
 * gradients added in the micro-batch tree, one update of the params. How the gradients of several
 * ranks become one update is a sync rule's affair (parallel/sync.h); this is what rules are built
 * from.
 *
 * A step of k batches (accumulation) is one tree over k V micro-batches. The weight of a
 * micro-batch is its share of the step's rows, so that the sum is the gradient of the mean over all
 * rows; or of what counts in them (td__step_weights).
 *
 *     begin, batch (k times), then    partials and numbers of this rank -> a sum -> update, done
 *                             or      own_share, apply
 *                             or      abandon, after a failure
 *
 * Phases, each one call of the pool:
 *   1. per batch: every thread runs its range of micro-batches and adds up what it can (a stack of
 *      partials); the stacks, in order of threads, are the batch's partials in order of
 *      micro-batches. The last micro-batch of a thread in the step is lent: its gradients are read
 *      where they are. With a stream (a rule that sends gradients while backward runs) the last few
 *      are, which run side by side, and threads tell how far backward is in them;
 *   2. the rest of the tree, slice by slice over all threads: blends, and the optimizer's update of
 *      the slice while it is in the cache; with clipping by the norm, the update is a phase of its
 *      own after the norm is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_STEP_H
#define TD_STEP_STEP_H

#include "run/span_log.h"
#include "run/step_times.h"
#include "graph/cut.h"
#include "graph/tensor.h"
#include "step/grad_tree.h"
#include "step/micro_batches.h"
#include "tandem/optim.h"

typedef struct td__step_engine td__step_engine;

/* Looks at micro-batches as they are run (train/verify.h). */
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

/* The share of rows [begin, begin + rows) of a batch of the step in its loss and gradients, where
 * that is not their share of its rows; shares of a step add up to 1. Any thread. */
typedef struct td__step_weights {
    void *user;
    double (*share)(void *user, int batch, int64_t begin, int64_t rows);
} td__step_weights;

/* A rank that has part of the model: whose params it updates, and who runs its micro-batches. */
typedef struct td__step_stage {
    void *user;
    const td__param_range *own; /* rising, not adjacent: params and states of the whole model */
    int n_own;
    /* (optional) Does this rank update the param at that element? Else another one does, which has
     * the same params. NULL: all of `own`. */
    bool (*updates)(void *user, size_t element);
    /* (optional) Before the first param is updated, with all that other ranks are needed for done:
     * wait for this rank's turn. */
    td_status (*turn)(void *user);
    /* Squares of gradients by param, 0 for those of other ranks: becomes those of all. */
    td_status (*sum_squares)(void *user, double *squares, size_t n);
    /* A block laid out as the gradients, where statistics of states are put, and then: fold them
     * into the states. */
    float *(*statistics)(void *user);
    void (*fold)(void *user);
} td__step_stage;

/* Params of which a rank has pieces (graph/tensor.h): the squares of their gradients are added up
 * by piece. */
typedef struct td__step_cut {
    int param;
    td_attr_pieces pieces;
} td__step_cut;
typedef struct td__step_cuts {
    const td__step_cut *at;
    int n;
    /* (optional) Numbers that are 0 but on the rank that knows them: become known to all. */
    td_status (*sum)(void *user, double *numbers, size_t n);
    void *user;
} td__step_cuts;

/* Takes the sum of a step in place of the optimizer: params and states stay as they are, but for
 * what it does to them. Not with row-sparse gradients. */
typedef struct td__step_taker {
    void *user;
    /* Elements of the sum that this rank would update; memory of the host or of the params' device.
     * Any compute thread. */
    td_status (*take)(void *user, const float *sum, size_t begin, size_t count);
    bool all; /* also of those that another rank with the same params would update */
} td__step_taker;

typedef struct td__step_opts {
    td__micro_batch_set *set; /* of TD__USE_TRAIN; all are borrowed */
    td__pool *pool;
    td_params *params;
    td_optimizer *optimizer;
    const td_program *program; /* of one micro-batch of the usual size */
    int micro_batches, accumulate;
    const int *bounds; /* of td__work_partition; NULL: all ranks have the same share */
    int rank, size;    /* whose micro-batches are run; size 0: all of them */
    int in_flight;     /* micro-batches that a thread runs side by side for a stream; at least 1 */
    bool no_partials;  /* the rule runs batches itself and keeps no blocks of gradients here */
    td__span_log *spans;             /* where the step's phases are recorded; NULL: nowhere */
    const td__step_watch *watch;     /* NULL: nobody; with it updates are late */
    const td__step_weights *weights; /* NULL: rows count alike */
    /* No update before the sum has arrived whole: a failure of another rank then leaves the state
     * of before the step. */
    bool update_late;
    const td__step_cuts *cuts;   /* NULL: none */
    const td__step_stage *stage; /* NULL: this rank has the whole model */
    const td__step_taker *taker; /* NULL: the optimizer updates */
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
    const double
        *seconds; /* (ranks) what each said of itself; until the next step; NULL: unknown */
    /* Where the update does not hold the work of all ranks: those that it holds, and their rows;
     * until the next step. n_counted 0: all. */
    const int *counted;
    int n_counted;
    int64_t counted_rows;
    td__step_times times;
} td__step_result;

/* Blocks of gradients that a rank's micro-batch tree needs at once; g only says if there are
 * row-sparse ones. */
typedef struct td__step_blocks_opts {
    int micro_batches, accumulate, threads, rank, size;
    const int *bounds; /* of td__work_partition */
    int in_flight;
} td__step_blocks_opts;
int td__step_blocks(const td__grad_pool *g, const td__step_blocks_opts *o);

/* How many of `threads` compute threads a step of so many micro-batches may have: all, but for
 * hundreds of threads with many micro-batches each, whose partials would be more than
 * TD__GRAD_STACK. */
int td__step_threads(int threads, int micro_batches);

TD_NODISCARD td_status td__step_engine_create(const td__step_opts *opts, td__step_engine **out);
void td__step_engine_destroy(td__step_engine *e); /* NULL is allowed */
const td__step_opts *td__step_opts_of(const td__step_engine *e);
td__grad_pool *td__step_grads(td__step_engine *e);

/* ---- A step ---------------------------------------------------------------------------------- */

/* Begin step `step` (from 1) of `batches` batches, with `rows` rows in all. */
void td__step_begin(td__step_engine *e, uint32_t step, int batches, int64_t rows);
/* Run the next batch. Borrowed for the call. */
TD_NODISCARD td_status td__step_batch(td__step_engine *e, const td__batch *batch);
/* The same for a rule that runs it itself: fn sets losses (by micro-batch of the batch, weighted)
 * of this rank's. */
typedef td_status td__step_batch_fn(void *user, const td__batch *batch, int number, double *losses);
TD_NODISCARD td_status td__step_batch_by(td__step_engine *e, const td__batch *batch,
                                         td__step_batch_fn *fn, void *user);
/* After the last one, of a rule whose batches were run that way: the partials are there, as
 * td__step_batch() would have left them. A stream is told. */
TD_NODISCARD td_status td__step_hand_in(td__step_engine *e);
int td__step_micro_batches(
    const td__step_engine *e); /* that this rank has in a batch; the first's */
void td__step_say_so(td__step_engine *e, td__step_say say);
void td__step_abandon(td__step_engine *e);

/* A rule that takes gradients away while backward runs. */
typedef struct td__step_stream {
    void *user;
    const size_t *marks; /* (n_marks) elements of the gradient block to be told of, rising */
    int n_marks;
    /* The first batch of a step of `batches` is about to be run; the last one has last_rows. */
    td_status (*begin)(void *user, uint32_t step, int batches, int64_t last_rows);
    /* This rank's last batch with micro-batches begins. total: partials of those before; stacks: by
     * thread, on which each busy thread lends its last micro-batches before it first passes. */
    void (*open)(void *user, td__grad_stack *total, td__grad_stack *stacks, const bool *busy);
    /* Elements [0, count) of the thread's last micro-batches are final; any compute thread. */
    void (*passed)(void *user, int thread, size_t count);
    void (*flush)(void *user); /* all micro-batches of this rank have been run */
} td__step_stream;
/* Before the first step; borrowed, with marks, while the engine lives. */
void td__step_set_stream(td__step_engine *e, const td__step_stream *stream);

/* ---- The sum of a step, for rules ------------------------------------------------------------ */

/* Of the step under way. */
int td__step_batches(const td__step_engine *e);
int64_t td__step_rows(const td__step_engine *e);
/* The weight of a micro-batch of it. */
double td__step_share(const td__step_engine *e, int batch, int64_t begin, int64_t rows);
uint32_t td__step_number(const td__step_engine *e);  /* from 1 */
int64_t td__step_own_rows(const td__step_engine *e); /* that this rank has run of it */
/* What they weigh in a mean of shares: their number, or their part of what counts in the step. */
double td__step_own_weight(const td__step_engine *e);
int64_t td__step_last_rows(const td__step_engine *e); /* of its last batch */
td__step_times *td__step_times_of(td__step_engine *e);
/* This rank's partials, in order of micro-batches. */
td__grad_stack *td__step_partials(td__step_engine *e);
/* Numbers to be added up over ranks along with the gradients: what ranks say, the losses. */
double *td__step_numbers(td__step_engine *e, size_t *n);
/* How many there are in a step of so many micro-batches. */
static inline size_t td__step_numbers_of(int ranks, bool watched, int micro_batches)
{
    return TD_REQUESTS + (size_t)ranks + (watched ? (size_t)TD__STEP_WORDS : 0) +
           (size_t)micro_batches;
}

/* Join siblings among the partials, all threads; publish (optional): called for each part that is
 * joined, by the thread that did. */
typedef void td__step_part_fn(void *user, const td__grad_stack *partials, size_t begin,
                              size_t count);
TD_NODISCARD td_status td__step_join(td__step_engine *e, td__step_part_fn *publish, void *user);
/* Call fn for [0, count) in pieces, on all threads. */
typedef void td__step_range_fn(void *user, size_t begin, size_t count);
TD_NODISCARD td_status td__step_in_ranges(td__step_engine *e, size_t count, td__step_range_fn *fn,
                                          void *user);

/* The sum over all ranks, as td__step_update takes it. */
typedef struct td__step_sum {
    void *user;
    const float *grads; /* NULL: `block` makes it */
    /* Row-sparse gradient k of it. */
    td_sparse_grad (*rows)(void *user, int k);
    /* (optional) Elements of the sum, to `to`: made while updating. Any thread. */
    void (*block)(void *user, size_t begin, size_t count, float *to);
    /* (optional) It arrives front to back in n pieces: wait until elements [0, piece_end(k)) are
     * there, and wait(n) for all that is not in the block. */
    int n_pieces;
    size_t (*piece_end)(void *user, int k);
    td_status (*wait)(void *user, int k);
} td__step_sum;
/* Update the params. sum NULL: this rank's partials are all there is. */
TD_NODISCARD td_status td__step_update(td__step_engine *e, double lr, const td__step_sum *sum);
/* What a sum that was taken is to be multiplied by, for clipping by the norm; grads: a block of it.
 * Not with row-sparse gradients. */
TD_NODISCARD td_status td__step_clip(td__step_engine *e, const float *grads, double *scale);
/* After the update; times as they are in td__step_times_of(). */
void td__step_done(td__step_engine *e, td__step_result *out);
/* Updates of others' making, e.g. of slices: the time since begin_ns is that of the update. */
void td__step_updated(td__step_engine *e, uint64_t begin_ns);

/* For the trace. lane and id: a micro-batch's. */
void td__step_span(td__step_engine *e, td__span_kind kind, uint64_t begin_ns, uint64_t end_ns,
                   int lane, int id);

/* ---- Shares, for rules that add up whole gradients of ranks themselves ----------------------- */

/* A share has td__step_floats() elements and td__step_lists() lists. */
size_t td__step_floats(const td__step_engine *e);
int td__step_lists(const td__step_engine *e);
void td__step_widths(const td__step_engine *e, int64_t *out); /* of the lists' rows */
/* This rank's share, but for its rows; until the next step begins. */
TD_NODISCARD td_status td__step_own_share(td__step_engine *e, td__grad_share *out);
double td__step_compute(const td__step_engine *e); /* seconds of the step's micro-batches */
/* Update the params with the mean over what counts in the own share and in n others, added in this
 * order: all weights zero, with no gradient. */
TD_NODISCARD td_status td__step_apply(td__step_engine *e, const td__grad_share *others, int n,
                                      double lr, td__step_result *out);

#endif
