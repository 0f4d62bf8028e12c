/* clock_sync.h -- times of all ranks on one clock: that of rank 0.
 *
 * Ranks of one host read the same clock. Ranks of other hosts estimate how far theirs is from rank
 * 0's by pings: a rank sends at a, rank 0 answers with its time m, the answer comes at b. Whatever
 * the two ways took, rank 0's clock was at m at some moment between a and b, so
 *
 *     m - b  <=  offset  <=  m - a
 *
 * and the middle is wrong by half the round trip at most. Of many pings the one with the shortest
 * round trip says the most. Clocks also drift, some microseconds a second; so the offset is
 * measured at the start and at the end of a run, and taken to be linear in between. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_CLOCK_SYNC_H
#define TD_COLL_CLOCK_SYNC_H

#include "tandem/coll.h"

typedef struct td__ping {
    uint64_t sent_ns, got_ns; /* own clock */
    uint64_t there_ns;        /* rank 0's, in between */
} td__ping;

typedef struct td__clock_sample {
    uint64_t at_ns;   /* own clock, when it was taken */
    double offset_ns; /* rank 0's clock less the own one, then */
    double error_ns;  /* at most so far off: half the round trip; 0: the same clock */
} td__clock_sample;

/* What the best of n pings says. */
td__clock_sample td__clock_best(const td__ping *pings, int n);

/* The own clock to rank 0's. */
typedef struct td__clock_map {
    td__clock_sample start, end;
} td__clock_map;
double td__clock_to_first(const td__clock_map *m, uint64_t own_ns);

typedef uint64_t (*td__clock_fn)(void *user);
/* One measurement; collective. clock NULL: td__clock_ns, and ranks that share a host with rank 0
 * exchange nothing; another clock (tests) is always measured. */
TD_NODISCARD td_status td__clock_measure(td_comm *c, td__clock_fn clock, void *user,
                                         td__clock_sample *out);

#endif
