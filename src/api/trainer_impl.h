/* trainer_impl.h -- the inside of td_trainer: a trainer with all that it is made of. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_TRAINER_IMPL_H
#define TD_API_TRAINER_IMPL_H

#include "api/callbacks.h"
#include "api/job_run.h"
#include "base/alloc.h"
#include "data/pipeline.h"
#include "train/trainer.h"

/* A model built in C, and how its output is judged. */
typedef struct td__compiled {
    td_build_fn build;
    void *user;
    const char *loss, *target;
    td_loss_opts loss_opts;
    const char *const *metrics;
    int n_metrics;
    td__field fields[TD__MAX_FIELDS]; /* of the samples it reads */
    int n_fields;
} td__compiled;

struct td_trainer {
    td__trainer *trainer;
    td__callbacks callbacks;
    atomic_int stop;
    td_comm *comm;     /* borrowed; NULL: alone */
    const char *split; /* what is set so that no rank has all weights; NULL: nothing */
    bool gathered;     /* elastic ranks have them again, after the run */
    bool trained;      /* made of a run: not for fit */
    bool fitted;       /* the run has begun: its directory stays */
    bool late;         /* ranks other than 0 have no weights before that */
    td__arena *arena;  /* texts of the options */
    td_job *keys;      /* that has the keys of the options; NULL: there are none */
    td__compiled model;
    td_dataset *parts[2]; /* train, valid: kept alive */
    td__data *data;       /* over them; of a job: the session's */
    td__job_run *run;     /* of a job; NULL: the model is built in C */
    td_status concluded;  /* of run, as rank 0 of elastic ranks */
};

/* What fit does with a job. */
TD_NODISCARD td_status td__trainer_fit_job(td_trainer *t, td_run_result *out);

#endif
