/* micro_batches.h -- running the micro-batches of a batch on the compute threads.
 *
 * A set holds a model's programs for one use, one per number of rows (a batch whose rows do not
 * divide by the micro-batches has two sizes of micro-batch, a short last batch may add two more),
 * and a runner per compute thread for each. All are made when they are first needed; the least
 * recently used are dropped beyond a few.
 *
 * Of v micro-batches to be run, thread t of T runs [v t/T, v (t+1)/T), one after the other. If
 * somebody wants gradients before all of that is over, the last few of them are run side by side:
 * the first one as far as a part of its gradients is final, then the next one as far, and so on;
 * then all of them up to the next part. That takes a runner for each.
 *
 * Where a program has values of all micro-batches (sync_values.h), those of a thread are all run
 * side by side: up to the next such value, which ranks exchange, and on from there. All rows have a
 * part in such a value, also those whose targets do not count (loss.ignore): what counts is then a
 * factor of the loss, an input of the program, instead of the weight of its gradients. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_MICRO_BATCHES_H
#define TD_STEP_MICRO_BATCHES_H

#include "data/loader.h"
#include "graph/tensor.h"
#include "step/micro_batch_tree.h"
#include "tandem/program.h"
#include "step/model.h"
#include "step/pool.h"
#include "step/sync_values.h"

typedef enum td__micro_batch_use {
    TD__USE_TRAIN,    /* forward and backward */
    TD__USE_EVALUATE, /* loss and metrics: outputs 0 .. n_metrics - 1 */
    TD__USE_PREDICT   /* the model's output: output 0 */
} td__micro_batch_use;

typedef struct td__micro_batch_set_opts {
    td__model model;
    td__pool *pool; /* borrowed */
    td__micro_batch_use use;
    const char *backend; /* borrowed */
    td_dtype precision;
    bool nondeterministic; /* of programs that train: td_program_opts */
    uint64_t seed;
    bool profile;
    td__tensor_cut tensor; /* products of programs that train in pieces */
} td__micro_batch_set_opts;

/* That input, a scalar: 1 unless set. */
#define TD__LOSS_FACTOR "(factor of the loss)"

/* What a model says of itself, for one number of rows. */
typedef struct td__model_facts {
    int n_metrics;
    char metric[TD__MAX_METRICS][64];
    bool higher_is_better[TD__MAX_METRICS];
    bool whole[TD__MAX_METRICS]; /* computed from all predictions of a part (train/scores.h) */
    td_dtype output_dtype;
    td_shape output_shape; /* of all rows */
    int n_inputs;
    char input[TD__MAX_MODEL_INPUTS][TD__FIELD_NAME];
    char target[TD__FIELD_NAME];   /* "": none that is known */
    char ignoring[TD__FIELD_NAME]; /* as in td__model_nodes; "": all rows count */
    int64_t ignore;
    bool none_ignored;
    const double *class_weights; /* borrowed, as there */
    int n_class_weights;
    td__model_table table[TD__MAX_TABLES];
    int n_tables;
    char lone_norm[64]; /* a batch norm with a single value per channel; "": none */
} td__model_facts;

typedef struct td__micro_batch_set td__micro_batch_set;
TD_NODISCARD td_status td__micro_batch_set_create(const td__micro_batch_set_opts *opts,
                                                  td__micro_batch_set **out);
void td__micro_batch_set_destroy(td__micro_batch_set *s); /* NULL is allowed */
/* An evaluation is over: rows of tables leave the params (td__model_lookup). */
TD_NODISCARD td_status td__micro_batch_clear_rows(td__micro_batch_set *s);
/* Whose params the runners use (borrowed); before the first run. */
void td__micro_batch_set_params(td__micro_batch_set *s, td_params *ps);
/* Values of all micro-batches, which programs have; borrowed. Without it, and after drop, every
 * micro-batch has its own. */
TD_NODISCARD td_status td__micro_batch_set_values(td__micro_batch_set *s, td__sync_values *values);
void td__micro_batch_drop_values(td__micro_batch_set *s);
td__sync_values *td__micro_batch_values(const td__micro_batch_set *s); /* NULL: none */
/* The program for `rows`; valid until others are asked for. facts may be NULL. */
TD_NODISCARD td_status td__micro_batch_program(td__micro_batch_set *s, int64_t rows,
                                               const td_program **out, td__model_facts *facts);
/* Which fields of d feed the inputs; TD_EINVAL where one is missing or of another size. Before
 * runs with batches of d; `rows` is a micro-batch's size that they will have. */
TD_NODISCARD td_status td__micro_batch_set_dataset(td__micro_batch_set *s, const td__dataset *d,
                                                   int64_t rows);
/* Runner k, of td__micro_batch_runners() that there may be, for `rows`; NULL if it was not made.
 * For profiles. */
int td__micro_batch_runners(const td__micro_batch_set *s);
td_runner *td__micro_batch_runner(td__micro_batch_set *s, int64_t rows, int k);

/* The first thread's runner for a micro-batch of `rows`, made if need be, with inputs from row `at`
 * of the batch's memory on; and the seed of its random numbers. */
TD_NODISCARD td_status td__micro_batch_ready(td__micro_batch_set *s, const td__batch *batch,
                                             int64_t at, int64_t rows, td_runner **out,
                                             uint64_t *seed);

/* For those who run pieces of the model themselves: what the set was made with; the inputs of r, a
 * runner of any piece, from row `at` of the batch's memory on, those that it has. */
const td__micro_batch_set_opts *td__micro_batch_options(const td__micro_batch_set *s);
TD_NODISCARD td_status td__micro_batch_feed(td__micro_batch_set *s, td_runner *r,
                                            const td__batch *batch, int64_t at, int64_t rows);

/* The name of a node that is being run; false: none is. Any thread, while the set lives. */
bool td__micro_batch_set_now(td__micro_batch_set *s, char *out, size_t max);

/* Gradients of all runners go to their own memory again: what they were given is about to go. */
void td__micro_batch_own_grads(td__micro_batch_set *s);

/* Some runner that has been made. */
td_runner *td__micro_batch_any_runner(const td__micro_batch_set *s);

enum {
    TD__MOST_IN_FLIGHT = 16, /* that a thread runs side by side for somebody who wants gradients */
    TD__PLACES = 64 /* runners of a thread for one number of rows: the most that go in step */
};
typedef struct td__micro_batch {
    int thread, index;   /* index: in the batch */
    int64_t begin, rows; /* rows of the batch; 0 rows: an empty micro-batch, runner is NULL */
    td_runner *runner;   /* that runs it */
    bool last;           /* of this thread's; all that are run side by side are */
    int place;           /* among those */
} td__micro_batch;

/* Called on the compute thread before (optional) and after each micro-batch, empty ones included.
 * */
typedef td_status td__micro_batch_fn(void *user, const td__micro_batch *micro_batch);
/* Elements [0, count) of the gradients of all micro-batches that the thread runs side by side are
 * final; SIZE_MAX: all, and `after` has been called for all of them. */
typedef void td__micro_batch_passed_fn(void *user, int thread, size_t count);
typedef struct td__micro_batch_calls {
    td__micro_batch_fn *before, *after;
    void *user;
    td__micro_batch_passed_fn *passed; /* NULL: micro-batches are run one after the other */
    int in_flight;                     /* how many are run side by side: 1 to TD__MOST_IN_FLIGHT */
    const size_t *marks;               /* (n_marks) counts to be told of, rising */
    int n_marks;
} td__micro_batch_calls;

/* Run micro-batches [begin, end) of the batch, whose rows must be there. Micro-batch s runs with
 * the key (seed, step, first + s). */
typedef struct td__micro_batch_cut {
    int micro_batches, begin, end;
} td__micro_batch_cut;
TD_NODISCARD td_status td__micro_batches_run(td__micro_batch_set *s, const td__batch *batch,
                                             td__micro_batch_cut cut, uint32_t step, uint32_t first,
                                             td__micro_batch_calls calls);

/* The first micro-batch of thread t of `threads`; that of t + 1 is where its range ends. */
static inline int td__micro_batch_of_thread(td__micro_batch_cut cut, int t, int threads)
{
    return cut.begin + (int)((int64_t)(cut.end - cut.begin) * t / threads);
}

#endif
