/* membership.h -- what the agents of a job agree on, as a state machine without sockets and without
 * a clock of its own. docs/membership.md has the protocol, its invariants and why they hold.
 *
 * agent      One per host, with a number that is never used again. Its process is alive, dead (its
 *            kernel closed the connection: a fact that cannot become untrue) or silent (nothing
 *            was heard of it: it may be alive).
 * state      What is agreed on: the voters, the generation and its members, what each agent is to
 *            run. States form a chain; each has a position in it and knows the voters of the one
 *            before.
 * term       One leadership. Its number ends in the number of the agent, so no two agents ever
 *            lead in one term.
 * quorum     Of a set of voters: more than half of it; or half of it with its lowest agent; or all
 *            that are not dead.
 * decided    A state that a quorum of the voters before it and a quorum of its own voters have
 *            accepted.
 *
 * Everything that is sent may be lost, repeated or late: what matters is said again with the next
 * beat. One thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_MEMBERSHIP_H
#define TD_LAUNCH_MEMBERSHIP_H

#include <assert.h>

#include "tandem/status.h"

enum { TD_MS_AGENTS = 64, TD_MS_MEMBERS = 1024, TD_MS_TEXT = 256 };

/* What the machine carries without looking at it: placement.h decides about it. */
typedef struct td__ms_content {
    uint64_t generation; /* 0: none yet */
    uint64_t order;      /* the last order of the operator that is in here */
    uint32_t wanted;     /* ranks */
    int32_t status;      /* of the job, once it is over */
    uint8_t ending;      /* the generation is to end at the next step border */
    uint8_t finishing;   /* a member has done its work */
    uint8_t over;        /* the job is */
    uint8_t pad[5];
    uint16_t target[TD_MS_AGENTS];   /* processes that each agent is to run */
    char store[64];                  /* where the generation's ranks meet */
    char why[TD_MS_TEXT];            /* the generation came to be */
    char cause[TD_MS_TEXT];          /* the job ended */
    uint32_t given_up[TD_MS_AGENTS]; /* places on each agent, so far, that `wanted` is without */
    uint32_t pad2, n_members;
    uint32_t member[TD_MS_MEMBERS]; /* td__ms_proc of each rank */
} td__ms_content;

typedef struct td__ms_state {
    uint64_t term, position;
    uint64_t voters, before; /* bit a: agent a; before: of the state before */
    uint64_t known;          /* agents that have been voters */
    td__ms_content content;
} td__ms_state;
static_assert(offsetof(td__ms_state, content) == 40, "wire");
static_assert(offsetof(td__ms_content, target) == 32 && offsetof(td__ms_content, store) == 160,
              "wire");
static_assert(offsetof(td__ms_content, member) == 1000, "wire");

/* A process: the agent that started it, and how many it had started before. Never used again. */
static inline uint32_t td__ms_proc(int agent, uint32_t count)
{
    return (uint32_t)agent << 24 | (count & 0xffffff);
}
static inline int td__ms_proc_agent(uint32_t proc)
{
    return (int)(proc >> 24);
}

typedef enum td__ms_kind {
    TD_MS_HEARTBEAT, /* I am here; leaders: decided, the position up to which all is */
    TD_MS_ASK,       /* let me lead in this term */
    TD_MS_PROMISE,   /* yes: and this is the last state that I accepted */
    TD_MS_STATE,     /* accept this */
    TD_MS_ACK,       /* done: position */
    TD_MS_OUT,       /* you are not a voter any more */
    TD_MS_KIND_COUNT
} td__ms_kind;

typedef struct td__ms_msg {
    uint32_t kind;
    uint32_t leading;
    uint64_t term, position, decided;
    uint64_t accepted_term; /* BEAT: of the state at `position` that the sender has accepted */
    td__ms_state state;     /* PROMISE, STATE */
} td__ms_msg;
static_assert(offsetof(td__ms_msg, state) == 40, "wire");

/* Bytes of a message on the wire: it ends with the last member. */
size_t td__ms_msg_nbytes(const td__ms_msg *m);
/* Is what came a message? */
bool td__ms_msg_good(const td__ms_msg *m, size_t nbytes);

typedef struct td__ms_ops {
    void (*send)(void *user, int to, const td__ms_msg *m);
    /* A state is decided. May come more than once; positions never fall. */
    void (*decided)(void *user, const td__ms_state *s);
    /* This agent must not go on: it was expelled, or is on the smaller side. Once. */
    void (*stop)(void *user, const char *why);
} td__ms_ops;

typedef struct td__ms_config {
    int self;
    uint64_t voters;       /* at the start, the same on all; a later agent is not among them */
    uint64_t heartbeat_ns; /* 200 ms */
    uint64_t silence_ns;   /* 1 s */
    uint64_t give_up_ns;   /* without a leader: 10 s */
} td__ms_config;

typedef struct td__ms {
    td__ms_config c;
    uint64_t term; /* highest that was promised or seen */
    int leader;    /* of that term; -1: not known */
    bool leading, asking, stopped;
    uint64_t votes, acks;
    td__ms_state best; /* asking: newest of those who promised */
    td__ms_state accepted, decided;
    uint64_t dead;
    uint64_t peers; /* agents that there is a connection to */
    uint64_t heard_ns[TD_MS_AGENTS];
    uint64_t heartbeat_at;
    uint64_t asked_ns; /* when this agent asked, or promised */
    uint64_t led_ns;   /* when there last was a leader */
} td__ms;

void td__ms_init(td__ms *m, const td__ms_config *c, const td__ms_content *first, uint64_t now);

/* What happens, each with the time; ops are called from within. */
void td__ms_peer(td__ms *m, uint64_t now, int agent); /* there is a connection to it */
void td__ms_hear(td__ms *m, uint64_t now, int from, const td__ms_msg *msg, const td__ms_ops *ops,
                 void *user);
void td__ms_lost(td__ms *m, uint64_t now, int agent, const td__ms_ops *ops, void *user);
void td__ms_tick(td__ms *m, uint64_t now, const td__ms_ops *ops, void *user);
/* When to tick next. */
uint64_t td__ms_deadline(const td__ms *m);

/* This agent leads, and everything that it proposed is decided. */
bool td__ms_may_propose(const td__ms *m);
/* Voters that are neither dead nor silent. */
uint64_t td__ms_alive(const td__ms *m, uint64_t now);
/* Would `some` of these voters be a quorum? */
bool td__ms_quorum(uint64_t voters, uint64_t some, uint64_t dead);
/* The next state of the chain; only where td__ms_may_propose. */
void td__ms_propose(td__ms *m, uint64_t now, uint64_t voters, const td__ms_content *content,
                    const td__ms_ops *ops, void *user);

#endif
