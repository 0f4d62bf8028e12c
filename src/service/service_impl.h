/* service_impl.h -- the inside of the service, shared by its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SERVICE_IMPL_H
#define TD_SERVICE_SERVICE_IMPL_H

#include "net/socket.h"
#include "rpc/loop.h"
#include "rpc/work.h"
#include "service/config.h"
#include "service/sched/sched.h"
#include "service/service.h"
#include "service/track/gpus.h"

#define TD__DOC_OBJECT "object" /* by "/buckets/BUCKET/KEY": the user who put it there */

enum { TD__MAX_TRACKERS = 16, TD__DATA_DIR = 3000, TD__JOB_PATH = 4096 };

/* A job that is not in a final state. */
typedef struct td__active td__active;
struct td__active {
    td__job_record *r; /* owned */
    td__tracker *tracker;
    td__active *hash_next;
    /* What trackers are to be asked after the commit. */
    bool start, adopt, stop, queued_op;
    bool restored;    /* by a restart: its attempt may run already, whatever start() says */
    bool asked_again; /* signals that came meanwhile were lost */
    bool again;       /* start or adopt it again when again_ms of the service has come */
    td__active *op_next;
    bool data_wanted;      /* held until its data set is ready */
    int64_t data_again_ms; /* when to ask for it again; 0: an answer is awaited */
};

struct td__subscription {
    td__service *service;
    int32_t job;   /* 0: all */
    int64_t after; /* the last seq that was handed over */
    bool replay;   /* stored events are handed over first */
    bool gone;     /* unsubscribed; freed when nobody walks the list */
    void (*fn)(void *arg, const td__job_event *e);
    void *arg;
    td__subscription *next;
};

/* An event that is to be told after the commit. */
typedef struct td__told td__told;
struct td__told {
    td__job_event e; /* e.text is owned */
    td__told *next;
};

enum { TD__RECENT = 256 };

struct td__service {
    td__service_opts o;
    const td__service_config *config;
    char dir[TD__DATA_DIR]; /* data.dir, absolute */
    uint8_t key[32];        /* of td__service_key */
    bool has_key;
    char grpc[TD_ADDRESS_BYTES]; /* where it listens */
    char http[TD_ADDRESS_BYTES]; /* "": nowhere */
    bool http_tls;
    td__job_store *store;
    td__sched *sched;
    struct {
        const td__tracker_ops *ops;
        td__tracker *tracker;
    } trackers[TD__MAX_TRACKERS]; /* created at first use */
    td__gpus gpus;                /* of this host: of all trackers together */
    td__active **active;          /* hash by id */
    size_t n_buckets;
    int n_active;
    td__active *ops, **ops_end;
    td__turn_hook commit_hook;
    td__timer timer;
    td__subscription *subscriptions;
    int walking; /* depth of walks over subscriptions */
    td__told *told, **told_end;
    td__work_threads *cleaners; /* remove directories; NULL: none was to be removed yet */
    int32_t *removed;           /* jobs deleted in this turn, whose files go after the commit */
    size_t n_removed, room_removed;
    td__job_record
        *recent[TD__RECENT]; /* ended jobs that were asked for, by id; they do not change */
    td__job_record **kept;   /* records that answers of this turn point to */
    size_t n_kept, room_kept;
    td__dataset_source data;
    int64_t again_ms;      /* when trackers are asked again for what they could not say; 0: never */
    int64_t forget_ms;     /* when ended attempts are looked at; INT64_MAX: there are none */
    int64_t forgot_ms;     /* when they were last */
    int64_t data_wake_ms;  /* when to ask for data sets; INT64_MAX: nobody wants one */
    bool begun;            /* the loop has turned once */
    bool failed;           /* a commit did */
    int64_t next_sweep_ms; /* of old jobs */
    td__service_stats stats;
};

/* service.c */
/* What all members of a job need, and of that what its tracker's own system hands out, so that it
 * is not of the capacity: where no key says how much of it there is. */
td__resources td__service_need(const td__job_spec *p);
td__resources td__service_elsewhere(const td__service *s, const td__job_spec *p);
bool td__service_is_starting(const td__job_record *r); /* LAUNCHING, PENDING */
td__active *td__active_find(const td__service *s, int32_t job);
TD_NODISCARD td_status td__active_add(td__service *s, td__job_record *r, td__active **out);
void td__active_remove(td__service *s, td__active *a);
/* Keep a record until the turn's end. */
void td__service_keep(td__service *s, td__job_record *r);
/* Another record, or NULL, in the place of this id among the recent ones. */
void td__service_set_recent(td__service *s, int32_t job, td__job_record *r);
/* Something changed that the COMMIT phase has to follow up. */
void td__service_touch(td__service *s);
/* Write an event down; it is told after the commit. Failures are kept by the store. */
void td__service_say(td__service *s, const td__job_record *r, td__event_kind kind, int member,
                     const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Failures of the store are looked at in the commit. */
void td__service_write(td__service *s, const td__job_record *r);

/* service_run.c */
void td__service_follow(td__service *s); /* the scheduler's actions */
void td__service_ask(td__service *s);    /* trackers, after the commit */
void td__service_ask_again(td__service *s, int64_t now);
TD_NODISCARD td_status td__service_tracker(td__service *s, const char *name, td__tracker **out);
void td__service_track_event(void *arg, const td__track_event *e);
TD_NODISCARD td_status td__service_schedule(td__service *s, td__active *a);

/* service_ended.c: what attempts leave where they ran, until it is removed. `unsaved`: with output
 * that is nowhere else. */
void td__service_attempt_ended(td__service *s, const td__job_record *r, bool unsaved);
/* The attempts of a job that is being deleted; token: the last one's. */
void td__service_forget_job(td__service *s, int32_t job, const char *tracker, const char *token);
void td__service_forget_ended(td__service *s, int64_t now); /* after the commit */
void td__service_forgotten(td__service *s, const char *token);

/* service_data.c */
void td__service_ask_data(td__service *s, int64_t now);
void td__service_want_data(td__service *s, td__active *a, int64_t at_ms);

/* service_watch.c */
void td__service_tell(td__service *s); /* what is to be told after the commit */
void td__service_tell_now(td__service *s, const td__job_event *e);

/* service_files.c */
TD_NODISCARD td_status td__service_make_dirs(td__service *s);
/* s->key: random, of data.dir/key (mode 0600), which is made at first use. */
TD_NODISCARD td_status td__service_key(td__service *s);
TD_NODISCARD td_status td__service_make_job_dir(td__service *s, int32_t job);
void td__service_remove_job_dir(td__service *s, int32_t job);
void td__service_collect_artifacts(td__service *s, const td__job_record *r);

/* A relative name whose parts stay below where it starts. */
bool td__service_good_name(const char *name);

/* service_store.c: by which a job of that tracker reaches HTTP; false: it does not */
/* Do members of a job file on that tracker see data sets at the service's path? */
bool td__service_sees_data(const td__service *s, const td__tracker_ops *ops);
bool td__service_http(const td__service *s, const char *tracker, char url[TD_ADDRESS_BYTES + 16]);
enum { TD__JOB_TOKEN = TD__TOKEN + 72 };
TD_NODISCARD td_status td__service_job_token(td__service *s, const td__job_record *r,
                                             char token[TD__JOB_TOKEN]);

/* service_jobs.c: the job, if the caller may change it; delete finished jobs by age */
TD_NODISCARD td__answer td__service_find_own(td__service *s, const td__caller *who, int32_t job,
                                             const td__job_record **out);
void td__service_delete_old(td__service *s, int64_t now);

/* check_spec.c: is this a job that the caller may submit? */
TD_NODISCARD td__answer td__service_check_spec(td__service *s, const td__caller *who,
                                               td__job_spec *spec, bool strict);

#endif
