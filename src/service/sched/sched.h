/* sched.h -- the scheduler: which job is launched, stopped, tried again, and when.
 *
 * Pure: no I/O, no clock, no threads. Its owner tells it what happened and what time it is, and
 * then takes the actions that follow, in order. The service and the soak over a million jobs run
 * the same code.
 *
 * Lists     queued (eligible, waiting for a time, or held), launching, pending (launched, and
 *           waiting in the queue of another system), running, and paused; jobs that reach a final
 *           state are forgotten.
 * Order     Higher priority first; among equals the user with the smaller share (dominant
 *           resource in use, by weight; then past usage, which halves in half_life), then the
 *           smaller id.
 * Groups    A job's resources are those of all its members: it is launched as a whole or not.
 * Backfill  A job that does not fit is overtaken by later ones that do. Once it has waited for
 *           starve_ms it is reserved for: only jobs overtake it that end, by their time limits,
 *           before it could start anyway. A pass looks at one job of each kind (kinds.c), so that
 *           whoever has room is reached however many wait before them.
 * Preempt   A job that has waited for preempt_ms stops preemptible jobs of lower priority, as few
 *           as make room; they write a checkpoint and return to the queue.
 * Retry     By how the attempt ended (td__exit_class): at once after a preemption, after a back-off
 *           that doubles after a failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SCHED_SCHED_H
#define TD_SERVICE_SCHED_SCHED_H

#include "service/job.h"

typedef struct td__sched td__sched;

typedef struct td__resources {
    int64_t slots, gpus, memory_mb;
} td__resources;

typedef struct td__sched_opts {
    td__resources capacity;
    int max_launching;         /* 0: no limit */
    int max_pending;           /* 0: no limit */
    double half_life_s;        /* of past usage; 0: a day */
    int64_t starve_ms;         /* */
    int64_t preempt_ms;        /* -1: never */
    int64_t launch_timeout_ms; /* without the time of being pending; 0: none */
} td__sched_opts;

TD_NODISCARD td_status td__sched_create(const td__sched_opts *o, td__sched **out);
void td__sched_destroy(td__sched *s); /* NULL is allowed */

/* What a user may have at once: -1 is no limit. user "*": whoever has no quota of their own. */
TD_NODISCARD td_status td__sched_set_quota(td__sched *s, const char *user, td__resources most,
                                           int64_t queued, double weight);

/* The user has what "*" has again; "*": no limit. */
void td__sched_unset_quota(td__sched *s, const char *name);

typedef struct td__sched_job {
    int32_t id;
    const char *user;
    int priority;
    td__resources need; /* of all members */
    /* Of these, what is not of the capacity: another system hands it out. Quotas and shares count
     * it all the same. */
    td__resources elsewhere;
    bool queues; /* that system lets it wait: it may become pending */
    int64_t submitted_ms;
    int64_t deadline_ms;   /* when it must have ended; 0: none */
    int64_t time_limit_ms; /* of one attempt; 0: none */
    int retries;
    int64_t backoff_ms;
    bool retry_permanent, preemptible;
    bool held; /* not eligible until td__sched_release */
    /* Where it stands; zero for a new one. */
    td__job_state state; /* QUEUED, PAUSED, LAUNCHING, PENDING, RUNNING */
    int attempt, failures;
    int64_t not_before_ms, launched_ms, started_ms;
    bool cancel_asked, pause_asked;
} td__sched_job;

/* Could it ever run, on an empty machine and within the user's quota? */
bool td__sched_fits(const td__sched *s, const char *user, td__resources need,
                    td__resources elsewhere);
/* A new job, or one that the store still had. */
TD_NODISCARD td_status td__sched_add(td__sched *s, int64_t now, const td__sched_job *j);
void td__sched_release(td__sched *s, int64_t now, int32_t id);
/* Its attempt waits in the queue of another system: as long as it takes, and others may be launched
 * meanwhile. placed: it waits there no longer, and is to start in time from now on. */
void td__sched_pending(td__sched *s, int64_t now, int32_t id, int attempt, bool placed);
/* Its attempt runs; has ended. Reports of other attempts, and of unknown jobs, change nothing. */
void td__sched_started(td__sched *s, int64_t now, int32_t id, int attempt);
void td__sched_ended(td__sched *s, int64_t now, int32_t id, int attempt, td__exit_class how);
/* false: it is not in a state for that. */
bool td__sched_cancel(td__sched *s, int64_t now, int32_t job);
bool td__sched_pause(td__sched *s, int64_t now, int32_t job);
bool td__sched_resume(td__sched *s, int64_t now, int32_t job);
/* Fail a queued job: its data set cannot be had. */
bool td__sched_reject(td__sched *s, int64_t now, int32_t job);
/* Time has passed. Also launches: call it after events, before the actions are taken. */
void td__sched_tick(td__sched *s, int64_t now);
/* When td__sched_tick must be called at the latest; INT64_MAX: not before the next event. */
int64_t td__sched_wake_ms(const td__sched *s);

typedef enum td__sched_why {
    TD_WHY_NONE,
    TD_WHY_EXIT,  /* by how the attempt ended */
    TD_WHY_RETRY, /* queued again, after not_before_ms */
    TD_WHY_CANCEL,
    TD_WHY_PAUSE,
    TD_WHY_RESUME,
    TD_WHY_PREEMPT,
    TD_WHY_DEADLINE,
    TD_WHY_TIME_LIMIT,
    TD_WHY_LAUNCH_TIMEOUT,
    TD_WHY_REJECT
} td__sched_why;

typedef enum td__sched_action_kind {
    TD_SCHED_LAUNCH, /* state LAUNCHING: write it down with a new token, then start the group */
    TD_SCHED_STOP,   /* ask the tracker to stop the attempt; the end is reported */
    TD_SCHED_STATE   /* write the new state down */
} td__sched_action_kind;

typedef struct td__sched_action {
    td__sched_action_kind kind;
    int32_t job;
    td__job_state state;
    td__sched_why why;
    int attempt, failures;
    int64_t not_before_ms;
} td__sched_action;

/* The next action; false: there is none. */
bool td__sched_take(td__sched *s, td__sched_action *out);

/* Views. Position: queued jobs with a smaller id; -1: the job is not queued. */
int td__sched_position(const td__sched *s, int32_t id);
td__resources td__sched_used(const td__sched *s);
td__resources td__sched_capacity(const td__sched *s);
int td__sched_queued_of(const td__sched *s, const char *name);
int64_t td__sched_most_queued(const td__sched *s, const char *name); /* by quota; -1: no limit */
int td__sched_jobs(const td__sched *s);
typedef struct td__sched_user {
    const char *name;
    td__resources used;
    int queued;
    double past, weight; /* past usage: share of the machine times seconds, with decay */
} td__sched_user;
/* i = 0, 1, ...; false after the last. */
bool td__sched_user_at(const td__sched *s, int64_t now, int i, td__sched_user *out);

/* All invariants, for tests: NULL, or what is wrong. */
const char *td__sched_check(const td__sched *s);

#endif
