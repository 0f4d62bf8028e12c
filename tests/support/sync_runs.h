/* sync_runs.h -- small problems for tests of sync rules: a quadratic and a ridge regression that a
 * trainer solves on ranks that are threads, and the same steps in double, so that a rule can be
 * held against its recurrence. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_SYNC_RUNS_H
#define TD_TESTS_SUPPORT_SYNC_RUNS_H

#include <stdatomic.h>

#include "data/loader.h"
#include "support/ranks.h"
#include "train/trainer.h"

enum {
    SYNC_SAMPLES = 96,
    SYNC_BATCH = 24,
    SYNC_WIDTH = 5,
    SYNC_PARAMS = SYNC_WIDTH + 1, /* w, then b */
    SYNC_MOST_RANKS = 4,
    SYNC_SEED = 7,
    SYNC_STEPS = 12
};
#define SYNC_LR 0.1
#define SYNC_RIDGE 0.05

/* The mean over rows of (x w + b)^2, or of (x w + b - y)^2 with a penalty of SYNC_RIDGE / 2 times
 * the squares of all params, which is the optimizer's weight decay. */
typedef enum sync_problem { SYNC_QUADRATIC, SYNC_RIDGE_REGRESSION } sync_problem;

typedef struct sync_run {
    sync_problem problem;
    td__train_opts opts;
    td__data *data;
    bool resume;
    const atomic_int *stop;                      /* that rank 0 alone looks at; NULL: none */
    td__observer *observer;                      /* of rank 0; NULL: none */
    float first[SYNC_PARAMS], last[SYNC_PARAMS]; /* of rank 0 */
    td__train_result got;                        /* of rank 0 */
    uint64_t stop_after;                         /* step; then training goes on; 0: never */
    /* (steps) Params of each rank after each step, before ranks meet; NULL: nobody asks. */
    float (*trace)[SYNC_MOST_RANKS][SYNC_PARAMS];
    size_t place[SYNC_PARAMS], block; /* of params in their block; its floats */
} sync_run;

/* SYNC_STEPS steps of SGD with a rule and its defaults; ended by sync_run_end. */
void sync_run_init(sync_run *u, sync_problem problem, const char *rule);
void sync_run_end(sync_run *u);
void sync_run_set(sync_run *u, const char *option, double value);
/* On n ranks; opts may be NULL. */
void sync_run_on(sync_run *u, int n, const ranks_opts *opts);

/* ---- In double ------------------------------------------------------------------------------- */

typedef struct sync_sim {
    sync_problem problem;
    int n;
    double x[SYNC_MOST_RANKS][SYNC_PARAMS], c[SYNC_PARAMS], v[SYNC_PARAMS];
    double y[SYNC_MOST_RANKS][SYNC_PARAMS]; /* what else a rank keeps */
    double a, b;                            /* options of the rule */
    bool ahead;                             /* ranks began at c + a v */
} sync_sim;

double sync_sim_mean(const sync_sim *s, int param);
/* The gradient at `at` of rank r's rows of a batch. */
void sync_sim_grad(const sync_sim *s, int r, const td__batch *b, const double *at, double *out);
/* One step of SGD of rank r. */
void sync_sim_descend(sync_sim *s, int r, const td__batch *b);
/* The batches of a run, as all ranks share them. */
td__loader *sync_batches(td__dataset **data); /* both are the caller's */
td__loader *sync_samples(td__dataset **data); /* all in one batch, in order; the same */
/* All begin where the run did. */
void sync_sim_begin(sync_sim *s, const sync_run *u);
/* The minimum of the ridge regression over all samples. */
void sync_ridge_optimum(double *out);

#endif
