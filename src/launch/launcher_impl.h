/* launcher_impl.h -- a launch, as its launcher sees it: shared by the launcher itself (launcher.c)
 * and what it does about hosts, messages, orders and the end (launcher_*.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_LAUNCHER_IMPL_H
#define TD_LAUNCH_LAUNCHER_IMPL_H

#include <sys/stat.h>

#include "base/deadline.h"
#include "launch/agent_start.h"
#include "launch/control.h"
#include "launch/job_status.h"
#include "launch/launch.h"
#include "launch/membership.h"
#include "launch/output.h"
#include "launch/roles.h"
#include "launch/secrets.h"

typedef struct td__launch_agent {
    td__agent_link link;
    bool started, ready, gone, ended; /* gone: was told to go on, and with whom */
    char address[256];                /* of its store, or where the other agents reach it */
    int base;                         /* number of the output of its first process */
    int n_ended;                      /* fixed ranks */
    char **rank_address;              /* fixed: "HOST:PORT" of its ranks, (count + 1) */
    int slots;                        /* elastic: processes that may run there */
} td__launch_agent;

typedef struct td__launch {
    td__launch_opts o;
    bool elastic;
    const char *const *argv;
    td__hosts hosts;          /* hosts.host[i] is that of agents[i]; it only grows */
    td__launch_agent *agents; /* (max_agents) */
    int max_agents;
    td__output *output;
    td__job_secrets secrets;
    int signals;        /* their descriptor; */
    int signal;         /* that we got */
    td__deadline once;  /* until then a signal is of what stops us already */
    td__deadline limit; /* of the current phase; 0: none */
    bool begun, stopping, killing;
    td__control *control;
    td__job_status *news;
    uint64_t generation;
    int ranks;               /* of the generation, */
    char reason[TD_MS_TEXT]; /* and why it was formed */
    bool over;               /* the job has ended by itself; */
    int status;              /* so, */
    char cause[512];         /* because of this; "": nothing more is to be said */
    td_status failed;        /* it could not be started, or was lost; */
    char why[512];
    /* Fixed. */
    int first, first_status; /* rank that failed first; -1: none */
    char first_why[192];     /* why the watchdog killed it; "" if it did not */
    bool killed;             /* by a signal */
    int n_leaders;           /* of the ranks before lossy_from that have ended well */
    td__roles roles;
    int n_done; /* ranks of the generation that have done their work; parameter servers have none */
    char run_dir[4096]; /* "": none is known */
    int failures;       /* so far, that all ranks were started again after */
    /* Fixed, where their number may change (o.min_world). */
    td__hosts listed; /* all hosts that there are, with all their slots */
    int wanted;       /* ranks, as far as there are slots */
    bool changing;    /* this generation ends for the next, and none of its ranks is to blame */
    /* Elastic. */
    uint64_t n_orders; /* given so far: the number of the last */
    char last[1024];   /* line that a process wrote to its standard error */
    struct stat file;  /* the hosts file, as it was read last */
    td__deadline look_at;
} td__launch;

static inline bool td__launch_is_up(const td__launch *l, int agent)
{
    return l->agents[agent].started && !l->agents[agent].ended;
}

/* launcher.c */
void td__launch_tell(td__launch_agent *a, td__msg_kind kind, const char *one, const char *two);
void td__launch_tell_all(td__launch *l, td__msg_kind kind);
void td__launch_stop(td__launch *l, td__msg_kind how);
TD_NODISCARD td_status td__launch_start_agent(td__launch *l, int i);
/* How long the agents have, from now on, to end with what they run. */
void td__launch_limit_end(td__launch *l);

/* launcher_hear.c: a message of agent `index`. */
TD_NODISCARD td_status td__launch_hear(td__launch *l, int index, const td__msg *m);

/* launcher_orders.c: answers to `tandem status` and `tandem scale`; slots of all hosts that are
 * there, but for one (-1: of all). */
void td__launch_answer(void *user, const char *question, td__text *out);
int td__launch_slots(const td__launch *l, int without);

/* launcher_hosts.c: those of the options; has the file of hosts changed since the last look; what
 * follows from it for elastic ranks; a host was asked to go. */
TD_NODISCARD td_status td__launch_find_hosts(td__launch *l);
bool td__launch_hosts_changed(td__launch *l);
void td__launch_look_at_hosts(td__launch *l);
void td__launch_drain(td__launch *l, int index);

/* launcher_end.c: the job has ended by itself: nobody needs the agents any more. */
void td__launch_over(td__launch *l, int status, const char *cause);
/* A fixed rank has, as TD_MSG_EXIT says; have all? Is it another generation that comes next? */
void td__launch_exit(td__launch *l, int index, int local, const char *how, const char *why);
void td__launch_end_agents(td__launch *l);
bool td__launch_again(td__launch *l);
/* Say how it ended. */
TD_NODISCARD td_status td__launch_conclude(td__launch *l, int *exit_status);

/* launcher_worlds.c: slots that are there; of the hosts that were named, those of the first
 * generation; hosts and roles of the next one; a host is not there any more (true: the next
 * generation is without it); the file of hosts; an order. A status other than TD_OK: the ranks are
 * too few. */
int td__worlds_slots(const td__launch *l);
TD_NODISCARD td_status td__worlds_begin(td__launch *l);
TD_NODISCARD td_status td__worlds_next(td__launch *l);
bool td__worlds_lost(td__launch *l, int index, const char *why);
TD_NODISCARD td_status td__worlds_look_at_hosts(td__launch *l);
/* What comes of it is added to out, "ok ...". */
TD_NODISCARD td_status td__worlds_scale(td__launch *l, int ranks, td__text *out);

#endif
