/* stall.h -- the stall report: who holds a waiting call up, and what each of them is doing. The
 * watchdog finds the call and asks all ranks; here the answers become log lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_STALL_H
#define TD_COLL_STALL_H

#include "coll/watchdog.h"

enum {
    TD_STALL_KEY = 64,
    TD_STALL_TEXT = 400,  /* what a rank says of itself */
    TD_STALL_TOKENS = 16, /* several ranks may ask at once */
    TD_STALL_OTHERS = 64,
};

typedef enum td__fate { TD_FATE_HERE, TD_FATE_LEFT, TD_FATE_DEAD } td__fate;

/* What a waiting call looks like once the lock is released. */
typedef struct td__stall {
    char call[320], key[TD_STALL_KEY], name[TD_STALL_KEY];
    uint64_t waited_ns, fails_ns, asked_ns, tokens[TD_STALL_TOKENS];
    uint64_t vigil_ns; /* since when a comm that keeps vigil waits (vigil.h); 0: it is no such */
    int n, n_more, waiting[TD_COMM_WAITING], world[TD_COMM_WAITING]; /* in the comm, in the world */
    int n_others, others[TD_STALL_OTHERS]; /* (rank in the comm) that are not waited for directly */
    int others_world[TD_STALL_OTHERS];
} td__stall;

/* Where to look; all borrowed. */
typedef struct td__stall_world {
    td__store *store; /* answers are its values "GROUP/doingRANK" */
    const char *group;
    int rank;
    const td__member *members; /* (size) */
    const atomic_uchar *fates; /* (size) td__fate */
} td__stall_world;

/* One log line for each rank that holds the call up, with its class (hang.h): of the ranks that
 * wait the lowest warns, for the others it is information. Asks the store and /proc, for up to some
 * seconds: without locks. */
void td__stall_report(const td__stall_world *m, const td__stall *s);
/* Which rank of those that are waited for does not answer, and why, in words; -1: all do, or what
 * has become of them will be news. */
int td__stall_silent(const td__stall_world *m, const td__stall *s, char *what, size_t max);

#endif
