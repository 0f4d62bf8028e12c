/* cluster_impl.h -- the inside of trackers over other systems: groups, calls on threads, output. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_CLUSTER_IMPL_H
#define TD_SERVICE_TRACK_CLUSTER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "rpc/loop.h"
#include "service/track/cluster.h"

typedef struct td__cluster td__cluster;
typedef struct td__cluster_group td__cluster_group;
typedef struct td__follower td__follower;
typedef struct td__publication td__publication;

typedef enum td__call_kind {
    TD_CALL_START,
    TD_CALL_LOOK,
    TD_CALL_SIGNAL,
    TD_CALL_OUTPUT,  /* fetch a member's output into its file */
    TD_CALL_METRICS, /* bring what has come from where members write */
    TD_CALL_TIDY,
    TD_CALL_FORGET,
} td__call_kind;

typedef enum td__fetch_why {
    TD_FETCH_SHOW,   /* somebody wants to see it */
    TD_FETCH_LAST,   /* the group is over: EXITED waits for it */
    TD_FETCH_REBASE, /* the member is about to be replaced by one whose output begins anew */
} td__fetch_why;

/* What a thread hands to the loop thread. */
typedef struct td__mail {
    void (*run)(void *arg);
    void *arg;
    struct td__mail *next;
} td__mail;

/* One call of the ops. Made and ended on the loop thread, carried out on a worker. */
typedef struct td__call {
    td__call_kind kind;
    td__cluster *c;
    td__cluster_group *g;  /* NULL: of FORGET for a group that is not known any more */
    char token[TD__TOKEN]; /* of FORGET */
    int member;            /* of SIGNAL, OUTPUT */
    td__track_signal what; /* of SIGNAL */
    td__log_sink sink;     /* of FETCH_SHOW */
    uint64_t from;         /* of FETCH_SHOW */
    td__fetch_why why;     /* of OUTPUT */
    bool dropped;          /* the group is forgotten: it ends with this call */
    td__seen *seen;        /* of LOOK: result */
    td_status st;          /* result */
    char text[1024];       /* of the failure */
    td__mail done;
    struct td__call *next;  /* in the workers' queue */
    struct td__call *after; /* of the same group: begins when this one has ended */
} td__call;

struct td__cluster_group {
    td__cluster *c;
    td__launch *l;
    td__cluster_group *next;
    td__call *calls; /* in order; the first is under way */
    td__timer look, grace;
    td__seen *seen;      /* of the last LOOK */
    uint64_t *log_base;  /* of each member: bytes of its file that earlier incarnations wrote */
    bool *restarting;    /* of each member: RESTART was asked for, and not carried out yet */
    int restarts;        /* of members, so far */
    bool reserved;       /* reserve() was called, and not release() */
    bool adopting;       /* the answer to adopt() is due */
    bool started;        /* STARTED was said */
    bool ending;         /* was told to stop, or a member failed: members that vanish are over */
    bool signalled;      /* by the service: what follows is no failure of its own */
    bool unreachable;    /* TROUBLE was said of it */
    bool start_again;    /* START met an outage, and is tried again */
    bool pending;        /* PENDING was said last, and not PLACED */
    uint64_t pending_ms; /* between looks meanwhile */
    bool over;           /* EXITED, FAILED or UNKNOWN was said */
    int failed_member;   /* -1: none */
    int exit_status;
    td__exit_class exit_class;
    char text[1024];
    int fetching;                 /* OUTPUT and TIDY calls that EXITED waits for */
    int fetch_tries;              /* rounds of them that met an outage */
    bool cut_off;                 /* this round did */
    bool unsaved;                 /* output of a member could not be fetched */
    td__publication *publication; /* of its results, which EXITED waits for; NULL: none */
    td__timer metrics;
    uint64_t metrics_nbytes; /* that were told */
    bool metrics_known;      /* the job's directory has the beginning of what members write
                                elsewhere; of the group's calls, one after the other */
};

enum { TD__LANES = TD_CALL_FORGET + 1, TD__LANE_WORKERS = 16 };

/* Calls of each kind have threads of their own: an image that is pulled, or a host that does not
 * answer, delays no signal to another group and no look at it. */
typedef struct td__lane {
    td__cluster *c;
    pthread_cond_t more; /* in the queue: for one worker */
    td__call *queue, **queue_end;
    pthread_t workers[TD__LANE_WORKERS]; /* started when there is work for them */
    int n_workers, n_idle, n_waiting;    /* waiting: calls in the queue */
} td__lane;

struct td__cluster {
    td__tracker base;
    const td__cluster_ops *ops;
    void *system; /* of ops */
    td__cluster_group *groups;
    td__follower *followers;
    td__call *forgetting;                /* FORGETs that have no answer yet, linked by `after` */
    struct td__work_threads *publishers; /* NULL: none was needed yet */
    td__publication *publications;
    bool closing;
    /* What threads have handed over: a descriptor of its own instead of the loop's tasks, so that
     * nothing is left in the loop when the tracker is destroyed. */
    pthread_mutex_t mail_lock; /* mail, mail_end */
    td__mail *mail, **mail_end;
    td__watch mailed; /* an eventfd */
    /* Workers. */
    pthread_mutex_t lock;  /* queue and stop */
    pthread_cond_t rested; /* for the watcher, between two streams */
    td__lane lanes[TD__LANES];
    bool stop;
    pthread_t watcher;
    bool watching;
};

/* cluster_work.c: threads. */
void td__cluster_post(td__cluster *c, td__mail *m); /* from any thread */
void td__cluster_read_mail(td__cluster *c);         /* on the loop thread */
void td__cluster_await_mail(td__cluster *c);        /* until there is some, or a moment passes */
TD_NODISCARD td_status td__cluster_threads_start(td__cluster *c);
void td__cluster_threads_stop(td__cluster *c);
/* To the end of the group's calls. */
void td__cluster_push(td__cluster_group *g, td__call *call);
void td__cluster_queue(td__cluster *c, td__call *call);
td__call *td__cluster_call(td__cluster_group *g, td__call_kind kind);

/* cluster_groups.c: on the loop thread. */
void td__cluster_ended(void *arg); /* a call */
void td__cluster_look_soon(td__cluster_group *g);
/* START or LOOK, after what is to be reserved. false: out of memory. */
bool td__cluster_begin(td__cluster_group *g, td__call_kind kind);
void td__cluster_start_again(td__cluster_group *g); /* after an outage */
/* A signal; KILL follows STOP after the grace time. */
void td__cluster_send(td__cluster_group *g, int member, td__track_signal what);
void td__cluster_say(td__cluster_group *g, td__track_event_kind kind, int member, const char *text);
td__cluster_group *td__cluster_find(td__cluster *c, const char *token);
void td__cluster_over(td__cluster_group *g, td__track_event_kind kind);
void td__cluster_drop(td__cluster_group *g);
void td__cluster_empty_queue(td__cluster *c);

/* cluster_logs.c */
void td__cluster_log_path(const char *dir, const char *token, int member, char *out, size_t nbytes);
uint64_t td__cluster_log_bytes(const char *path);
/* Fetch what the file does not have yet; on a worker or follower thread. grown: may be NULL. */
TD_NODISCARD td_status td__cluster_fetch(td__cluster *c, const td__launch *l, int member,
                                         uint64_t base, bool follow, void (*grown)(void *),
                                         void *arg);
/* Answer from the file, from an offset. */
void td__cluster_show(const char *path, uint64_t from, const td__log_sink *sink, td_status st);
void td__cluster_follow(td__cluster_group *g, int member);
void td__cluster_followers_stop(td__cluster *c, const td__cluster_group *g); /* NULL: all */

/* cluster_results.c, for ops->shared_dir. Tells of new metrics, again and again until it is over.
 */
void td__cluster_metrics_look(td__cluster_group *g);
/* Where members write elsewhere: what is new; on a worker. */
void td__cluster_bring_metrics(td__cluster_group *g);
/* The results of a group that has succeeded: true: EXITED follows when they are published. */
bool td__cluster_publish(td__cluster_group *g);
/* What ended members do not need goes, then the group is over. */
void td__cluster_tidy(td__cluster_group *g);
void td__cluster_publish_stop(td__cluster_group *g);
void td__cluster_publish_end(td__cluster *c); /* all of them */

#endif
