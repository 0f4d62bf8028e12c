/* membership_model.c -- see membership_model.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/membership_model.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"

enum { MOST_STATES = 1 << 16 };

/* ---- keeping states ---- */

uint64_t ms_model_mix(uint64_t h, const void *data, size_t nbytes)
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
    uint64_t h = ms_model_mix(0xcbf29ce484222325u, s, offsetof(td__ms_state, content));
    h = ms_model_mix(h, &c->generation, sizeof c->generation);
    return ms_model_mix(h, c->member, c->n_members * sizeof c->member[0]);
}

static uint16_t keep(ms_model *m, const td__ms_state *s)
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
               MS_AGENTS * sizeof from->content.member[0]);
}

static void load(ms_model *m, ms_world *w, int i)
{
    const ms_model_agent *a = &w->a[i];
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

static void note_accepted(ms_model *m, ms_world *w, uint16_t state)
{
    const td__ms_state *s = &m->p.state[state];
    for (int i = 0; i < MS_PLACES; i++) {
        ms_model_fact *f[] = {&w->place[i], i < MS_GENERATIONS ? &w->generation[i] : &w->place[i]};
        for (int k = 0; k < 2; k++) {
            const td__ms_state *t = &m->p.state[f[k]->state];
            if (f[k]->state && t->position == s->position &&
                t->content.generation == s->content.generation && t->voters == s->voters)
                f[k]->knew |= (uint8_t)(1u << m->at);
        }
    }
}

static void store(ms_model *m)
{
    ms_model_agent *a = &m->w->a[m->at];
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

void ms_model_violated(ms_model *m, const char *what)
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
static void check_fact(ms_model *m, ms_model_fact *f, const td__ms_state *s, bool same,
                       const char *what)
{
    if (f->state && !same) {
        for (int i = 0; i < MS_AGENTS; i++)
            if ((f->knew & 1u << i) && !m->w->a[i].crashed)
                ms_model_violated(m, what);
        f->state = 0;
        f->knew = 0;
    }
    if (!f->state) {
        f->state = keep(m, s);
        for (int i = 0; i < MS_AGENTS; i++) {
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
    ms_model *m = user;
    const td__ms_state *old = &m->p.state[m->w->a[m->at].decided];
    uint64_t g = s->content.generation;
    if (s->position < old->position || g < old->content.generation)
        ms_model_violated(m, "a position or a generation fell");
    if (old->known & ~old->voters & s->voters)
        ms_model_violated(m, "an agent that was out is in again");
    if (s->position < MS_PLACES) {
        ms_model_fact *f = &m->w->place[s->position];
        const td__ms_state *t = &m->p.state[f->state];
        check_fact(m, f, s,
                   t->voters == s->voters && t->content.generation == g && same_members(s, t),
                   "two states were decided for one place");
    }
    if (g && g < MS_GENERATIONS) {
        ms_model_fact *f = &m->w->generation[g];
        check_fact(m, f, s, same_members(s, &m->p.state[f->state]),
                   "one generation has two memberships");
    }
}

void ms_model_check_leaders(ms_model *m, const ms_world *w)
{
    for (int i = 0; i < MS_AGENTS; i++)
        for (int k = 0; k < i; k++)
            if (w->a[i].leading && w->a[k].leading && w->a[i].term == w->a[k].term)
                ms_model_violated(m, "two agents lead in one term");
}

/* ---- what agents do ---- */

static void send_message(void *user, int to, const td__ms_msg *msg)
{
    ms_model *m = user;
    ms_world *w = m->w;
    uint8_t *n = &w->n_queue[m->at][to];
    ms_model_message *q = w->queue[m->at][to];
    bool full = msg->kind == TD_MS_PROMISE || msg->kind == TD_MS_STATE;
    ms_model_message one = {.kind = (uint8_t)msg->kind,
                            .leading = msg->leading != 0,
                            .state = full ? keep(m, &msg->state) : 0,
                            .term = msg->term,
                            .position = msg->position,
                            .decided = msg->decided,
                            .accepted_term = msg->accepted_term};
    if (w->a[to].crashed || *n == MS_QUEUE)
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
static void lead(ms_model *m, bool order)
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
        for (int i = 0; i < MS_AGENTS; i++)
            if (alive & (uint64_t)1 << i)
                next.member[next.n_members++] = td__ms_proc(i, 1);
        td__ms_propose(&m->ms, m->w->now, alive, &next, &OPS, m);
    }
}

void ms_model_deliver(ms_model *m, ms_world *w, int from, int to, bool keep_it)
{
    ms_model_message one = w->queue[from][to][0];
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

void ms_model_hear_death(ms_model *m, ms_world *w, int who, int to)
{
    w->end[who][to] = false;
    load(m, w, to);
    td__ms_lost(&m->ms, w->now, who, &OPS, m);
    lead(m, false);
    store(m);
}

void ms_model_tick(ms_model *m, ms_world *w, int i, bool order)
{
    load(m, w, i);
    td__ms_tick(&m->ms, w->now, &OPS, m);
    lead(m, order);
    store(m);
}

void ms_world_crash(ms_world *w, int i)
{
    w->a[i].crashed = true;
    w->a[i].leading = w->a[i].asking = false;
    for (int k = 0; k < MS_AGENTS; k++) {
        w->n_queue[k][i] = 0;
        w->end[i][k] = k != i && !w->a[k].crashed;
    }
}

void ms_world_bury(ms_world *w)
{
    for (int i = 0; i < MS_AGENTS; i++)
        if (w->a[i].stopped && !w->a[i].crashed)
            ms_world_crash(w, i);
}

bool ms_world_runs(const ms_world *w, int i)
{
    return !w->a[i].crashed && !w->a[i].paused;
}

/* ---- beginning and end ---- */

void ms_model_init(ms_model *m)
{
    *m = (ms_model){0};
    m->p.state = calloc(MOST_STATES, sizeof *m->p.state);
    m->p.hash = calloc(MOST_STATES, sizeof *m->p.hash);
    m->p.table = calloc(2 * MOST_STATES, sizeof *m->p.table);
    assert_true(m->p.state && m->p.hash && m->p.table);
    m->p.n = 1; /* 0: none */
    m->ms.c = (td__ms_config){.voters = (1u << MS_AGENTS) - 1,
                              .heartbeat_ns = MS_HEARTBEAT,
                              .silence_ns = MS_SILENCE,
                              .give_up_ns = 100000};
}

void ms_model_fini(ms_model *m)
{
    free(m->p.state);
    free(m->p.hash);
    free(m->p.table);
}

void ms_world_init(ms_model *m, ms_world *w, const ms_world *budgets)
{
    td__ms_content *first = calloc(1, sizeof *first);
    *w = *budgets;
    w->now = 1000;
    assert_non_null(first);
    for (int i = 0; i < MS_AGENTS; i++) {
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
