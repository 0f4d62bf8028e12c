/* placement.h -- what the leader of the agents wants next: who is in the next generation, how many
 * processes each agent runs, and when the job is over. A function of the decided state and of what
 * the agents report; no sockets, no processes.
 *
 * urgent     A member died, was fenced off, lost its agent, or could not go on with the others: the
 *            next generation is formed at once from those that are left, and from processes that
 *            wait. Only one that is about to end is waited for, since others have failed for want
 *            of it alone: one that says that the job itself is wrong, whose end is that of the job,
 *            and one that is dying.
 * parked     A member that is stopped (SIGSTOP) and misses a beat holds all others up, yet may come
 *            back before its lease is over: they go on without it, and if it does it waits for a
 *            place like a new one. Not so rank 0: it writes the run's files, and only one that is
 *            known to be dead can be followed by another.
 * border     Processes wait and there is room for them; or there are more members than wanted; or
 *            one wants to go: the generation is marked as ending, its members leave it at their
 *            next step border, and when all have, the next is formed.
 * wanted     Ranks that the operator asked for last (`tandem scale`), less the places that went
 *            with processes that were asked to go (SIGTERM) since. Each agent counts the
 *            latter for itself and the state says how many of them it has taken into account, so
 *            that none is lost or counted twice, however many go at once and on whichever hosts.
 * replaced   Where processes run is a number per agent: an agent that runs fewer starts some. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_PLACEMENT_H
#define TD_LAUNCH_PLACEMENT_H

#include "launch/membership.h"

enum { TD_PLACE_PROCS = 256, TD_PLACE_ENDS = 8 };

typedef enum td__proc_state {
    TD_PROC_STARTING, /* has not asked for a generation yet */
    TD_PROC_WAITING,  /* asks for one after `out` */
    TD_PROC_BUSY,
    TD_PROC_DONE /* ended, its work done */
} td__proc_state;

typedef enum td__proc_failed {
    TD_FAILED_NOT,
    TD_FAILED_SOME, /* with these others: it would try again */
    TD_FAILED_ENDS  /* for good: it is about to end, and how is worth waiting for */
} td__proc_failed;

typedef struct td__place_proc {
    uint32_t proc;
    uint8_t state;
    uint8_t leaving; /* wants to go */
    uint8_t failed;  /* left `out` because it could not go on; a td__proc_failed */
    uint8_t stopped; /* and has missed a beat */
    uint64_t out;    /* is out of this generation and of all before */
} td__place_proc;

/* Why a process ended that did not do so with its work done. */
typedef struct td__place_end {
    uint32_t proc, pid;
    char how[152]; /* "was killed by signal 9 (Killed), in network: ..." */
} td__place_end;

/* One agent's own view; the wire format too, up to the last process. */
typedef struct td__place_report {
    uint64_t number;        /* rises with every change */
    uint64_t order;         /* the newest order of the operator that it knows of, */
    uint32_t wanted;        /* and what that asks for */
    uint32_t slots;         /* processes that may run there */
    uint32_t crashes;       /* failures in a row without a step forward */
    int32_t status;         /* exit status of the last of them */
    uint32_t hopeless;      /* trying again would not help */
    uint32_t n_ends;        /* so far: the last TD_PLACE_ENDS are in `end` */
    char cause[TD_MS_TEXT]; /* the last of the failures, or of those at one moment the first */
    char host[64];
    td__place_end end[TD_PLACE_ENDS];
    uint32_t given_up; /* places, so far, that went with processes that were asked to go */
    uint32_t n_procs;
    td__place_proc proc[TD_PLACE_PROCS];
} td__place_report;
static_assert(sizeof(td__place_proc) == 16 && sizeof(td__place_end) == 160, "wire");
static_assert(offsetof(td__place_report, cause) == 40 && offsetof(td__place_report, end) == 360,
              "wire");
static_assert(offsetof(td__place_report, proc) == 1648, "wire");

size_t td__place_report_nbytes(const td__place_report *r);
bool td__place_report_good(const td__place_report *r, size_t nbytes);

/* What the leader knows. */
typedef struct td__place {
    uint32_t min;    /* ranks; a generation of fewer is not formed */
    uint32_t spares; /* processes beyond those wanted */
    uint32_t most_crashes;
    uint64_t gather_ns; /* how long the first generation waits for all that are wanted */
    uint64_t alive;     /* agents that are neither dead nor silent; new ones too */
    uint64_t dead;
    const td__place_report *report[TD_MS_AGENTS]; /* borrowed; NULL: none yet */
    const char *store;                            /* of this agent */
    uint64_t since_ns;                            /* when this agent began to lead */
    uint64_t failed_ns; /* when the last generation was formed for want of a better one */
    uint32_t n_failed;  /* how many were, in a row */
    uint64_t grow_ns;   /* since when somebody waits for a place; 0: nobody */
    uint64_t look_at;   /* out: when time alone changes the answer; UINT64_MAX: never */
} td__place;

/* Of the members of c's generation: is this rank one too many, in all or on its host? */
bool td__place_too_many(const td__ms_content *c, uint32_t rank);
/* true: *next is to be proposed, with *voters. */
bool td__place_next(td__place *p, const td__ms_state *s, uint64_t now, uint64_t *voters,
                    td__ms_content *next);

#endif
