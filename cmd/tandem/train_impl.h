/* train_impl.h -- one `tandem train`: shared by what begins and runs it (train.c) and what is done
 * and said when it is over (train_end.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_TRAIN_IMPL_H
#define TD_CMD_TRAIN_IMPL_H

#include <stdatomic.h>

#include "api/job_run.h"
#include "hooks.h"
#include "progress.h"
#include "session.h"

typedef struct td__training {
    const td__args *args;
    td__job_run run;
    char job_path[TD__PATH];
    int rc; /* as rank 0 of elastic ranks, when it has concluded */
    td__progress progress;
    td__hooks hooks;                 /* `on` of the job */
    struct td__mirror *mirror;       /* checkpoint.upload, as rank 0 */
    struct td__shard_sender *shards; /* the same with parallel.zero, as another */
    char fetched[TD__PATH];          /* --resume=URL: where it was fetched to */
    uint64_t spread_ns; /* when the data began to travel, or were last said to; 0: not yet */
} td__training;

/* The run failed, whatever the code: its input was fine. Returns the exit status. */
int td__training_failed(td__training *t, td_status st);
/* After the last step: test part, report, summary; the exit status. stop: as of td__trainer_run. */
int td__training_conclude(td__training *t, const atomic_int *stop);

#endif
