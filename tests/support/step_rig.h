/* step_rig.h -- a step engine with all it needs, on one rank or as one of several: for tests that
 * steps made together have the bits of one rank. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_STEP_RIG_H
#define TD_TESTS_SUPPORT_STEP_RIG_H

#include "support/ranks.h"
#include "support/train_models.h"
#include "tandem/optim.h"
#include "parallel/sync.h"

typedef struct step_case {
    const train_model *m;
    const char *optimizer; /* NULL: the model's */
    int micro_batches, accumulate;
    int threads;  /* 0 means 1 */
    int stage;    /* of a sharded optimizer */
    bool mirrors; /* every rank holds the slices of another too */
    size_t bucket_nbytes;
    int in_flight; /* micro-batches side by side on a thread; 0: the default */
    double clip_norm;
    bool late;
    const char *compressor;
    int bad_rank; /* whose weights are spoilt before step bad_step; 0: never */
    uint32_t bad_step;
    char digest[65]; /* what is expected (step_case_expect) */
    double loss;
} step_case;

typedef struct step_rig {
    td__dataset *data;
    td__loader *loader;
    td__pool *pool;
    td__micro_batch_set *set;
    td_params *ps;
    td__shards *shards;
    td_optimizer *o;
    td__sync_config config;
    td__sync *sync;
} step_rig;

/* comm NULL: alone. Destroyed in any case. */
td_status step_rig_make(const step_case *c, td_comm *comm, step_rig *rig);
void step_rig_drop(step_rig *rig);
/* Two passes over the data, whose last batch is short; losses become one number. */
td_status step_rig_run(const step_case *c, int rank, step_rig *rig, double *losses);

/* Fill in what one rank alone makes of it. */
void step_case_expect(step_case *c);
/* A body for ranks_run, whose arg is a step_case: does this rank get what is expected? */
void step_case_body(ranks_ctx *r);

#endif
