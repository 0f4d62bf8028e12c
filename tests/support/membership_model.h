/* membership_model.h -- the membership protocol (docs/membership.md) as a model: three agents, the
 * messages between them, and what must hold in every state. What happens, and in which order, is
 * the caller's choice (tests/fault/test_membership_model.c).
 *
 * A world is a value: it is copied to try one event, and compared by its bytes. States of the chain
 * are kept once each, in the model; worlds hold their numbers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_MEMBERSHIP_MODEL_H
#define TD_TESTS_SUPPORT_MEMBERSHIP_MODEL_H

#include "launch/membership.h"

enum {
    MS_AGENTS = 3,
    MS_QUEUE = 4,   /* messages between two agents; more are lost, as on a link that is cut */
    MS_PLACES = 12, /* positions of the chain that are kept track of */
    MS_GENERATIONS = 12,
    MS_HEARTBEAT = 1,
    MS_SILENCE = 10,
};

/* States of the chain are kept once each: everything else holds their number. */
typedef struct ms_model_pool {
    td__ms_state *state; /* (MOST_STATES) */
    uint64_t *hash;      /* (MOST_STATES) */
    uint16_t *table;     /* (2 * MOST_STATES), by hash; 0: free */
    int n;
} ms_model_pool;

typedef struct ms_model_message {
    uint8_t kind, leading;
    uint16_t state;
    uint32_t pad; /* messages are compared and hashed as bytes */
    uint64_t term, position, decided, accepted_term;
} ms_model_message;

typedef struct ms_model_agent {
    uint64_t term, votes, acks, dead, heard[MS_AGENTS], heartbeat_at, asked_ns, led_ns;
    int leader;
    bool leading, asking, stopped, crashed, paused;
    uint16_t best, accepted, decided;
} ms_model_agent;

/* Who ever accepted what was then decided, at a place of the chain, and as a generation. */
typedef struct ms_model_fact {
    uint16_t state; /* 0: none */
    uint8_t knew;   /* agents that accepted it */
    uint8_t pad;
} ms_model_fact;

typedef struct ms_world {
    ms_model_agent a[MS_AGENTS];
    ms_model_message queue[MS_AGENTS][MS_AGENTS][MS_QUEUE];
    uint8_t n_queue[MS_AGENTS][MS_AGENTS];
    bool end[MS_AGENTS][MS_AGENTS]; /* the first is dead, the second has yet to hear of it */
    ms_model_fact place[MS_PLACES], generation[MS_GENERATIONS];
    uint64_t now;
    uint8_t losses, copies, crashes, pauses, waits, silences, orders, lies;
} ms_world;

typedef struct ms_model {
    ms_model_pool p;
    uint64_t n_violations;
    const char *violation; /* the first */
    /* The agent at work. */
    ms_world *w;
    int at;
    td__ms ms;
    td__ms_msg msg;
} ms_model;

void ms_model_init(ms_model *m);
void ms_model_fini(ms_model *m);
/* All agents as they begin; `budgets` says how many faults of each kind may happen. */
void ms_world_init(ms_model *m, ms_world *w, const ms_world *budgets);

/* Something that must not happen has happened. Decisions are checked by the model itself. */
void ms_model_violated(ms_model *m, const char *what);
void ms_model_check_leaders(ms_model *m, const ms_world *w);

/* Events. The first message from one to another arrives; keep_it: and will arrive once more. */
void ms_model_deliver(ms_model *m, ms_world *w, int from, int to, bool keep_it);
void ms_model_hear_death(ms_model *m, ms_world *w, int who, int to);
/* An agent looks at the clock; order: the operator wants another generation. */
void ms_model_tick(ms_model *m, ms_world *w, int i, bool order);
void ms_world_crash(ms_world *w, int i);
/* An agent that must not go on kills its processes and ends: to the others that is its death. */
void ms_world_bury(ms_world *w);
bool ms_world_runs(const ms_world *w, int i);

uint64_t ms_model_mix(uint64_t h, const void *data, size_t nbytes);

#endif
