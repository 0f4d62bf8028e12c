/* watchdog.h -- the watcher of a world: one thread per world and process, which brings news of
 * other ranks to the comms of this one, and says who is missing when a call waits too long.
 *
 * News come through the store, so that ranks learn of one another that never exchange a byte:
 *
 *     dead              a rank's connection ended without goodbye: comms that hold it are poisoned
 *     left              with goodbye; an error only for a call that waits for that rank
 *     comm KEY LINE     a line for the comm KEY (td__comm_told): poison, disagreement
 *     ask TOKEN         somebody waits: every rank writes down what it is doing
 *
 * Stall report. A call that has waited stall_ms / 2 asks; at stall_ms there is one log line for
 * each missing rank: dead, stopped, computing since, in which other call since when. It is repeated
 * after twice the time, four times the time, and so on. Answers are values in the store, read by
 * who reports: a report costs one message per rank, not one per pair. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_WATCHDOG_H
#define TD_COLL_WATCHDOG_H

#include "coll/comm_impl.h"
#include "net/store.h"

typedef struct td__watchdog td__watchdog;

/* What ranks tell about themselves when they meet. */
typedef struct td__member {
    char host[64];     /* equal for ranks that can share memory */
    char hostname[64]; /* for texts */
    int pid;
    char address[64];
} td__member;

typedef struct td__watchdog_opts {
    int rank, size;
    const td__member *members; /* (size), borrowed; filled in before td__watchdog_begin */
    int host; /* 1 + the rank that hosts the store, whose loss is its end; 0: an agent does */
} td__watchdog_opts;

/* Joins the store's group; the store is borrowed and outlives the watchdog's thread. Keys of the
 * watchdog begin with "GROUP/". *out is to be destroyed also if this fails. */
TD_NODISCARD td_status td__watchdog_create(td__store *s, const char *group,
                                           const td__watchdog_opts *o, td__deadline until,
                                           td__watchdog **out);
/* Start the thread. */
TD_NODISCARD td_status td__watchdog_begin(td__watchdog *m);
/* After the store is closed: no news may come any more. NULL is allowed. */
void td__watchdog_destroy(td__watchdog *m);
/* Ends the thread; before the store is closed. */
void td__watchdog_end(td__watchdog *m);

/* While the n world ranks `ranks` (borrowed; NULL: all) meet to make the comm `key`: the death of
 * one of them, or the word that it gave up, ends the waits of the store (td__store_stop_waits);
 * a sub-group that takes longer than stall_ms is reported as a call is. */
void td__watchdog_meeting(td__watchdog *m, const int *ranks, int n, const char *key,
                          uint32_t stall_ms);
void td__watchdog_met(td__watchdog *m);

/* A watch over a comm of the n world ranks `ranks` (copied), known to all of them as `key`. */
typedef struct td__watch td__watch;
TD_NODISCARD td_status td__watch_create(td__watchdog *m, const int *ranks, int n, const char *key,
                                        td__watch **out);
void td__watch_begin(td__watch *w, td_comm *c);
void td__watch_destroy(td__watch *w); /* no news for the comm after this; NULL is allowed */
/* To the other ranks of the comm `key`. Any thread. */
void td__watchdog_tell(td__watchdog *m, const char *key, const char *line);

#endif
