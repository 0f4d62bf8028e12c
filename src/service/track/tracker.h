/* tracker.h -- a tracker starts groups of processes somewhere and reports what becomes of them.
 *
 * One file per tracker, track_<name>.c, and one line in trackers.def.
 *
 * Threads   All functions are called on the loop thread and do not block; what may block runs on
 *           threads of the tracker's own, whose results are posted to the loop (rpc/loop.h).
 *           Events are handed over on the loop thread.
 * Order     Of one token: STARTED or FAILED, then MEMBER and LOG events, then EXITED; nothing
 *           after EXITED, FAILED, UNKNOWN or AGAIN but LOG and FORGOTTEN.
 * Once      The token was written to the store before start() was called. A second start() with
 *           the same token, also by a restarted service, starts nothing: it answers with what
 *           has become of the first.
 * End       destroy() leaves all groups running; the next service adopts them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_TRACKER_H
#define TD_SERVICE_TRACK_TRACKER_H

#include "base/point.h"
#include "service/job.h"

typedef struct td__loop td__loop;                     /* rpc/loop.h */
typedef struct td__tracker td__tracker;               /* begins with a const td__tracker_ops * */
typedef struct td__service_config td__service_config; /* service/config.h */

/* One attempt of a job. Everything is borrowed for the time of the call. */
typedef struct td__group {
    const char *token;
    int32_t job;
    int attempt;
    const td__job_spec *spec;   /* members, processes, resources, image, command, limits */
    const char *dir;            /* the job's directory on the service's host, absolute */
    const char *data;           /* its data set there, to be read; NULL, "": none */
    const char *const *env;     /* "K=V", NULL-terminated: what is the same in all processes;
                                     group_env.h adds what differs */
    const char *const *command; /* NULL-terminated argv; [0] NULL: the image's own */
    const char *image;          /* "": none */
    bool own_ranks;             /* the command starts the processes of all members itself */
    bool attended;              /* it brings its metrics and artifacts to the service itself */
} td__group;

typedef enum td__track_signal {
    TD_TRACK_STOP,    /* SIGTERM, so that a checkpoint is written; SIGKILL after the grace time */
    TD_TRACK_KILL,    /* SIGKILL */
    TD_TRACK_RESTART, /* one member alone: kill it and start it again */
} td__track_signal;

enum { TD_TRACK_ALL = -1 }; /* instead of a member */

typedef enum td__track_event_kind {
    TD_TRACK_STARTED,          /* all members run */
    TD_TRACK_FAILED,           /* nothing was started, or all of it was taken back: text says why */
    TD_TRACK_MEMBER_RESTARTED, /* member, text: why */
    TD_TRACK_EXITED,           /* all members have ended: exit_status, exit_class, text */
    TD_TRACK_UNKNOWN,          /* answer to adopt(): never heard of the token */
    TD_TRACK_LOG,              /* member has written more */
    TD_TRACK_METRICS,          /* the group's metrics file has grown */
    TD_TRACK_AGAIN,            /* what became of the group is not known, for a reason of this host
                                  (text): start() or adopt() is to be called again after a while */
    TD_TRACK_TROUBLE,          /* still trying; text: "ImagePullBackOff: ...", "cannot reach ..." */
    TD_TRACK_PENDING,          /* of own_capacity: it waits in its system's queue; text: why */
    TD_TRACK_PLACED,           /* after PENDING: it waits no longer, and is being started */
    TD_TRACK_FORGOTTEN         /* answer to forget(): nothing is left of the token */
} td__track_event_kind;

typedef struct td__track_event {
    td__track_event_kind kind;
    const char *token;
    int member;
    int exit_status;           /* -1: unknown */
    td__exit_class exit_class; /* of EXITED and FAILED; NONE: by exit_status, LAUNCH */
    bool unsaved;              /* of EXITED: output could not be fetched, and is only where the
                                  members have written it */
    const char *text;          /* may be NULL */
} td__track_event;

/* Receives the bytes of a log. data() any number of times, then end() once; both on the loop
 * thread, within the call of logs() or later. */
typedef struct td__log_sink {
    void (*data)(void *arg, const void *bytes, size_t nbytes, uint64_t offset);
    void (*end)(void *arg, td_status st);
    void *arg;
} td__log_sink;

typedef enum td__member_state {
    TD_MEMBER_GONE, /* or not made yet */
    TD_MEMBER_WAITING,
    TD_MEMBER_RUNNING,
    TD_MEMBER_ENDED,
} td__member_state;

const char *td__member_state_name(td__member_state s);

/* A member of a group as its tracker saw it last. */
typedef struct td__track_member {
    td__member_state state;
    int exit_status; /* of ENDED; -1: unknown */
    char host[128];  /* "": not known */
    char text[256];  /* why it waits or ended */
} td__track_member;

typedef struct td__tracker_config {
    td__loop *loop;
    const td__service_config *config; /* the rows of this tracker are in config.def */
    const char *self;                 /* path of the tandem program */
    void (*event)(void *arg, const td__track_event *e);
    void *arg;
    struct td__gpus *gpus; /* of this host, for all trackers that hand them out; NULL: its own */
    td__points *points;    /* (optional) told before steps that change something, for tests */
} td__tracker_config;

typedef struct td__tracker_ops {
    const char *name;  /* "process" */
    const char *help;  /* one line */
    bool sees_steps;   /* restarts.step_deadline_s is kept */
    bool sees_data;    /* td__group.data, at the same path */
    bool shares_dir;   /* members write into the job's directory itself, unless place() names
                          another */
    bool own_capacity; /* its system knows how much there is, and lets jobs wait */
    bool leaves;       /* something of an attempt stays after its end, until forget() */
    bool leaves_files; /* among it the directory in which members have run: it goes with the job */
    TD_NODISCARD td_status (*create)(const td__tracker_config *c, td__tracker **out);
    /* The job's directory as members of this attempt see it; NULL, "": by the path it has here. */
    void (*place)(const td__service_config *c, const char *token, char *out, size_t nbytes);
    /* All members or none. Answers by events. */
    void (*start)(td__tracker *t, const td__group *g);
    void (*signal)(td__tracker *t, const char *token, int member, td__track_signal what);
    /* After a restart of the service, for attempts that had begun to run: answers with STARTED,
     * EXITED or UNKNOWN, and watches what still runs. */
    void (*adopt)(td__tracker *t, const td__group *g);
    /* Output of a member from a byte offset, what there is now. Following is: call again after a
     * LOG event. dir: the job's directory, where kept output lies. */
    void (*logs)(td__tracker *t, const char *token, const char *dir, int member, uint64_t from,
                 const td__log_sink *sink);
    /* Members [0, n) of a group that runs or is being started; what is not known of one stays as
     * it is. */
    void (*members)(td__tracker *t, const char *token, td__track_member *out, int n);
    /* Remove what is left of an ended attempt: containers, pods, files. Where there may be such a
     * thing (leaves), FORGOTTEN is the answer; without it, it is asked again. */
    void (*forget)(td__tracker *t, const char *token);
    /* The job's directory goes before forget() is called: what this needs of it is kept elsewhere.
     * May be NULL. */
    void (*before_removal)(td__tracker *t, const char *token, const char *dir);
    void (*destroy)(td__tracker *t);
} td__tracker_ops;

/* Begin of every tracker's struct. */
struct td__tracker {
    const td__tracker_ops *ops;
    td__tracker_config c;
};

/* By name; NULL: unknown. td__tracker_at goes through all of them, NULL after the last. */
const td__tracker_ops *td__tracker_find(const char *name);
const td__tracker_ops *td__tracker_at(int i);

#endif
