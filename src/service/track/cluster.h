/* cluster.h -- what trackers of groups in other systems share: Docker's engine, Kubernetes, Slurm,
 * hosts behind ssh. Such a tracker is a td__cluster_ops: blocking calls to the other system, which
 * run on threads; this file's code makes a tracker (tracker.h) of it.
 *
 *   start -> START on a worker thread -> LOOK ... -> EXITED
 *                                          ^
 *              watch thread: "something of token T has changed", or a timer
 *
 * The state of a group is what LOOK sees, never what was seen before: so a restarted service, a
 * lost event and a group that somebody else changed are the same case.
 *
 *   all members run or have run     STARTED
 *   a member fails                  it alone is restarted, if the job allows it; else the others
 *                                   are stopped, and EXITED has the first failure
 *   a member is gone                as if it had failed, with class LOST
 *   all members have ended          their output is fetched, TIDY removes what ended members do not
 *                                   need, then EXITED
 *
 * Calls for one group run one after another, those for different groups at the same time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_CLUSTER_H
#define TD_SERVICE_TRACK_CLUSTER_H

#include "service/track/launch.h"

typedef enum td__seen_state {
    TD_SEEN_ABSENT,
    TD_SEEN_WAITING, /* created, not yet running */
    TD_SEEN_RUNNING,
    TD_SEEN_ENDED,
} td__seen_state;

typedef struct td__seen {
    td__seen_state state;
    int exit_status;           /* of ENDED; -1: unknown */
    td__exit_class exit_class; /* of ENDED; NONE: by exit_status */
    bool hopeless;             /* of WAITING: it will never run */
    bool queued;               /* of WAITING: in the queue of a system that lets groups wait */
    char host[128];            /* where it is; "": not known */
    char text[256];            /* why it waits or ended: "ImagePullBackOff: ...", "OOMKilled" */
} td__seen;

/* Receives output; false: no more is wanted. */
typedef bool (*td__cluster_sink)(void *user, const void *data, size_t nbytes);

/* Every function may block, is called on several threads at once, and ends early after stop(). */
typedef struct td__cluster_ops {
    TD_NODISCARD td_status (*open)(const td__tracker_config *c, void **out);
    void (*close)(void *s);
    /* Ends all calls under way; later ones fail too. */
    void (*stop)(void *s);
    /* On the loop thread, and before any other call for the group: what the service itself hands
     * out, places on hosts and GPUs, into l. adopt: what the group has, if it has any. TD_EPEER:
     * there is nothing free now, and it is asked again. Given back when the group is over. Both
     * NULL: the system hands out everything. */
    TD_NODISCARD td_status (*reserve)(void *s, td__launch *l, bool adopt);
    void (*release)(void *s, const char *token);
    /* All members, or none: after a failure nothing is left. What an earlier call with this token
     * has made is completed. */
    TD_NODISCARD td_status (*start)(void *s, const td__launch *l);
    TD_NODISCARD td_status (*look)(void *s, const td__launch *l, td__seen *members);
    /* TD_TRACK_STOP is SIGTERM alone: KILL follows after the job's grace time. */
    TD_NODISCARD td_status (*signal)(void *s, const td__launch *l, int member,
                                     td__track_signal what);
    /* Output of a member from its beginning; follow: until it ends. */
    TD_NODISCARD td_status (*output)(void *s, const td__launch *l, int member, bool follow,
                                     td__cluster_sink sink, void *user);
    /* All members have ended, and their output is kept: what they leave besides themselves goes, as
     * networks do. May be NULL; forget() does it too. */
    TD_NODISCARD td_status (*tidy)(void *s, const td__launch *l);
    TD_NODISCARD td_status (*forget)(void *s, const char *token);
    /* Calls `changed` when something of a group may be different; returns when the stream of events
     * ends, and is called again. NULL token: of any group. The function may be NULL: groups are
     * looked at every look_every_ms. */
    TD_NODISCARD td_status (*watch)(void *s, void (*changed)(void *user, const char *token),
                                    void *user);
    uint64_t look_every_ms; /* also without an event; 0: 30,000 */
    bool fresh_output;      /* the output of a restarted member begins anew */
    bool vanish;            /* members that are stopped are gone, and their output with them */
    bool shared_dir;        /* members write into the job's directory itself */
} td__cluster_ops;

/* The functions of a tracker over such an ops; TD_CLUSTER_TRACKER lists them for one. */
TD_NODISCARD td_status td__cluster_create(const td__cluster_ops *ops, const td__tracker_ops *self,
                                          const td__tracker_config *c, td__tracker **out);
void td__cluster_start(td__tracker *t, const td__group *g);
void td__cluster_signal(td__tracker *t, const char *token, int member, td__track_signal what);
void td__cluster_adopt(td__tracker *t, const td__group *g);
void td__cluster_logs(td__tracker *t, const char *token, const char *dir, int member, uint64_t from,
                      const td__log_sink *sink);
void td__cluster_members(td__tracker *t, const char *token, td__track_member *out, int n);
void td__cluster_forget(td__tracker *t, const char *token);
void td__cluster_destroy(td__tracker *t);

/* Its last arguments: other members of the td__tracker_ops, ".own_capacity = true". */
#define TD_CLUSTER_TRACKER(id, name_, help_, ops_, ...)                          \
    static td_status create_##id(const td__tracker_config *c, td__tracker **out) \
    {                                                                            \
        return td__cluster_create(&(ops_), &td__tracker_##id, c, out);           \
    }                                                                            \
    const td__tracker_ops td__tracker_##id = {.name = (name_),                   \
                                              .help = (help_),                   \
                                              .create = create_##id,             \
                                              .start = td__cluster_start,        \
                                              .signal = td__cluster_signal,      \
                                              .adopt = td__cluster_adopt,        \
                                              .logs = td__cluster_logs,          \
                                              .members = td__cluster_members,    \
                                              .forget = td__cluster_forget,      \
                                              .destroy = td__cluster_destroy,    \
                                              .leaves = true,                    \
                                              __VA_ARGS__}

#endif
