/* members.h -- generations: who is in the world now, as one process of it sees it.
 *
 * A generation is one membership of the world: a number that only rises, and ranks 0 .. size-1.
 * It ends when a member dies, is fenced off, joins or leaves; its comm is then poisoned on every
 * member. A process that trains elastically holds a td__members and does this, over and over:
 *
 *     next()     wait for a generation newer than the last in which this process has a rank; its
 *                comm comes with it
 *     work       until a call on the comm fails, or wanted() says that the membership changes
 *     leave()    what this process knows of why; the comm is destroyed by then. Also when the work
 *                is done, before the process ends
 *
 * Members keep their state from one generation to the next; those with the newest state send it to
 * the others (elastic/). The ops hide what decides about generations: agents, or a test.
 *
 * Threads   next, leave and destroy: one thread; the others: any, they never block. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_MEMBERS_H
#define TD_COLL_MEMBERS_H

#include "base/deadline.h"
#include "coll/hang.h"
#include "tandem/coll.h"

typedef struct td__generation {
    uint64_t number; /* from 1 */
    int rank, size;
    char why[256]; /* what ended the one before: "rank 2 (host a, pid 77) was killed by signal 9" */
} td__generation;

typedef struct td__heartbeat {
    uint64_t step;
    td__phase phase;
    const char *what; /* "allreduce", "checkpoint step-00000020"; a constant, or NULL */
    double samples_per_second, loss; /* of the run */
    uint64_t steps;                  /* of the run, as far as known; 0: unknown */
    double speed;                    /* samples/s of this process while it computes */
    double wait;                     /* share of its time in which it waits for others */
    uint32_t faults;                 /* that were made on purpose, as far as it knows */
    const char *about;               /* more of `what`: a tensor, a file, a source; or NULL */
} td__heartbeat;

/* What a process is at now, beyond what its last beat said: a tensor, a node. False: nothing. */
typedef bool td__explain(void *user, char *out, size_t max);

typedef struct td__members td__members;
typedef struct td__members_ops {
    /* TD_EABORTED: this process is to end (drained, fenced off, the job is over): *why in the last
     * error. TD_ETIMEDOUT: no generation came. The comm is the caller's to destroy. */
    TD_NODISCARD td_status (*next)(td__members *m, td__deadline until, td__generation *g,
                                   td_comm **comm);
    /* Is the generation to end at the next step border? The same answer need not come on all
     * ranks at once: the caller agrees on it with the others (the step's small allreduce). */
    bool (*wanted)(td__members *m);
    /* (optional) Before the first next(): wait until this process has a rank in a generation, which
     * next() then gives. *seat: its number among such processes of this host, which no other has
     * while it runs. Failures are those of next(). */
    TD_NODISCARD td_status (*await_seat)(td__members *m, td__deadline until, int *seat);
    /* (optional) Will this process be without a place once the generation that is to end has ended,
     * as far as is known? It gives what it holds to the others before. Any thread, never blocks. */
    bool (*going)(td__members *m);
    /* (optional) Wait until this process, too, knows that the generation is to end: other members
     * may have heard of it, and agreed on it with this one, before its own agent has said whether
     * it goes. Returns at `until` all the same. */
    void (*await_wanted)(td__members *m, td__deadline until);
    /* Generation g is over for this process. st TD_OK: at a step border, as wanted; TD_EINVAL: what
     * is wrong is wrong with the job, and no other process could go on either; TD_EMISMATCH: this
     * host computes wrongly. */
    void (*leave)(td__members *m, uint64_t g, td_status st, const char *why);
    /* Every call counts as progress: a process that computes or waits for samples and makes none
     * for long is taken to hang. */
    void (*heartbeat)(td__members *m, const td__heartbeat *b);
    /* fn says, on another thread, what this process is doing, until the next call; NULL: no longer.
     * May be NULL. */
    void (*explain)(td__members *m, td__explain *fn, void *user);
    /* This process wants to go, as after SIGTERM: wanted() becomes true on all members, and at the
     * step border next() answers TD_EABORTED here. Any thread, never blocks. */
    void (*drain)(td__members *m);
    /* Minimum world size: if so many ranks want to leave that fewer would be left, all leave. The
     * same on all members; NULL: 1. Any thread, never blocks. */
    int (*min_ranks)(td__members *m);
    /* Ranks that there will be once those that are being started have come, as far as this host
     * knows; members need not know the same. NULL: those that are there. Any thread, never blocks.
     */
    int (*expected)(td__members *m);
    /* All were asked to go and the work is kept: the job is over when this process has left. May be
     * NULL. */
    void (*kept)(td__members *m);
    /* The whole job is being stopped (Ctrl-C): wanted() is true too, and all members, once they
     * have agreed on the step, keep their work and end. Any thread, never blocks. */
    bool (*stopping)(td__members *m);
    /* Where the run writes its files, once known: `tandem scale DIR` finds the job by it. */
    void (*run_dir)(td__members *m, const char *dir);
    void (*destroy)(td__members *m);
} td__members_ops;

/* Every implementation begins with this. */
struct td__members {
    const td__members_ops *ops;
    /* The ranks of the job are fixed: the environment has the one generation there is, and only
     * heartbeat, explain, run_dir and destroy are called. */
    bool fixed;
};

/* The generations that the agent of this host decides about, when this process was started by
 * `tandem launch`; *out is NULL when it was not. opts (may be NULL) are those of every generation's
 * comm, and are copied. A thread of its own keeps the agent's lease. */
TD_NODISCARD td_status td__members_from_env(const td_comm_opts *opts, td__members **out);

#endif
