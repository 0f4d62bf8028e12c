/* workers_impl.h -- the inside of workers.h, shared by the files that start processes
 * (workers_start.c), receive from them (workers.c), watch them (workers_watch.c), send to them
 * (workers_tell.c), report on them (workers_say.c) and handle their end (workers_end.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_WORKERS_IMPL_H
#define TD_LAUNCH_WORKERS_IMPL_H

#include "coll/control.h"
#include "coll/hang.h"
#include "launch/lines.h"
#include "launch/rank_env.h"
#include "launch/spawn.h"
#include "launch/workers.h"
#include "net/gate.h"
#include "net/link.h"

typedef struct td__worker {
    bool used, done;
    bool ended; /* its end can be waited for */
    uint32_t proc;
    int slot; /* names its output on this host: of its rank, or the lowest that was free */
    int seat; /* 1 + its number among this host's members of a generation; 0: was in none yet */
    td__child child;
    td__lines out, err;
    td__link link; /* fd -1: has not come yet; of a fixed rank, which need not come: is not here */
    td__proc_state state;
    bool leaving, failed, told_end, fenced, was_in;
    bool spare;       /* it waited beside a full world when it asked to go */
    bool stuck;       /* fenced because it went no further */
    uint64_t late_ns; /* since when it has not left a generation that is over; 0: it has */
    bool stopped;     /* by a signal, and has missed a beat */
    int rank;         /* in the last generation that it was told of */
    uint64_t out_of;  /* generation that it has left, or waits after */
    uint64_t told;    /* generation that it was told of */
    uint64_t told_wanted;
    uint32_t told_expected;
    bool told_goes;             /* with it */
    uint64_t heard_ns, kill_at; /* kill_at 0: no */
    td__ctl_heartbeat heartbeat;
    uint64_t killed_ns; /* when it was, first; 0: it was not */
    bool lingers;       /* it was, and does not end: that has been said */
    td__hang hang;      /* why it was silent, if fenced */
    bool hopeless;      /* it said that the job itself is wrong, */
    bool wrong;         /* that this host is, */
    bool kept;          /* or that all were asked to go, and the work is kept */
    bool ends;          /* it is about to end, because of what it said */
    bool dying;         /* it is ending, as the kernel says */
    char said[160];     /* why it cannot go on, in its own words; "": it did not say */
} td__worker;

struct td__workers {
    td__agent_spec *s;
    bool *lost;
    td__gate *gate;
    char socket[96];
    td__link *strangers; /* (max) connections that have not said hello */
    int next_stranger;
    const td__rank_plan *plan; /* of fixed ranks; NULL: elastic */
    td__worker *all;           /* (max) */
    int max;
    uint32_t n_started;
    uint32_t target; /* processes that are to run, or to have done their work */
    int n_running;
    td__ms_content now; /* of the last decided state */
    td__place_report report, sent;
    uint64_t start_at;         /* not before */
    uint64_t crash_ns;         /* when the last crash counted */
    uint64_t step, crash_step; /* furthest so far; at the last crash */
    uint64_t ticked_ns, next_ns, status_at;
    bool stopping;
    uint64_t kill_at;
};

static inline uint64_t td__worker_ns(uint64_t ms)
{
    return ms * 1000000u;
}

/* The agent is to look again at this time, at the latest. */
static inline void td__workers_later(td__workers *w, uint64_t at)
{
    w->next_ns = at < w->next_ns ? at : w->next_ns;
}

/* workers_start.c: the next process. */
TD_NODISCARD td_status td__worker_start(td__workers *w, uint64_t now);

/* workers_end.c: it has ended; what it leaves is read and told. */
void td__worker_reap(td__workers *w, td__worker *k, uint64_t now);
/* Close what belongs to it; of one whose work is done only that remains. */
void td__worker_release(td__worker *k);
/* One more that failed, k, or that could not be started (NULL). how: "was killed by signal 9". */
void td__workers_count_crash(td__workers *w, const td__worker *k, int status, const char *how,
                             uint64_t now);
/* One that was asked to go takes its place along. A spare has none; another takes over. */
void td__workers_give_up_place(td__workers *w, const td__worker *k);

/* workers.c: all that it has said. */
void td__worker_hear(td__workers *w, td__worker *k, uint64_t now);
void td__worker_pump(td__workers *w, td__worker *k, bool last);
/* With its children. */
void td__worker_kill(const td__worker *k, int sig);

/* workers_watch.c: kill it if it is silent or hangs; note that it is stopped. */
void td__worker_watch(td__workers *w, td__worker *k, uint64_t now);

/* workers_watch.c: mark processes that are ending: the likely cause where others fail. */
void td__workers_find_dying(td__workers *w);

/* workers_tell.c: its rank in the generation that there is now, where fixed ranks have theirs from
 * the start; -1: none. */
int td__worker_rank(const td__workers *w, const td__worker *k);

/* workers_say.c: "rank 2 (host a, pid 7)"; "a process (host a, pid 7)" if it had no rank yet. */
enum { TD_WORKER_NAME = 128 };
char *td__worker_name(const td__workers *w, const td__worker *k, char out[TD_WORKER_NAME]);
/* "was killed by signal 9 (Killed), in network: gradients (allreduce) at step 17 for 0.1 s" */
void td__worker_how_it_ended(const td__workers *w, const td__worker *k, int status, char *out,
                             size_t max);
/* To the launcher: which process ended how, and what is done about it. */
void td__worker_say_lost(td__workers *w, const td__worker *k, const char *how);
/* The same about one that was killed and is still there. */
void td__worker_say_lingers(td__workers *w, const td__worker *k, uint64_t now);

#endif
