/* fault.h -- broken networks on purpose: a seeded schedule of faults, for tests.
 *
 *     seed=7,drop=0.01,delay=5ms@0.1,cut=0.001,truncate=0.001,flip=0.001,stop=0.001,rate=125MB/s
 *
 * Probabilities are per message. Which message is hit, and where, is a pure function of (seed,
 * rank, peer, message number): the same seed gives the same faults.
 *
 *     delay     the message waits for up to this long (uniform); @p: only a share p of all
 *     rate      the link carries this many bytes per second
 *     drop      the message vanishes, and the stream ends behind the gap, as a reliable stream does
 *               that cannot deliver
 *     truncate  only a part of the message is sent, then the stream ends
 *     cut       the connection ends before the message
 *     flip      one bit arrives inverted; payloads are then checksummed
 *     stop      nothing is sent any more, as if the sender were stopped; the stream stays open
 *
 * The first two only slow down. The others must end as errors that name the peer, never as wrong
 * data. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_FAULT_H
#define TD_NET_FAULT_H

#include "net/conn.h"

typedef struct td__fault_plan {
    uint64_t seed;
    double drop, truncate, cut, flip, stop; /* probabilities */
    double delay_share;
    uint64_t delay_ns;
    double rate; /* bytes per second; 0: unlimited */
} td__fault_plan;

/* TD_EINVAL names the word that is wrong. */
TD_NODISCARD td_status td__fault_parse(const char *text, td__fault_plan *out);

/* What happens to one message. */
typedef struct td__fault {
    bool drop, cut, stop;
    uint64_t delay_ns;
    uint64_t keep; /* bytes sent before the stream ends; UINT64_MAX: all */
    uint64_t flip; /* number of the bit to invert; UINT64_MAX: none */
} td__fault;

void td__fault_decide(const td__fault_plan *plan, int rank, int peer, uint32_t message,
                      uint64_t nbytes, td__fault *out);

/* Put the filter on a connection; `plan` is borrowed. It sees messages through td__conn_message. */
TD_NODISCARD td_status td__fault_push(td__conn *c, const td__fault_plan *plan, int rank, int peer);

#endif
