/* message.h -- what launcher and agent say to each other over their pipes.
 *
 * A message is a header of three little-endian u32 (kind, rank, length) and a body. Bodies are
 * either bytes of output or lists of texts, each ended by a 0. The channel is trusted (a pipe, or
 * ssh), yet lengths are bounded. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_MESSAGE_H
#define TD_LAUNCH_MESSAGE_H

#include "tandem/status.h"

typedef enum td__msg_kind {
    /* Down. */
    TD_MSG_SPEC,   /* "key=value" texts, see agent.c */
    TD_MSG_PARENT, /* address of the store above; empty: be the root */
    TD_MSG_GO,     /* fixed ranks: "HOST:PORT" of each, then of the master; elastic: "NUMBER
                      ADDRESS" of the agents to connect to */
    TD_MSG_STOP,   /* SIGTERM, SIGKILL after the grace time */
    TD_MSG_KILL,   /* SIGKILL */
    TD_MSG_END,    /* the ranks of all hosts have ended: nobody needs the store any more */
    /* Up. */
    TD_MSG_READY,  /* own store's address, then "HOST:PORT" of own ranks (the first agent: and of
                      the master) */
    TD_MSG_OUT,    /* whole lines of a rank's standard output */
    TD_MSG_ERR,    /* and of its standard error */
    TD_MSG_EXIT,   /* a rank's exit: decimal, 128 + N for signal N; "killed" if that came first; a
                      second text: why the watchdog killed it */
    TD_MSG_FAILED, /* one line: why this agent gives up */
    /* Of an elastic launch. */
    TD_MSG_ORDER,      /* down: decimal number of the order, then of the ranks wanted */
    TD_MSG_SLOTS,      /* down: decimal, processes that this host may run from now on */
    TD_MSG_GENERATION, /* up: number, ranks, why */
    TD_MSG_OVER,       /* up: exit status, cause */
    TD_MSG_LEAVES,     /* up: one line: why this agent leaves the others */
    TD_MSG_RUN_DIR,    /* up: the folder of the run */
    TD_MSG_LOST,       /* up: one line about a process that was lost */
    TD_MSG_DRAIN,      /* up: this host was asked to go (SIGTERM to its agent) */
    TD_MSG_STATUS,     /* up: what the processes of this host do, as a JSON object */
    TD_MSG_COUNT
} td__msg_kind;

typedef struct td__msg {
    td__msg_kind kind;
    int rank;
    const char *data; /* borrowed until the next call on the channel */
    size_t nbytes;
} td__msg;

typedef struct td__channel {
    int in, out;
    char *buffer;
    size_t start, used, max;
    bool queued; /* sending never waits: what cannot go now is kept */
    char *queue; /* (queue_max), bytes [queue_sent, queue_used) are to go */
    size_t queue_sent, queue_used, queue_max;
} td__channel;

void td__channel_init(td__channel *c, int in, int out);
void td__channel_fini(td__channel *c); /* closes both ends */

/* TD_EPEER when the other side is gone. */
TD_NODISCARD td_status td__channel_send(td__channel *c, td__msg_kind kind, int rank,
                                        const void *data, size_t nbytes);
/* From now on sending does not wait. td__channel_flush when `out` is writable. */
TD_NODISCARD td_status td__channel_queue(td__channel *c);
TD_NODISCARD td_status td__channel_flush(td__channel *c);
/* So much is kept that whoever has more to say should wait. */
bool td__channel_full(const td__channel *c);
/* Read what is there (blocks if nothing is); *eof: the other side is gone. */
TD_NODISCARD td_status td__channel_fill(td__channel *c, bool *eof);
/* Take the next whole message, if there is one. TD_EPROTO for nonsense. */
TD_NODISCARD td_status td__channel_next(td__channel *c, td__msg *m, bool *found);
/* Wait for a message of this kind; TD_EPEER when the other side is gone. */
TD_NODISCARD td_status td__channel_await(td__channel *c, td__msg_kind kind, td__msg *m);

/* A list of texts in the making. */
typedef struct td__texts {
    char *data;
    size_t used, max;
    bool failed; /* out of memory; looked at once, at the end */
} td__texts;
void td__texts_add(td__texts *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void td__texts_fini(td__texts *t);
/* Walk: the text at *at, which is moved on; NULL at the end, or for a text without its end. */
const char *td__texts_next(const char *data, size_t nbytes, size_t *at);

#endif
