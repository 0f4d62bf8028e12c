/* train_impl.h -- one `tandem train`: shared by what begins and runs it (train.c) and what is done
 * and said when it is over (train_end.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_TRAIN_IMPL_H
#define TD_CMD_TRAIN_IMPL_H

#include <stdatomic.h>

#include "progress.h"
#include "resume.h"
#include "session.h"
#include "run/run_dir.h"

/* One training on the way through its stages; all of it is released by finish(). */
typedef struct td__training {
    const td__args *args;
    td__session session;
    char dir[TD__PATH], checkpoints[TD__PATH], job_path[TD__PATH];
    int lock;             /* of the directory; -1: not yet */
    bool made, described; /* the directory, its job.yaml: taken away if nothing comes of it */
    bool resume, profile;
    td__train_lead lead; /* of elastic ranks */
    bool concluded;      /* as rank 0 of elastic ranks, */
    int rc;              /* with this exit status */
    uint64_t from_step;
    td__progress progress;
    uint64_t spread_ns; /* when the data began to travel, or were last said to; 0: not yet */
    td__observer *metrics, *tensorboard, *trace;
    td_node_time *times;
    int n_times;
    td__train_result result;
    td__eval_result test; /* n 0: there is no test part */
    bool untested;        /* interrupted meanwhile */
    td__run_past past;
} td__training;

static inline bool td__training_leads(const td__training *t)
{
    return td__session_rank(&t->session) == 0;
}

/* The run failed, whatever the code: its input was fine. Returns the exit status. */
int td__training_failed(td__training *t, td_status st);
/* After the last step: test part, report, summary; the exit status. stop: as of td__trainer_run. */
int td__training_conclude(td__training *t, const atomic_int *stop);

#endif
