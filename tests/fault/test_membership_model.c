/* test_membership_model.c -- the membership protocol (docs/membership.md), run exhaustively: three
 * agents, every order of everything that can happen, down to a bounded depth.
 *
 * What can happen: a message arrives, is lost, arrives twice; an agent looks at the clock; time
 * passes, a little or more than the silence that counts as death; an agent dies (its kernel tells
 * the others, after all that it had said); an agent is stopped, and goes on; the operator wants
 * another generation. Faults have budgets, everything else has none but the depth. States that were
 * met before with as much depth left are not entered again.
 *
 * What must hold, in every state: see check_decided. And from a sample of the states, when faults
 * stop and everybody who can run does: if those are a quorum, they have one leader and a generation
 * of exactly themselves.
 *
 * The checker can fail: when deaths are reported that did not happen, which the protocol excludes,
 * it must find two memberships for one place. The full test goes two events deeper. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread, full */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/membership.h"
#include "support/check.h"
#include "support/full.h"

enum {
    N = 3,
    QUEUE = 4,   /* messages between two agents; more are lost, as on a link that is cut */
    PLACES = 12, /* positions of the chain that are kept track of */
    GENERATIONS = 12,
    MOST_STATES = 1 << 16,
    VISITED_BITS = 22,
    HEARTBEAT = 1,
    SILENCE = 10,
    FAIR_ROUNDS = 60,
};

/* States of the chain are kept once each: everything else holds their number. */
typedef struct pool {
    td__ms_state *state; /* (MOST_STATES) */
    uint64_t *hash;      /* (MOST_STATES) */
    uint16_t *table;     /* (2 * MOST_STATES), by hash; 0: free */
    int n;
} pool;

typedef struct message {
    uint8_t kind, leading;
    uint16_t state;
    uint32_t pad; /* messages are compared and hashed as bytes */
    uint64_t term, position, decided, accepted_term;
} message;

typedef struct agent {
    uint64_t term, votes, acks, dead, heard[N], heartbeat_at, asked_ns, led_ns;
    int leader;
    bool leading, asking, stopped, crashed, paused;
    uint16_t best, accepted, decided;
} agent;

/* Who ever accepted what was then decided, at a place of the chain, and as a generation. */
typedef struct fact {
    uint16_t state; /* 0: none */
    uint8_t knew;   /* agents that accepted it */
    uint8_t pad;
} fact;

typedef struct world {
    agent a[N];
    message queue[N][N][QUEUE];
    uint8_t n_queue[N][N];
    bool end[N][N]; /* the kernel of the first has yet to tell the second of its death */
    fact place[PLACES], generation[GENERATIONS];
    uint64_t now;
    uint8_t losses, copies, crashes, pauses, waits, silences, orders, lies;
} world;

typedef struct model {
    pool p;
    uint64_t *seen; /* hash, its low 8 bits the depth that was left */
    bool fair;      /* look at how it goes on after the faults */
    uint64_t n_states, n_steps, n_fair, n_violations;
    const char *violation;
    /* The agent at work. */
    world *w;
    int at;
    td__ms ms;
    td__ms_msg msg;
} model;

/* ---- keeping states ---- */

static uint64_t mix(uint64_t h, const void *data, size_t nbytes)
{
    const uint8_t *p = data;
    for (uint64_t v; nbytes >= sizeof v; nbytes -= sizeof v, p += sizeof v) {
        memcpy(&v, p, sizeof v);
        h = (h ^ v) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    for (; nbytes; nbytes--)
        h = (h ^ *p++) * 0x100000001b3u;
    return h ^ h >> 29;
}

static uint64_t hash_state(const td__ms_state *s)
{
    const td__ms_content *c = &s->content;
    uint64_t h = mix(0xcbf29ce484222325u, s, offsetof(td__ms_state, content));
    h = mix(h, &c->generation, sizeof c->generation);
    return mix(h, c->member, c->n_members * sizeof c->member[0]);
}

static uint16_t keep(model *m, const td__ms_state *s)
{
    uint64_t h = hash_state(s);
    uint16_t *e = &m->p.table[h % (2 * MOST_STATES)];
    for (; *e; e = e + 1 < m->p.table + 2 * MOST_STATES ? e + 1 : m->p.table)
        if (m->p.hash[*e] == h)
            return *e;
    assert_true(m->p.n < MOST_STATES - 1);
    *e = (uint16_t)m->p.n;
    m->p.state[m->p.n] = *s;
    m->p.hash[m->p.n] = h;
    return (uint16_t)m->p.n++;
}

/* Without the places for members that there are not. */
static void copy_state(td__ms_state *to, const td__ms_state *from)
{
    memcpy(to, from,
           offsetof(td__ms_state, content) + offsetof(td__ms_content, member) +
               N * sizeof from->content.member[0]);
}

static void load(model *m, world *w, int i)
{
    const agent *a = &w->a[i];
    m->w = w;
    m->at = i;
    m->ms.c.self = i;
    m->ms.term = a->term, m->ms.votes = a->votes, m->ms.acks = a->acks, m->ms.dead = a->dead;
    m->ms.heartbeat_at = a->heartbeat_at, m->ms.asked_ns = a->asked_ns, m->ms.led_ns = a->led_ns;
    m->ms.leader = a->leader, m->ms.leading = a->leading, m->ms.asking = a->asking;
    m->ms.stopped = a->stopped;
    memcpy(m->ms.heard_ns, a->heard, sizeof a->heard);
    copy_state(&m->ms.best, &m->p.state[a->best]);
    copy_state(&m->ms.accepted, &m->p.state[a->accepted]);
    copy_state(&m->ms.decided, &m->p.state[a->decided]);
}

static void note_accepted(model *m, world *w, uint16_t state)
{
    const td__ms_state *s = &m->p.state[state];
    for (int i = 0; i < PLACES; i++) {
        fact *f[] = {&w->place[i], i < GENERATIONS ? &w->generation[i] : &w->place[i]};
        for (int k = 0; k < 2; k++) {
            const td__ms_state *t = &m->p.state[f[k]->state];
            if (f[k]->state && t->position == s->position &&
                t->content.generation == s->content.generation && t->voters == s->voters)
                f[k]->knew |= (uint8_t)(1u << m->at);
        }
    }
}

static void store(model *m)
{
    agent *a = &m->w->a[m->at];
    a->term = m->ms.term, a->votes = m->ms.votes, a->acks = m->ms.acks, a->dead = m->ms.dead;
    a->heartbeat_at = m->ms.heartbeat_at, a->asked_ns = m->ms.asked_ns, a->led_ns = m->ms.led_ns;
    a->leader = m->ms.leader, a->leading = m->ms.leading, a->asking = m->ms.asking;
    a->stopped = m->ms.stopped;
    memcpy(a->heard, m->ms.heard_ns, sizeof a->heard);
    a->best = keep(m, &m->ms.best);
    a->accepted = keep(m, &m->ms.accepted);
    a->decided = keep(m, &m->ms.decided);
    note_accepted(m, m->w, a->accepted);
}

/* ---- what must hold ---- */

static void violated(model *m, const char *what)
{
    m->n_violations++;
    m->violation = m->violation ? m->violation : what;
}

static bool same_members(const td__ms_state *a, const td__ms_state *b)
{
    return a->content.n_members == b->content.n_members &&
           !memcmp(a->content.member, b->content.member,
                   a->content.n_members * sizeof a->content.member[0]);
}

/* Two different things in one place: only if nobody who knew the first is left. */
static void check_fact(model *m, fact *f, const td__ms_state *s, bool same, const char *what)
{
    if (f->state && !same) {
        for (int i = 0; i < N; i++)
            if ((f->knew & 1u << i) && !m->w->a[i].crashed)
                violated(m, what);
        f->state = 0;
        f->knew = 0;
    }
    if (!f->state) {
        f->state = keep(m, s);
        for (int i = 0; i < N; i++) {
            const td__ms_state *t = &m->p.state[m->w->a[i].accepted];
            if (t->position == s->position && t->voters == s->voters &&
                t->content.generation == s->content.generation)
                f->knew |= (uint8_t)(1u << i);
        }
    }
    f->knew |= (uint8_t)(1u << m->at);
}

static void check_decided(void *user, const td__ms_state *s)
{
    model *m = user;
    const td__ms_state *old = &m->p.state[m->w->a[m->at].decided];
    uint64_t g = s->content.generation;
    if (s->position < old->position || g < old->content.generation)
        violated(m, "a position or a generation fell");
    if (old->known & ~old->voters & s->voters)
        violated(m, "an agent that was out is in again");
    if (s->position < PLACES) {
        fact *f = &m->w->place[s->position];
        const td__ms_state *t = &m->p.state[f->state];
        check_fact(m, f, s,
                   t->voters == s->voters && t->content.generation == g && same_members(s, t),
                   "two states were decided for one place");
    }
    if (g && g < GENERATIONS) {
        fact *f = &m->w->generation[g];
        check_fact(m, f, s, same_members(s, &m->p.state[f->state]),
                   "one generation has two memberships");
    }
}

static void check_leaders(model *m, const world *w)
{
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++)
            if (w->a[i].leading && w->a[k].leading && w->a[i].term == w->a[k].term)
                violated(m, "two agents lead in one term");
}

/* ---- what agents do ---- */

static void send_message(void *user, int to, const td__ms_msg *msg)
{
    model *m = user;
    world *w = m->w;
    uint8_t *n = &w->n_queue[m->at][to];
    message *q = w->queue[m->at][to];
    bool full = msg->kind == TD_MS_PROMISE || msg->kind == TD_MS_STATE;
    message one = {.kind = (uint8_t)msg->kind,
                   .leading = msg->leading != 0,
                   .state = full ? keep(m, &msg->state) : 0,
                   .term = msg->term,
                   .position = msg->position,
                   .decided = msg->decided,
                   .accepted_term = msg->accepted_term};
    if (w->a[to].crashed || *n == QUEUE)
        return;
    if (*n && !memcmp(&q[*n - 1], &one, sizeof one))
        return; /* once more the same changes nothing: all messages may be repeated */
    q[(*n)++] = one;
}

static void must_stop(void *user, const char *why)
{
    (void)user;
    (void)why;
}

static const td__ms_ops OPS = {.send = send_message, .decided = check_decided, .stop = must_stop};

/* As the agent does after everything that happens: what has changed becomes a generation. */
static void lead(model *m, bool order)
{
    for (; td__ms_may_propose(&m->ms); order = false) {
        const td__ms_state *s = &m->ms.accepted;
        uint64_t alive = td__ms_alive(&m->ms, m->w->now);
        if (!td__ms_quorum(s->voters, alive, m->ms.dead) ||
            (alive == s->voters && s->content.generation && !order))
            return;
        td__ms_content next = s->content;
        next.generation++;
        next.n_members = 0;
        for (int i = 0; i < N; i++)
            if (alive & (uint64_t)1 << i)
                next.member[next.n_members++] = td__ms_proc(i, 1);
        td__ms_propose(&m->ms, m->w->now, alive, &next, &OPS, m);
    }
}

static void deliver(model *m, world *w, int from, int to, bool keep_it)
{
    message one = w->queue[from][to][0];
    if (!keep_it)
        memmove(w->queue[from][to], w->queue[from][to] + 1,
                (size_t)--w->n_queue[from][to] * sizeof one);
    load(m, w, to);
    td__ms_msg *msg = &m->msg;
    msg->kind = one.kind, msg->leading = one.leading, msg->term = one.term;
    msg->position = one.position, msg->decided = one.decided;
    msg->accepted_term = one.accepted_term;
    copy_state(&msg->state, &m->p.state[one.state]);
    td__ms_hear(&m->ms, w->now, from, msg, &OPS, m);
    lead(m, false);
    store(m);
}

static void hear_death(model *m, world *w, int who, int to)
{
    w->end[who][to] = false;
    load(m, w, to);
    td__ms_lost(&m->ms, w->now, who, &OPS, m);
    lead(m, false);
    store(m);
}

static void tick(model *m, world *w, int i, bool order)
{
    load(m, w, i);
    td__ms_tick(&m->ms, w->now, &OPS, m);
    lead(m, order);
    store(m);
}

static void crash(world *w, int i)
{
    w->a[i].crashed = true;
    w->a[i].leading = w->a[i].asking = false;
    for (int k = 0; k < N; k++) {
        w->n_queue[k][i] = 0;
        w->end[i][k] = k != i && !w->a[k].crashed;
    }
}

/* An agent that must not go on kills its processes and ends: to the others that is its death. */
static void bury(world *w)
{
    for (int i = 0; i < N; i++)
        if (w->a[i].stopped && !w->a[i].crashed)
            crash(w, i);
}

static bool runs(const world *w, int i)
{
    return !w->a[i].crashed && !w->a[i].paused;
}

/* ---- after the faults ---- */

static void deliver_all(model *m, world *w)
{
    for (int round = 0; round < 50; round++) {
        bool any = false;
        for (int i = 0; i < N; i++)
            for (int k = 0; k < N; k++) {
                if (!runs(w, k))
                    continue;
                while (w->n_queue[i][k] && runs(w, k)) {
                    deliver(m, w, i, k, false);
                    bury(w);
                    any = true;
                }
                if (w->end[i][k] && runs(w, k)) {
                    hear_death(m, w, i, k);
                    bury(w);
                    any = true;
                }
            }
        if (!any)
            return;
    }
}

/* Could those that run go on, whatever the others may have accepted? */
static bool can_go_on(model *m, const world *w, uint64_t run, uint64_t dead)
{
    for (int i = 0; i < N; i++) {
        const td__ms_state *s = &m->p.state[w->a[i].accepted];
        if (!w->a[i].crashed &&
            (!td__ms_quorum(s->before, run, dead) || !td__ms_quorum(s->voters, run, dead)))
            return false;
    }
    return run != 0;
}

static void check_fair(model *m, const world *start)
{
    world w = *start;
    uint64_t run = 0, dead = 0;
    int leader = -1;
    for (int round = 0; round < FAIR_ROUNDS; round++) {
        w.now += HEARTBEAT;
        for (int i = 0; i < N; i++)
            if (runs(&w, i))
                tick(m, &w, i, false);
        bury(&w);
        deliver_all(m, &w);
    }
    for (int i = 0; i < N; i++) {
        run |= runs(&w, i) ? (uint64_t)1 << i : 0;
        dead |= w.a[i].crashed ? (uint64_t)1 << i : 0;
    }
    if (!can_go_on(m, &w, run, dead))
        return;
    m->n_fair++;
    for (int i = 0; i < N; i++)
        if (w.a[i].leading && runs(&w, i))
            leader = leader < 0 ? i : N;
    if (leader < 0 || leader == N) {
        violated(m, "a quorum that runs undisturbed has not one leader");
        return;
    }
    const td__ms_state *s = &m->p.state[w.a[leader].decided];
    if (s->voters & ~run)
        violated(m, "a voter that does not run is still in");
    if (!s->content.generation)
        violated(m, "a quorum that runs undisturbed has no generation");
    for (int i = 0; i < N; i++)
        if (runs(&w, i) && (s->voters & (uint64_t)1 << i) &&
            m->p.state[w.a[i].decided].content.generation != s->content.generation)
            violated(m, "a member does not know its generation");
}

/* ---- the search ---- */

static uint64_t hash_world(model *m, const world *w)
{
    uint64_t h = 0xcbf29ce484222325u;
    (void)m;
    for (int i = 0; i < N; i++) {
        const agent *a = &w->a[i];
        uint64_t v[] = {a->term,
                        a->votes,
                        a->acks,
                        a->dead,
                        w->now >= a->heartbeat_at,
                        w->now - a->asked_ns < 4 ? w->now - a->asked_ns : 4,
                        w->now - a->led_ns < 64 ? w->now - a->led_ns : 64,
                        (uint64_t)a->leader,
                        (uint64_t)(a->leading | a->asking << 1 | a->stopped << 2 | a->crashed << 3 |
                                   a->paused << 4),
                        a->best,
                        a->accepted,
                        a->decided};
        h = mix(h, v, sizeof v);
        for (int k = 0; k < N; k++) {
            uint64_t old = w->now - a->heard[k];
            old = old < 2 * SILENCE ? old : 2 * SILENCE;
            h = mix(h, &old, sizeof old);
            h = mix(h, w->queue[i][k], w->n_queue[i][k] * sizeof w->queue[0][0][0]);
            h = mix(h, &w->n_queue[i][k], 1);
            h = mix(h, &w->end[i][k], 1);
        }
    }
    h = mix(h, w->place, sizeof w->place);
    h = mix(h, w->generation, sizeof w->generation);
    return mix(h, &w->losses, offsetof(world, lies) + 1 - offsetof(world, losses));
}

/* true: was met before with at least this depth left. */
static bool was_seen(model *m, const world *w, int depth)
{
    uint64_t h = hash_world(m, w), key = h & ~(uint64_t)255;
    uint64_t mask = ((uint64_t)1 << VISITED_BITS) - 1, at = (h >> 20) & mask;
    for (int i = 0; i < 16; i++, at = (at + 1) & mask) {
        uint64_t *e = &m->seen[at];
        if (*e && (*e & ~(uint64_t)255) == key) {
            if ((int)(*e & 255) >= depth + 1)
                return true;
            *e = key | (uint64_t)(depth + 1);
            return false;
        }
        if (!*e) {
            *e = key | (uint64_t)(depth + 1);
            m->n_states++;
            return false;
        }
    }
    return false; /* the table is crowded here: entered twice at worst */
}

static void explore(model *m, const world *w, int depth);

static void go_on(model *m, world *w, int depth)
{
    bury(w);
    check_leaders(m, w);
    m->n_steps++;
    explore(m, w, depth - 1);
}

static void explore_messages(model *m, const world *w, int depth)
{
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            if (!runs(w, k))
                continue;
            world x = *w;
            if (w->n_queue[i][k]) {
                deliver(m, &x, i, k, false);
                go_on(m, &x, depth);
            } else if (w->end[i][k]) {
                hear_death(m, &x, i, k);
                go_on(m, &x, depth);
            }
            if (w->n_queue[i][k] && w->copies) {
                x = *w;
                x.copies--;
                deliver(m, &x, i, k, true);
                go_on(m, &x, depth);
            }
            if (w->n_queue[i][k] && w->losses) {
                x = *w;
                x.losses--;
                memmove(x.queue[i][k], x.queue[i][k] + 1,
                        (size_t)--x.n_queue[i][k] * sizeof x.queue[0][0][0]);
                go_on(m, &x, depth);
            }
            if (w->lies && i != k && runs(w, i)) {
                x = *w;
                x.lies--;
                hear_death(m, &x, i, k);
                go_on(m, &x, depth);
            }
        }
}

static void explore_agents(model *m, const world *w, int depth)
{
    for (int i = 0; i < N; i++) {
        const agent *a = &w->a[i];
        world x = *w;
        if (runs(w, i) && (w->now >= a->heartbeat_at || (a->leader < 0 && !a->leading))) {
            tick(m, &x, i, false);
            go_on(m, &x, depth);
        }
        if (runs(w, i) && a->leading && w->orders) {
            x = *w;
            x.orders--;
            tick(m, &x, i, true);
            go_on(m, &x, depth);
        }
        if (!a->crashed && w->crashes) {
            x = *w;
            x.crashes--;
            crash(&x, i);
            go_on(m, &x, depth);
        }
        if (!a->crashed && (a->paused || w->pauses)) {
            x = *w;
            x.pauses = (uint8_t)(x.pauses - !a->paused);
            x.a[i].paused = !a->paused;
            go_on(m, &x, depth);
        }
    }
}

static void explore(model *m, const world *w, int depth)
{
    if (was_seen(m, w, depth) || m->n_violations)
        return;
    if (m->fair && m->n_states % 256 == 0)
        check_fair(m, w);
    if (!depth)
        return;
    explore_messages(m, w, depth);
    explore_agents(m, w, depth);
    for (int i = 0; i < 2; i++)
        if (i ? w->silences : w->waits) {
            world x = *w;
            if (i)
                x.silences--;
            else
                x.waits--;
            x.now += i ? SILENCE + 1 : 2 * HEARTBEAT;
            go_on(m, &x, depth);
        }
}

/* ---- tests ---- */

static void model_init(model *m)
{
    *m = (model){0};
    m->p.state = calloc(MOST_STATES, sizeof *m->p.state);
    m->p.hash = calloc(MOST_STATES, sizeof *m->p.hash);
    m->p.table = calloc(2 * MOST_STATES, sizeof *m->p.table);
    m->seen = calloc((size_t)1 << VISITED_BITS, sizeof *m->seen);
    assert_true(m->p.state && m->p.hash && m->p.table && m->seen);
    m->p.n = 1; /* 0: none */
    m->ms.c = (td__ms_config){.voters = (1u << N) - 1,
                              .heartbeat_ns = HEARTBEAT,
                              .silence_ns = SILENCE,
                              .give_up_ns = 100000};
}

static void model_fini(model *m)
{
    free(m->p.state);
    free(m->p.hash);
    free(m->p.table);
    free(m->seen);
}

static void world_init(model *m, world *w, const world *budgets)
{
    td__ms_content *first = calloc(1, sizeof *first);
    *w = *budgets;
    w->now = 1000;
    assert_non_null(first);
    for (int i = 0; i < N; i++) {
        td__ms_config c = m->ms.c;
        c.self = i;
        td__ms_init(&m->ms, &c, first, w->now);
        m->w = w;
        m->at = i;
        w->a[i].heartbeat_at = w->now;
        store(m);
    }
    free(first);
}

/* From the very beginning, and from a generation that all have. */
static void search(const world *budgets, bool settled, int depth, const char *name, bool lies)
{
    model m;
    world w;
    model_init(&m);
    m.fair = !lies;
    world_init(&m, &w, budgets);
    for (int round = 0; settled && round < 3; round++) {
        for (int i = 0; i < N; i++)
            tick(&m, &w, i, false);
        deliver_all(&m, &w);
        w.now += HEARTBEAT;
    }
    if (settled)
        assert_true(m.p.state[w.a[N - 1].decided].content.generation == 1);
    explore(&m, &w, depth);
    printf("%s, depth %d: %llu states, %llu steps, %llu runs to the end%s%s\n", name, depth,
           (unsigned long long)m.n_states, (unsigned long long)m.n_steps,
           (unsigned long long)m.n_fair, m.violation ? "; found: " : "",
           m.violation ? m.violation : "");
    if (lies)
        assert_true(m.n_violations > 0);
    else if (m.n_violations)
        fail_msg("%s: %s", name, m.violation);
    model_fini(&m);
}

static void every_order_keeps_one_chain(void **unused)
{
    static const struct {
        const char *name;
        world budgets;
        bool settled;
        int depth;
    } CASES[] = {
        {"beginning", {.losses = 1, .copies = 1, .crashes = 1, .silences = 1}, false, 8},
        {"deaths", {.crashes = 2, .orders = 1}, true, 20},
        {"deaths, losses and copies",
         {.crashes = 2, .losses = 1, .copies = 1, .orders = 1},
         true,
         10},
        {"losses and silence", {.losses = 2, .silences = 1, .orders = 1}, true, 8},
        {"stops", {.pauses = 1, .silences = 2}, true, 8},
        {"stops and deaths", {.pauses = 1, .crashes = 1, .silences = 1, .orders = 1}, true, 8},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        search(&CASES[i].budgets, CASES[i].settled, CASES[i].depth + (full_test() ? 2 : 0),
               CASES[i].name, false);
}

static void deaths_that_did_not_happen_are_found_out(void **unused)
{
    (void)unused;
    search(&(world){.lies = 2, .waits = 1, .orders = 1}, true, 12, "false deaths", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_keeps_one_chain),
        cmocka_unit_test(deaths_that_did_not_happen_are_found_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
