/* job_run.h -- a job on its way to a trained model: the ranks, the data, the run's directory with
 * its files, the training, the test part and the report. `tandem train` and td_trainer_from_job are
 * both this; what differs is who is told (hooks).
 *
 * Order: everything that can be wrong with the job, its data and its model is found before the
 * run's directory is made; if nothing comes of it, an empty directory is taken away again. The
 * directory of a run that is to go on stays as it is until all ranks can go on with it.
 *
 * Rank 0 has the run's directory and says whether the run begins. Elastic ranks come and go, so
 * the process that starts them makes the directory (td__job_run_offer), and every rank is told
 * which it is: rank 0 opens it, and continues with its state. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_JOB_RUN_H
#define TD_API_JOB_RUN_H

#include "api/run_past.h"
#include "api/session.h"
#include "run/run_dir.h"

typedef struct td__job_run td__job_run;

/* Functions of the caller: the command, or a program. All are optional. */
typedef struct td__job_run_hooks {
    void *user;
    /* From here on a wish to stop is to be kept for the trainer: signals are no longer the end. */
    void (*ready)(void *user);
    /* Of td__session. */
    td_status (*spreading)(void *user, const char *part, uint64_t done, uint64_t all);
    /* Who follows the run besides its files; NULL: nobody. leads: this is rank 0, which elastic
     * ranks may become and cease to be; the others follow only where their number is fixed. */
    td__observer *(*watch)(void *user, bool leads);
    void (*unwatch)(void *user); /* elastic: no longer rank 0 */
    /* Elastic: the trainer is there, the run is not begun. */
    td_status (*made)(void *user);
    /* Elastic, on rank 0: the training is over, its files and words are due. */
    void (*conclude)(void *user);
} td__job_run_hooks;

typedef struct td__job_run_opts {
    bool resume;            /* go on with a run that is there: */
    const char *resume_dir; /* this one; NULL: run_dir, or the newest of the job */
    const char *run_dir;    /* NULL: log.dir/NAME-0001, with the first number that is free */
    bool no_dir;            /* nothing is written at all */
    bool reopen;            /* resume: make a trainer of a finished run too, at its end */
    bool profile;
    bool late;    /* on GPUs elastic ranks have no trainer before td__job_run_train */
    bool uploads; /* the watcher carries out checkpoint.upload */
    td__job_run_hooks hooks;
} td__job_run_opts;

/* Zero-initialise; then lock = -1, the options, and td__session_job. */
struct td__job_run {
    td__session session;
    td__job_run_opts o;
    char dir[TD__PATH], checkpoints[TD__PATH];
    char again[TD__PATH]; /* the run that was under way when ranks were started again */
    int lock;             /* of the directory; -1: not yet */
    bool made, described; /* the directory, its job.yaml: taken away if nothing comes of it */
    bool begun; /* it is new, or was accepted to go on: before, its directory stays as it is */
    td__train_lead lead; /* of elastic ranks */
    bool concluded;      /* as rank 0 of elastic ranks */
    uint64_t from_step;
    td__observer *watcher, *metrics, *tensorboard, *trace, *live;
    char *job_text; /* of job.yaml, for the report; NULL: not read yet */
    td_node_time *times;
    int n_times;
    td__train_result result;
    td__eval_result test; /* n 0: there is no test part */
    bool untested;        /* interrupted meanwhile */
    bool reported;        /* report.html is there */
    td__run_past past;
};

/* 0, or what this process is among elastic ranks now. */
static inline bool td__job_run_leads(const td__job_run *r)
{
    return td__session_rank(&r->session) == 0;
}

/* What is asked for and elastic ranks cannot have. */
TD_NODISCARD td_status td__job_run_check_elastic(const td__job_run *r);
/* Ranks, data, directory, trainer. past.finished: the run is finished already, and nothing was
 * made. With session.comm set those are the ranks; otherwise they are what the environment says. */
TD_NODISCARD td_status td__job_run_prepare(td__job_run *r);
/* All ranks take the lowest instruction set of them, or that of the run that they go on with
 * (processor.c). Before data and trainer. */
TD_NODISCARD td_status td__job_run_processor(const td__job_run *r);
/* The instruction set that parallel.processors names, if it names one. */
TD_NODISCARD td_status td__job_run_lower(const td__job_run *r);
/* model.from (warm_start.c): whether the ranks can have it, and rank 0's weights from there. */
TD_NODISCARD td_status td__job_run_check_from(const td__job_run *r);
TD_NODISCARD td_status td__job_run_see_from(const td__job_run *r); /* is it there? */
TD_NODISCARD td_status td__job_run_from(td__job_run *r);
/* Then: the run's files, and who follows it. */
TD_NODISCARD td_status td__job_run_open(td__job_run *r);
/* The directory of elastic ranks, which no rank is there to make. */
TD_NODISCARD td_status td__job_run_offer(td__job_run *r);
/* After a failure of prepare or open, or instead of a run: take away what was made, if nothing else
 * is in it. */
void td__job_run_take_back(td__job_run *r);
/* Of elastic ranks (job_run_seat.c): is the trainer made only when this process has a place? Then:
 * wait for it, and make it; without one and TD_OK it was asked to leave before. */
bool td__job_run_late(const td__job_run *r);
TD_NODISCARD td_status td__job_run_seat(td__job_run *r, const atomic_int *stop);
/* The steps; r->result. *stop: as of td__trainer_run. */
TD_NODISCARD td_status td__job_run_train(td__job_run *r, const atomic_int *stop);
/* After the last step: test part, profile, report. What could not be written is in
 * result.unsaved. */
TD_NODISCARD td_status td__job_run_conclude(td__job_run *r, const atomic_int *stop);
/* report.html while the run goes on (job_report.c): its observer joins the trainer's. */
TD_NODISCARD td_status td__job_run_live(td__job_run *r, td__trainer *trainer);
/* The report of a run that is over. */
TD_NODISCARD td_status td__job_run_report(td__job_run *r);
/* The run has failed: its directory says why (failed.txt), and so does its report; but not where it
 * was not accepted to go on. */
void td__job_run_failed(td__job_run *r, const char *why);
void td__job_run_fini(td__job_run *r);

#endif
