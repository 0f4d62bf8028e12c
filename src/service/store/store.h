/* store.h -- the service's memory: jobs, their events, artifacts, quotas and sweeps in one SQLite
 * file (WAL).
 *
 * Thread    One: the loop thread.
 * Commits   Writes of one turn of the loop are one transaction: the first one begins it,
 *           td__job_store_commit ends it. What was written is read by later calls at once, but
 *           nothing may be answered to a client, and no tracker be asked, before the commit.
 * Failure   A failed write poisons the transaction: commit rolls it back and returns the error.
 *           The owner then stops the service, since its memory no longer agrees with the file.
 * Format    PRAGMA user_version is the number of the schema; older ones are brought up to date,
 *           newer ones are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_STORE_STORE_H
#define TD_SERVICE_STORE_STORE_H

#include "base/point.h"
#include "service/job.h"

typedef struct td__job_store td__job_store;

typedef struct td__job_store_opts {
    bool full_sync;     /* fsync at each commit: survives a loss of power, not only a kill */
    td__points *points; /* (optional) told before each write and commit, for tests */
} td__job_store_opts;

TD_NODISCARD td_status td__job_store_open(const char *path, const td__job_store_opts *o,
                                          td__job_store **out);
void td__job_store_close(td__job_store *s);       /* rolls back what was not committed */
bool td__job_store_dirty(const td__job_store *s); /* is there something to commit? */
TD_NODISCARD td_status td__job_store_commit(td__job_store *s);

/* Jobs. insert gives the id. */
TD_NODISCARD td_status td__job_store_insert(td__job_store *s, td__job_record *r,
                                            const char *idempotency_key);
TD_NODISCARD td_status td__job_store_update(td__job_store *s, const td__job_record *r);
TD_NODISCARD td_status td__job_store_delete(td__job_store *s, int32_t id);
/* NULL in *out: there is none. The caller owns it. */
TD_NODISCARD td_status td__job_store_get(td__job_store *s, int32_t id, td__job_record **out);
/* The job that was submitted with this key by this user; 0: none. */
TD_NODISCARD td_status td__job_store_by_key(td__job_store *s, const char *user, const char *key,
                                            int32_t *id);

/* Empty texts and -1: any. */
typedef struct td__job_filter {
    unsigned states;                     /* set of 1u << td__job_state; 0: all */
    const char *user, *name, *algorithm; /* NULL: any; name may end with * */
    td__pairs labels;                    /* all of them */
    int64_t sweep;                       /* 0: any */
    int32_t before;                      /* ids below this only, newest first; 0: from the newest */
    int limit;                           /* at most; 0: all */
} td__job_filter;

/* Records are the store's, for the time of the call; a false from `each` ends the walk. */
typedef bool (*td__job_each)(void *arg, const td__job_record *r);
TD_NODISCARD td_status td__job_store_list(td__job_store *s, const td__job_filter *f,
                                          td__job_each each, void *arg);
/* The same, but a record that `known` has is taken from there instead of being read. */
TD_NODISCARD td_status td__job_store_list_known(td__job_store *s, const td__job_filter *f,
                                                const td__job_record *(*known)(void *arg,
                                                                               int32_t id),
                                                void *known_arg, td__job_each each, void *arg);
/* Jobs that ended before a time, the oldest first. */
TD_NODISCARD td_status td__job_store_list_ended(td__job_store *s, int64_t before_ms, int limit,
                                                td__job_each each, void *arg);
TD_NODISCARD td_status td__job_store_count(td__job_store *s, int64_t by_state[TD_JOB_STATE_COUNT]);

/* Events: what happened to jobs, numbered without gaps over all of them. */
#define TD_EVENT_KIND_MAP(X)                                                 \
    X(STATE, "state")       /* the job's state changed; text: its message */ \
    X(ATTEMPT, "attempt")   /* another launch begins; text: its token */     \
    X(MEMBER, "member")     /* a member was restarted */                     \
    X(NOTE, "note")         /* trouble that may pass, requests of users */   \
    X(ARTIFACT, "artifact") /* text: its name */                             \
    X(LOG, "log")           /* not stored: a member has written more */      \
    X(METRICS, "metrics")   /* not stored: there are more metrics */

typedef enum td__event_kind {
#define X(id, name) TD_EVENT_##id,
    TD_EVENT_KIND_MAP(X)
#undef X
        TD_EVENT_KIND_COUNT
} td__event_kind;

const char *td__event_kind_name(td__event_kind k);

typedef struct td__job_event {
    int64_t seq; /* 0: not stored */
    int32_t job;
    td__event_kind kind;
    td__job_state state;
    int member;
    int64_t time_ms;
    const char *text;
} td__job_event;

typedef bool (*td__event_each)(void *arg, const td__job_event *e);
TD_NODISCARD td_status td__job_store_event(td__job_store *s, td__job_event *e); /* sets seq */
/* After seq `after`, of one job or of all (0), oldest first, at most `limit`. */
TD_NODISCARD td_status td__job_store_events(td__job_store *s, int32_t job, int64_t after, int limit,
                                            td__event_each each, void *arg);
int64_t td__job_store_last_seq(const td__job_store *s);

/* Artifacts of a job: files that are whole, with their sha256. */
typedef struct td__artifact {
    int32_t job;
    const char *name; /* relative, within the job's artifacts */
    int64_t nbytes;
    char sha256[65];
    int64_t time_ms;
} td__artifact;

typedef bool (*td__artifact_each)(void *arg, const td__artifact *a);
TD_NODISCARD td_status td__job_store_artifact(td__job_store *s, const td__artifact *a);
TD_NODISCARD td_status td__job_store_artifacts(td__job_store *s, int32_t job,
                                               td__artifact_each each, void *arg);

/* Quotas: what a user may have at once. -1: no limit. */
typedef struct td__quota {
    const char *user; /* "*": whoever has none of their own */
    int64_t slots, gpus, memory_mb, queued;
    double weight; /* share of the machine beside others; 1 */
} td__quota;

typedef bool (*td__quota_each)(void *arg, const td__quota *q);
TD_NODISCARD td_status td__job_store_quota(td__job_store *s, const td__quota *q);
/* *found: there was one. */
TD_NODISCARD td_status td__job_store_delete_quota(td__job_store *s, const char *user, bool *found);
TD_NODISCARD td_status td__job_store_quotas(td__job_store *s, td__quota_each each, void *arg);

/* Small documents of other parts of the service, by (kind, key): sweeps, data sets, runs, model
 * versions. The value is theirs, usually JSON. *value: owned by the caller, NULL: none. */
TD_NODISCARD td_status td__job_store_put(td__job_store *s, const char *kind, const char *key,
                                         const char *value);
TD_NODISCARD td_status td__job_store_take(td__job_store *s, const char *kind, const char *key);
TD_NODISCARD td_status td__job_store_value(td__job_store *s, const char *kind, const char *key,
                                           char **value);
typedef bool (*td__value_each)(void *arg, const char *key, const char *value);
TD_NODISCARD td_status td__job_store_values(td__job_store *s, const char *kind, td__value_each each,
                                            void *arg);
/* Of those alone whose keys begin with `prefix`, ASCII and not empty. */
TD_NODISCARD td_status td__job_store_values_below(td__job_store *s, const char *kind,
                                                  const char *prefix, td__value_each each,
                                                  void *arg);
/* 1, 2, ... for each name; never the same twice. */
TD_NODISCARD td_status td__job_store_number(td__job_store *s, const char *name, int64_t *out);

#endif
