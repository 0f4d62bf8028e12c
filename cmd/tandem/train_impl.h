/* train_impl.h -- one `tandem train`: shared by what begins and runs it (train.c), what it does
 * with the run's directory (train_dir.c), and what is done and said when it is over (train_end.c).
 */
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

/* A job that was killed a moment ago may not be gone yet. */
enum { TD_LOCK_MS = 2000 };
/* train_dir.c: the job file (the argument, or that of the run that --resume names); a run to go on
 * with; a directory of our own; its lock (all ranks of an elastic job hold it; ms: how long to wait
 * for who may not be gone yet); job.yaml in it; the directory of elastic ranks, which no rank is
 * there to make; all that taken away again if nothing came of it and nothing else is in it. */
TD_NODISCARD td_status td__training_find_job(td__training *t);
TD_NODISCARD td_status td__training_find_run(td__training *t);
TD_NODISCARD td_status td__training_make_run(td__training *t);
TD_NODISCARD td_status td__training_lock(td__training *t, uint64_t ms);
TD_NODISCARD td_status td__training_write_job(td__training *t);
TD_NODISCARD td_status td__training_offer_run(td__training *t);
void td__training_take_back(td__training *t);

/* The run failed, whatever the code: its input was fine. Returns the exit status. */
int td__training_failed(td__training *t, td_status st);
/* After the last step: test part, report, summary; the exit status. stop: as of td__trainer_run. */
int td__training_conclude(td__training *t, const atomic_int *stop);

#endif
