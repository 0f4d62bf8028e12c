/* sched_impl.h -- the inside of the scheduler, shared by its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SCHED_SCHED_IMPL_H
#define TD_SERVICE_SCHED_SCHED_IMPL_H

#include "service/sched/order.h"
#include "service/sched/sched.h"

/* Where a job of the state QUEUED stands. */
typedef enum place { PLACE_NONE, PLACE_ELIGIBLE, PLACE_WAITING, PLACE_HELD } place;

typedef struct user user;
typedef struct kind kind;
typedef struct job job;

struct job {
    td__sched_job j; /* j.user is not used: owner->name */
    user *owner;
    kind *kind;
    place place;
    td__sched_why stop;  /* why it is being stopped; NONE: it is not */
    int64_t eligible_ms; /* since when */
    int64_t timer_ms;
    int64_t placed_ms; /* PENDING: since when it waits no longer; 0: it waits */
    job *hash_next;
    td__order_node in_queue;  /* eligible jobs of its kind */
    td__order_node in_ages;   /* the same by eligible_ms */
    td__order_node in_all;    /* all of the state QUEUED, by id */
    td__order_node in_timers; /* by timer_ms */
    td__order_node in_active; /* launching, pending, running: those to preempt first come first */
};

/* Jobs of a user that ask for the same: what one of them waits for, all do. */
struct kind {
    user *owner;
    td__resources need, elsewhere;
    bool queues;
    int64_t time_limit_ms;
    int n_jobs;              /* of any state */
    td__order queue;         /* eligible ones: by priority, then id */
    td__order ages;          /* eligible ones: by eligible_ms */
    td__order_node in_queue; /* owner's kinds with eligible jobs, by the first */
    td__order_node in_kinds; /* owner's kinds */
    kind *aside;             /* blocked in this pass */
};

struct user {
    char *name;
    td__resources most; /* quota; -1: no limit */
    int64_t most_queued;
    double weight;
    bool own_quota;
    td__resources used;
    double share; /* of the resource of which it has most, by weight */
    int queued;
    double past;             /* usage, scaled as of usage_origin_ms */
    td__order kinds;         /* by what they ask for */
    td__order queue;         /* kinds with eligible jobs: by the first, by priority, then id */
    int n_aside;             /* kinds in this pass */
    bool cut;                /* the last pass did not look at all of them */
    td__order_node in_users; /* of those with eligible jobs */
    user *hash_next;
};

struct td__sched {
    td__sched_opts o;
    td__resources used;
    int launching;
    int elsewhere;    /* launching or pending, of those that may become pending */
    td__order users;  /* with eligible jobs: whose head comes first */
    td__order queued; /* by id */
    td__order timers;
    td__order active;
    job **jobs; /* hash by id */
    size_t n_job_buckets;
    int n_jobs;
    user **user_table; /* hash by name */
    size_t n_user_buckets;
    int n_users;
    user **by_number; /* (n_users) */
    td__resources default_most;
    int64_t default_queued;
    double default_weight;
    int64_t usage_origin_ms; /* past usage is scaled as of this time */
    bool changed;            /* a pass may launch something */
    int64_t pass_ms;         /* the last pass: when, */
    const job *reserved;     /* what for (NULL: nothing), */
    int64_t reserved_ms;     /* and when that starts at the latest */
    job **scratch;           /* (room for all jobs) */
    size_t room_scratch;
    td__sched_action *actions; /* ring */
    size_t first_action, n_actions, room_actions;
};

/* users.c */
bool td__sched_users_before(const td__order_node *a, const td__order_node *b);
TD_NODISCARD td_status td__sched_user_get(td__sched *s, const char *name, user **out);
void td__sched_users_fini(td__sched *s);
/* Use or give back a job's resources; seconds of use are past usage of its user. */
void td__sched_use(td__sched *s, job *j);
void td__sched_give_back(td__sched *s, job *j, int64_t now);
void td__sched_enqueue(td__sched *s, job *j);
void td__sched_dequeue(td__sched *s, job *j);
td__resources td__sched_takes(const job *j); /* of the capacity */
bool td__sched_within(td__resources used, td__resources need, td__resources most);
/* A blocked kind leaves the order until td__sched_return. */
void td__sched_set_aside(td__sched *s, kind *k);
void td__sched_return(td__sched *s, kind *k);

/* kinds.c */
bool td__sched_kinds_before(const td__order_node *a, const td__order_node *b);
bool td__sched_kinds_by_key(const td__order_node *a, const td__order_node *b);
TD_NODISCARD td_status td__sched_kind_retain(user *u, const td__sched_job *j, kind **out);
void td__sched_kind_release(kind *k);
void td__sched_kind_add(kind *k, job *j); /* j is eligible; no longer */
void td__sched_kind_remove(kind *k, job *j);
const job *td__sched_kind_head(const kind *k);
int64_t td__sched_kind_since(const kind *k); /* how long one of them is eligible */

/* pass.c */
void td__sched_pass(td__sched *s, int64_t now);
bool td__sched_may_launch(const td__sched *s, const job *j);

/* sched.c */
void td__sched_act(td__sched *s, td__sched_action a);
void td__sched_launch(td__sched *s, job *j, int64_t now);
void td__sched_stop(td__sched *s, job *j, td__sched_why why);

#endif
