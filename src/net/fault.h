/* fault.h -- things that break on purpose: a schedule of faults, for tests. Clauses are separated
 * by semicolons or ends of lines; there are two kinds.
 *
 * Messages, by chance:
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
 * data.
 *
 * Ranks of a run (fault/faults.h), at a point of it, each once:
 *
 *     kill rank=2 at=step:17:allreduce:3     before the third allreduce of step 17
 *     stop rank=1 for=3s at=step:20          as step 20 begins
 *     cut 0-1 at=step:5:comm:2               the link between two ranks, before the second call
 *     hang rank=1 for=9s at=step:20          does not go on, though its process beats
 *     flip rank=1 at=step:9                  one bit of a gradient
 *     slow rank=1 for=2ms at=step:3          each of its micro-batches takes so much longer from
 *     there on full rank=0 at=step:4:state.json       the disk: the operation fails for want of
 *     space kill rank=0 at=generation:2:broadcast  while generation 2 comes to the same state
 *
 * After the step (or generation) comes an operation: a collective's or a file's name, `comm`,
 * `file`, or `op` for any, and its number in the step, from 1. What is done between two steps
 * belongs to the one before; a file that is named is hit when it is next written, which may be a
 * step later: checkpoints are written beside the steps. If there are fewer ranks by then they are
 * counted round and round: a schedule does not depend on how fast lost ranks are replaced.
 *
 * `seed=7,rate=1/50steps` draws one such fault for every fifty steps: what, who, and when is a pure
 * function of the seed. `seed=7,rate=1/10s` draws the same, one every ten seconds; at which steps
 * they are is the clock's to say. `trace=PATH` has every rank append a line "rank step kind
 * operation" there for each point. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_FAULT_H
#define TD_NET_FAULT_H

#include "net/conn.h"

#define TD_FAULT_ACT_MAP(X) \
    X(KILL, "kill")         \
    X(STOP, "stop")         \
    X(CUT, "cut")           \
    X(FLIP, "flip")         \
    X(FULL, "full")         \
    X(SLOW, "slow")         \
    X(HANG, "hang")
typedef enum td__fault_act {
#define X(id, name) TD_FAULT_##id,
    TD_FAULT_ACT_MAP(X)
#undef X
        TD_FAULT_COUNT
} td__fault_act;

/* A fault at a point of a run. */
typedef struct td__fault_event {
    td__fault_act act;
    int rank, peer;  /* peer: the other end of a cut */
    uint64_t for_ns; /* of a stop or hang (0: for ever), or more for each micro-batch */
    double times;    /* of a slow one: how many times as long its micro-batches take; 0: not said */
    bool generation; /* number is one, not a step */
    uint64_t number;
    char op[24];    /* "": as it begins */
    uint64_t count; /* which of them, from 1 */
} td__fault_event;
enum { TD_FAULT_EVENTS = 256, TD_FAULT_TEXT = 160 };

typedef struct td__fault_plan {
    uint64_t seed;
    double drop, truncate, cut, flip, stop; /* probabilities */
    double delay_share;
    uint64_t delay_ns;
    double rate; /* bytes per second; 0: unlimited */
    td__fault_event events[TD_FAULT_EVENTS];
    int n_events;
    uint64_t every_ns;    /* one drawn event each time this has passed; 0: never */
    uint64_t every_steps; /* one in so many steps */
    char trace[256];      /* "": none */
} td__fault_plan;

/* TD_EINVAL names the word that is wrong. */
TD_NODISCARD td_status td__fault_parse(const char *text, td__fault_plan *out);

/* "kill rank=2 at=step:17:allreduce:3", as it can be parsed again. */
char *td__fault_text(const td__fault_event *e, char text[TD_FAULT_TEXT]);

/* Fault number n (from 1) that the seed gives to a world of so many ranks; its step is not set. */
void td__fault_draw(const td__fault_plan *p, uint64_t n, int ranks, td__fault_event *out);
/* Of plans by steps: the number of the fault of this step; 0: it has none. */
uint64_t td__fault_of_step(const td__fault_plan *p, uint64_t step);

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
