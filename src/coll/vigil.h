/* vigil.h -- waits that last as long as the other side is there to answer: what the watchdog keeps,
 * and how it looks at them.
 *
 * A rank of a link (parallel/links.h) may wait for long with nothing wrong: the other side
 * computes, validates, serves others. But a process that is stopped, or whose host cannot be
 * reached, is not dead to its connections, and such a wait would have no end. So the comm keeps
 * vigil (td__comm_keep_vigil): while this rank waits on it, those that it waits for are asked for
 * an answer now and then, which the watchdog of any process gives that runs (watchdog.h). When one
 * gave none for most of the timeout of a call, the comm ends with TD_ETIMEDOUT and names it. A rank
 * that was stopped itself, as all of a job are that is suspended, begins anew. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_VIGIL_H
#define TD_COLL_VIGIL_H

#include <pthread.h>
#include <stdatomic.h>

#include "coll/stall.h"

enum { MAX_EARLY = 32 }; /* lines kept for comms that are still being made */

typedef struct early {
    int from;
    char key[TD_STALL_KEY], line[TD_COMM_LINE];
} early;

/* A wait without a deadline of its own (vigil.c). */
typedef struct td__vigil {
    uint64_t since_ns; /* it waits */
    uint64_t heard_ns; /* when all that it waits for answered last, or it began */
    uint64_t every_ns, look_ns;
    uint64_t seen_ns;  /* this rank itself was there to look, last */
    uint64_t asked_ns; /* 0: nobody was asked since the last look */
    unsigned first;    /* token of that question, and how many looks found no answer */
    int silent;
} td__vigil;

struct td__watch {
    td__watch *next;
    td__watchdog *m;
    td_comm *c;
    int n;
    char key[TD_STALL_KEY];
    uint64_t since_ns;  /* of the call last reported */
    uint64_t report_ns; /* how long it has to wait for the next report */
    uint64_t left_ns;   /* when the call of left_since was first seen to wait for one that left */
    uint64_t left_since;
    unsigned left_looks; /* of that call, then */
    td__vigil vigil;
    int ranks[]; /* (n) world ranks */
};

struct td__watchdog {
    td__store *store;
    char group[TD_STALL_KEY];
    int rank, size;
    const td__member *members;
    int host;             /* of the store: 1 + rank; 0: an agent */
    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t wake;
    pthread_t thread;
    bool running, ending;
    td__watch *watches;
    atomic_uchar *fates;              /* (size); read without the lock too */
    uint64_t asked;                   /* token to answer; 0: none */
    uint64_t tokens[TD_STALL_TOKENS]; /* of the last questions */
    unsigned n_tokens;
    uint64_t asked_ns; /* when anybody asked last */
    early *early;      /* (MAX_EARLY), the oldest is replaced */
    int n_early;
    const char *meeting; /* key of the comm that is being made; NULL: none */
    const int *meeting_ranks;
    int n_meeting;
    uint64_t meeting_ns, meeting_report_ns; /* since when; how long until the next report */
};

/* With the lock held. Is a comm that keeps vigil to be judged now? Then *s is what it waits for. */
bool td__vigil_look(td__watch *w, uint64_t now, td__stall *s);
/* Were the answers there? The lock is released for a while. */
void td__vigil_judge(td__watchdog *m, const td__stall_world *world, const td__stall *s);

/* watchdog.c, with the lock held: ask all ranks what they are doing; end the comm of w. */
void td__watchdog_ask(td__watchdog *m, uint64_t now);
void td__watch_poison(td__watch *w, int member, td_status st, const char *what);

#endif
