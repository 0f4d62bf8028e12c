/* service.h -- the training service itself: what gRPC and HTTP handlers call.
 *
 * Thread    All of it runs on the loop thread (rpc/loop.h): no locks. Nothing here blocks.
 * Commit    Changes of one turn of the loop are one transaction, made durable in the loop's phase
 *           COMMIT. Answers that are queued in EVENTS and sent in SEND thus never precede it. If a
 *           commit fails the loop is stopped and nothing of that turn may be answered
 *           (td__service_failed).
 * Errors    A td__answer (answer.h) and one line of text, td_last_error() where a call returns it.
 * Who       Every call has the user on whose behalf it is made; admins act on jobs of others. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SERVICE_H
#define TD_SERVICE_SERVICE_H

#include "base/text.h"
#include "service/answer.h"
#include "service/job.h"
#include "service/store/store.h"
#include "service/track/tracker.h"

typedef struct td__service td__service;

typedef struct td__service_opts {
    td__loop *loop;
    const td__service_config *config;
    const char *self; /* path of the tandem program, for supervisors */
    td__points
        *points; /* (optional) told before each call of the store and of trackers, for tests */
} td__service_opts;

/* Opens the store under data.dir, adopts what still runs, starts scheduling with the loop's next
 * turn. Everything in opts is borrowed for the service's life. */
TD_NODISCARD td_status td__service_create(const td__service_opts *o, td__service **out);
/* Commits, closes the store, lets trackers go. Jobs go on. NULL is allowed. */
void td__service_destroy(td__service *s);

/* gRPC listens there, with the port that was picked: jobs are told. Before the loop turns. */
void td__service_listens(td__service *s, const char *grpc);
/* The same of HTTP. */
void td__service_listens_http(td__service *s, const char *http, bool tls);
td__loop *td__service_loop(const td__service *s);
const char *td__service_self(const td__service *s); /* path of the tandem program */
const td__service_config *td__service_config_of(const td__service *s);
td__job_store *td__service_store(td__service *s); /* for td__job_store_put and its like */
int64_t td__service_now_ms(const td__service *s);

typedef struct td__caller {
    const char *user; /* "": nobody in particular */
    bool admin;
} td__caller;

/* Did a commit fail? The service has stopped the loop: send no answers, leave. */
bool td__service_failed(const td__service *s);

/* Jobs. The spec is taken, also when it is refused. A key that this user gave before answers with
 * the job of then. strict: the book's metadata must be complete, with its error texts. */
TD_NODISCARD td__answer td__service_submit(td__service *s, const td__caller *who,
                                           td__job_spec *spec_take, const char *idempotency_key,
                                           bool strict, int32_t *job);
TD_NODISCARD td__answer td__service_cancel(td__service *s, const td__caller *who, int32_t job,
                                           const char *why);
/* A queued job waits; a running one is stopped at a checkpoint and then waits. */
TD_NODISCARD td__answer td__service_pause(td__service *s, const td__caller *who, int32_t job);
TD_NODISCARD td__answer td__service_resume(td__service *s, const td__caller *who, int32_t job);
/* Only jobs in a final state, with files and artifacts. */
TD_NODISCARD td__answer td__service_delete(td__service *s, const td__caller *who, int32_t job);
/* Another job with the spec of this one. */
TD_NODISCARD td__answer td__service_retry(td__service *s, const td__caller *who, int32_t job,
                                          int32_t *another);

/* One job. NOT_FOUND "Job 7 doesn't exist". The record is valid until the loop's next turn. */
TD_NODISCARD td__answer td__service_get(td__service *s, int32_t job, const td__job_record **out);
/* Jobs that will be looked at before this one; 0 if it is not queued. */
int td__service_position(td__service *s, int32_t job);
/* The message of the book's GetTrainingStatus, into buf; returns buf. */
char *td__service_book_message(td__service *s, const td__job_record *r, char *buf, size_t nbytes);

/* A page of jobs, newest first. page_token: NULL or "" for the first, else what the last page
 * gave; next (TD__PAGE_TOKEN bytes) is "" after the last one. */
enum { TD__PAGE_TOKEN = 24, TD__PAGE_MOST = 10000 };
TD_NODISCARD td__answer td__service_list(td__service *s, const td__job_filter *f,
                                         const char *page_token, td__job_each each, void *arg,
                                         char *next);
/* "state=running,queued user=ann label.team=nlp name=mnist*" as a filter, in the arena. */
TD_NODISCARD td__answer td__job_filter_parse(td__arena *a, const char *text, td__job_filter *out);

/* Watching. fn is called on the loop thread for stored events after `after` (-1: only new ones) and
 * then for new ones as they are committed; LOG and METRICS events as they come. job 0: all. A
 * subscriber may unsubscribe, also itself, within fn, and does so before td__service_destroy. */
typedef struct td__subscription td__subscription;
TD_NODISCARD td_status td__service_subscribe(td__service *s, int32_t job, int64_t after,
                                             void (*fn)(void *arg, const td__job_event *e),
                                             void *arg, td__subscription **out);
void td__service_unsubscribe(td__subscription *u); /* NULL is allowed */

/* Output of a member of the job's attempt (0: the last), from a byte offset, what there is now;
 * following is: again after a LOG event. */
void td__service_logs(td__service *s, int32_t job, int attempt, int member, uint64_t from,
                      const td__log_sink *sink);
/* The job's metrics.jsonl, likewise: a line of JSON for each step, validation and checkpoint. */
void td__service_metrics(td__service *s, int32_t job, uint64_t from, const td__log_sink *sink);
uint64_t td__service_metrics_bytes(td__service *s, int32_t job); /* its size now */
/* Its last bytes, at most nbytes of them. */
size_t td__service_metrics_tail(td__service *s, int32_t job, char *out, size_t nbytes);
/* One line of JSON to that file, from clients that report over the wire about a job of theirs that
 * has not ended. */
TD_NODISCARD td__answer td__service_metric_add(td__service *s, const td__caller *who, int32_t job,
                                               const char *json);

/* Lines of it, from an offset: what lay there is replaced where it differs, and what was behind it
 * goes. STATE: the file is shorter than that. */
TD_NODISCARD td__answer td__service_metrics_put(td__service *s, const td__caller *who, int32_t job,
                                                uint64_t from, const char *lines, size_t nbytes);

/* Artifacts of a job. open: a descriptor for reading, the caller's, and the file's size. */
TD_NODISCARD td__answer td__service_artifacts(td__service *s, int32_t job, td__artifact_each each,
                                              void *arg);
TD_NODISCARD td__answer td__service_artifact_open(td__service *s, int32_t job, const char *name,
                                                  int *fd, uint64_t *nbytes);
/* Checkpoints that a job on another machine brings and fetches: files of its directory. */
TD_NODISCARD td__answer td__service_checkpoint_open(td__service *s, int32_t job, const char *name,
                                                    int *fd, uint64_t *nbytes);
TD_NODISCARD td__answer td__service_checkpoint_place(td__service *s, const td__caller *who,
                                                     int32_t job, const char *name, char *dir,
                                                     size_t nbytes);
TD_NODISCARD td__answer td__service_checkpoint_remove(td__service *s, const td__caller *who,
                                                      int32_t job, const char *name);
/* The job that has this token (TANDEM_TOKEN), while its attempt lasts; NULL: it is none. */
const td__job_record *td__service_job_of_token(td__service *s, const char *token);
/* A file that is brought from outside: the directory below which it is to lie
 * (td__file_place_below), if this caller may add it; then, when it lies there, its record. */
TD_NODISCARD td__answer td__service_artifact_place(td__service *s, const td__caller *who,
                                                   int32_t job, const char *name, char *dir,
                                                   size_t nbytes);
TD_NODISCARD td__answer td__service_artifact_add(td__service *s, int32_t job, const char *name,
                                                 uint64_t nbytes, const char *sha256);
/* data.dir/jobs/ID, with work/, artifacts/, logs. */
char *td__service_job_dir(const td__service *s, int32_t job, char *path, size_t nbytes);
/* Buckets are folders of data.dir/buckets. INVALID for names that would leave it. An object belongs
 * to who put it there: place() is DENIED to others but admins, where it exists, and put() notes its
 * owner. */
TD_NODISCARD td__answer td__service_bucket_path(const td__service *s, const char *bucket,
                                                const char *key, char *path, size_t nbytes);
TD_NODISCARD td__answer td__service_object_open(td__service *s, const char *bucket, const char *key,
                                                int *fd, uint64_t *nbytes);
TD_NODISCARD td__answer td__service_object_place(td__service *s, const td__caller *who,
                                                 const char *bucket, const char *key, char *dir,
                                                 size_t nbytes);
TD_NODISCARD td__answer td__service_object_put(td__service *s, const char *user, const char *bucket,
                                               const char *key);

/* Data sets: who knows where a version of a data set lies. Without one, data sets of jobs are not
 * looked at. fetch() answers by td__service_data, at once or later, on the loop thread. */
typedef struct td__dataset_source {
    void (*fetch)(void *arg, int32_t job, const char *dataset_id, const char *version_hash);
    void *arg;
} td__dataset_source;
void td__service_set_data_source(td__service *s, const td__dataset_source *d);
typedef enum td__data_state {
    TD_DATA_READY,
    TD_DATA_RUNNING, /* asked again after a while; other jobs overtake this one */
    TD_DATA_FAILED   /* the job fails; text: "NOT_FOUND: Dataset 1 not found" */
} td__data_state;
void td__service_data(td__service *s, int32_t job, td__data_state state, const char *bucket,
                      const char *path, const char *text);

/* Quotas. */
TD_NODISCARD td__answer td__service_set_quota(td__service *s, const td__caller *who,
                                              const td__quota *q);
/* What the configuration has for the user counts again, or what "*" has. */
TD_NODISCARD td__answer td__service_remove_quota(td__service *s, const td__caller *who,
                                                 const char *user);
TD_NODISCARD td_status td__service_quotas(td__service *s, td__quota_each each, void *arg);

/* For the dashboard and for Prometheus. */
typedef struct td__service_stats {
    int64_t jobs[TD_JOB_STATE_COUNT]; /* that are in the store */
    int64_t slots, slots_used, gpus, gpus_used, memory_mb, memory_mb_used;
    int64_t submitted, launched, retried, preempted; /* since the start */
    int64_t finished[TD_JOB_STATE_COUNT];            /* since the start, by final state */
    int64_t commits;
    double commit_seconds, wait_seconds; /* sums: of commits; from submission to launch */
    int64_t start_ms;
} td__service_stats;
void td__service_get_stats(td__service *s, td__service_stats *out);
/* A member of a group that runs or is being started. */
typedef struct td__worker {
    const td__job_record *job;
    const char *tracker;
    int member, rank, ranks; /* rank: the first of its processes */
    const td__track_member *seen;
    double step_seconds, wait_seconds; /* of its ranks in the steps that the run reported last */
} td__worker;
/* Of one job, or of all (0), by job and member. NOT_FOUND: there is no such job. */
TD_NODISCARD td__answer td__service_workers(td__service *s, int32_t job,
                                            bool (*each)(void *arg, const td__worker *w),
                                            void *arg);
/* Users with their share: for each, what they use now and their usage with decay. */
typedef struct td__user_usage {
    const char *user;
    int64_t slots, gpus, memory_mb, queued;
    double usage, weight;
} td__user_usage;
void td__service_users(td__service *s, bool (*each)(void *arg, const td__user_usage *u), void *arg);

#endif
