/* crossed.h -- crossed waits: ranks that wait for each other in a circle are found while they wait,
 * and their calls end with TD_EDEADLOCK and the calls of the circle named.
 *
 * A rank that has waited for twice the stall time sends a probe to the ranks that it waits for:
 *
 *     probe TOKEN HOPS KIND SEQUENCE RANKS TEXT
 *
 * A rank that gets one looks whether it has begun its side of that call (message SEQUENCE to or
 * from the sender, collective SEQUENCE). If it has not, and itself waits, nothing that the sender
 * waits for can come before its own wait ends: it passes the probe on to those that it waits for. A
 * probe that comes back to a wait that still lasts has gone round a circle of ranks none of which
 * can go on (Chandy, Misra, Haas 1983; a call needs all that it waits for). That is a proof, not a
 * guess by time: slow ranks and slow lines pass no probes on.
 *
 * The thread that waits does all this between its looks; whoever brings a line only puts it down.
 * A comm that is in no call belongs to the thread that has made all its calls so far, if it is one:
 * while that one waits in another comm, probes of the first are answered there, so that circles
 * over several groups are found. A comm without calls belongs to nobody. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_CROSSED_H
#define TD_COLL_CROSSED_H

#include <pthread.h>
#include <stdatomic.h>

#include "tandem/coll.h"

enum {
    TD_CROSSED_LINE = 512,
    TD_CROSSED_PROBES = 8, /* not looked at yet; the oldest is replaced: it comes again */
    TD_CROSSED_SEEN = 32,
};

/* What a comm has for it; zero at first. */
typedef struct td__crossed {
    struct {
        int from; /* rank in the comm */
        char line[TD_CROSSED_LINE];
    } probes[TD_CROSSED_PROBES];    /* with the comm's lock */
    unsigned n_probes, n_taken;     /* so far; with that lock */
    uint64_t seen[TD_CROSSED_SEEN]; /* tokens passed on; of the thread that waits */
    unsigned n_seen;
    _Atomic uintptr_t thread;                    /* that has made all calls; 0: no call yet */
    _Atomic uint64_t n_collectives, *n_messages; /* begun; (2 * size) sent to, received from each */
    td_comm *next;                               /* of all comms of the process */
} td__crossed;

TD_NODISCARD td_status td__crossed_begin(td_comm *c);
void td__crossed_end(td_comm *c); /* before anything else of the comm goes */
/* A call begins; for the thread that runs it. */
void td__crossed_enter(td_comm *c, bool message, int slot, uint64_t sequence);
/* "TOKEN HOPS ..." from rank `from`. Any thread. */
void td__crossed_told(td_comm *c, int from, const char *line);

/* One wait of a call. */
typedef struct td__crossed_wait {
    uint64_t since_ns;
    uint64_t token;   /* of the probes of this wait, the last 8 bits count them; 0: none yet */
    uint64_t next_ns; /* when the next one is due */
} td__crossed_wait;
/* After each look that found nothing, once td__comm_waiting has named the ranks. A circle poisons
 * the comms that it was found in. */
void td__crossed_look(td_comm *c, td__crossed_wait *w, uint64_t now_ns);

#endif
