/* job.h -- the record of a submitted job: what was asked for (the spec) and what became of it.
 *
 * The spec is fixed at submission. Every member of it is a row of spec.def, so that JSON bodies,
 * files of `tandem submit` and the store have one reader and one writer (spec.h).
 *
 * Times are milliseconds since 1970 (wall clock), 0: not yet. "Attempt" is one launch of the whole
 * group of members; each has a token, by which trackers know it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_JOB_H
#define TD_SERVICE_JOB_H

#include "base/alloc.h"

/* Identifier, name, the number of the book's TrainingStatus, final?
 * A cancelled job is a failure there: its clients wait for "succeed" or "failure" only. */
#define TD_JOB_STATE_MAP(X)             \
    X(QUEUED, "queued", 0, false)       \
    X(PAUSED, "paused", 0, false)       \
    X(LAUNCHING, "launching", 1, false) \
    X(RUNNING, "running", 2, false)     \
    X(SUCCEEDED, "succeeded", 3, true)  \
    X(FAILED, "failed", 4, true)        \
    X(CANCELLED, "cancelled", 4, true)  \
    X(PENDING, "pending", 1, false) /* launched, and waits in the queue of the tracker's system */

typedef enum td__job_state {
#define X(id, name, book, final) TD_JOB_##id,
    TD_JOB_STATE_MAP(X)
#undef X
        TD_JOB_STATE_COUNT
} td__job_state;

const char *td__job_state_name(td__job_state s);                /* "queued" */
bool td__job_state_parse(const char *name, td__job_state *out); /* false: no such state */
int td__job_state_book(td__job_state s);                        /* training.TrainingStatus */
bool td__job_state_final(td__job_state s);

/* How an attempt ended, which decides whether it is tried again. */
#define TD_EXIT_CLASS_MAP(X)                                                                \
    X(NONE, "none")           /* it has not ended */                                        \
    X(OK, "ok")               /* status 0 */                                                \
    X(PERMANENT, "permanent") /* 1 to 127: the program's own verdict; the same again */     \
    X(RETRYABLE, "retryable") /* 128 and more: a signal, as of a lost or full machine */    \
    X(LAUNCH, "launch")       /* it could not be started: no such image, a bad job file */  \
    X(LOST, "lost")           /* the tracker no longer knows it: host or supervisor gone */ \
    X(DEADLINE, "deadline")   /* a limit of time has passed */                              \
    X(STOPPED, "stopped")     /* the service stopped it: cancel, pause, preemption */

typedef enum td__exit_class {
#define X(id, name) TD_EXIT_CLASS_##id,
    TD_EXIT_CLASS_MAP(X)
#undef X
        TD_EXIT_CLASS_COUNT
} td__exit_class;

const char *td__exit_class_name(td__exit_class c);
td__exit_class td__exit_class_of(int exit_status); /* of a process that nobody stopped */

/* parameters, labels, env, node_selector: keys and values in the order given. */
typedef struct td__pair {
    const char *key, *value;
} td__pair;

typedef struct td__pairs {
    const td__pair *at;
    int n;
} td__pairs;

const char *td__pairs_get(const td__pairs *p, const char *key); /* NULL: not there */

/* What a client asks for. Texts that were not given are "". All of it lies in one arena. */
typedef struct td__job_spec {
    td__arena *arena;
    /* The book's metadata. */
    const char *algorithm, *dataset_id, *name, *train_data_version_hash, *output_model_name;
    td__pairs parameters;
    /* What to run, in this order of precedence: the text of a job file, a command, the algorithm
     * (an image, or one that is shipped). */
    const char *job_file;
    const char *const *sets; /* overrides of the job file, "train.epochs=3" */
    int n_sets;
    const char *const *command;
    int n_command;
    const char *image;     /* docker, kubernetes; "": by the algorithm */
    const char *framework; /* tandem, pytorch, tensorflow, horovod, mpi, none */
    const char *tracker;   /* "": the service's default */
    td__pairs env, labels, node_selector;
    const char *affinity; /* kubernetes: JSON; "": by pack */
    const char *user;
    int priority; /* higher first; 0 */
    /* Resources, of each member. */
    int members;   /* group size; PARALLEL_INSTANCES */
    int processes; /* of each member; 0: its GPUs, at least 1 */
    int slots, gpus;
    int64_t memory_mb;
    bool pack; /* on the fewest nodes */
    /* Limits. 0: none. */
    int64_t deadline_s;   /* from submission to its end, whatever happens in between */
    int64_t time_limit_s; /* running time of one attempt */
    /* Failures. */
    int retries;             /* further attempts after a failure */
    int64_t backoff_s;       /* before the first of them; doubled each time */
    bool retry_permanent;    /* exits 1 to 127 are retried too */
    int member_restarts;     /* a member that dies is restarted alone, so many times in all */
    int64_t step_deadline_s; /* a member that reports no step for so long counts as dead */
    bool preemptible;        /* may be stopped at a checkpoint for a job of higher priority */
    int64_t grace_s;         /* between SIGTERM and SIGKILL */
    const char *checkpoint;  /* URL for checkpoints; "": a directory of the job's own */
    int64_t sweep;           /* the sweep it is a trial of; 0: none */
} td__job_spec;

/* World size: members times processes. */
int td__job_processes(const td__job_spec *s); /* of one member: at least 1 */

enum { TD__TOKEN = 48 }; /* bytes of a token: "job-12-1-5f3a9c0b12d4" and a zero */

typedef struct td__job_record {
    int32_t id;         /* 1, 2, ...; never used again */
    td__job_spec *spec; /* owned */
    td__job_state state;
    bool cancel_asked, pause_asked; /* while it is launching or running */
    int attempt;                    /* launches so far */
    int failures;                   /* of them, those that count against retries */
    char token[TD__TOKEN];          /* of the current or last attempt; "": none yet */
    int64_t submitted_ms, queued_ms, launched_ms, started_ms, finished_ms;
    int64_t not_before_ms; /* queued: back-off before the next attempt */
    int exit_status;       /* of the last attempt; -1: unknown */
    td__exit_class exit_class;
    char *message;                 /* owned; never NULL */
    char *data_bucket, *data_path; /* owned; where the data set lies, NULL: not asked yet */
} td__job_record;

void td__job_record_destroy(td__job_record *r); /* NULL is allowed */
/* Replaces the message; a failed allocation leaves the old one. */
void td__job_record_say(td__job_record *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
