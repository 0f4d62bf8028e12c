/* test_placement_model.c -- how many ranks there are and who they are (launch/placement.h), run
 * exhaustively: two agents, every order of everything that can happen, down to a bounded depth.
 *
 * What can happen: an agent's report reaches the leader, which decides; the decision reaches an
 * agent, which starts, ends and tells its processes; a process is ready, leaves its generation at a
 * step border, ends when it was told to, dies, or is asked to go (SIGTERM); the operator gives an
 * order (scale). Reports and decisions may be late by any number of events, and every decision is
 * that of an agent that has just begun to lead. That agents agree on one chain of decisions is the
 * business of test_membership_model.c.
 *
 * What must hold in every state: see check_state. And when faults stop and all that is on its way
 * arrives: see check_fair.
 *
 * The checker can fail: where an agent gives a place up by an order for one rank less, as if it
 * knew of all that the others do at that moment, it must find a place that is filled again, or a
 * process that had to go in the place of another. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread, full */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/placement.h"
#include "support/check.h"
#include "support/full.h"

enum {
    N = 2,     /* agents, */
    SLOTS = 2, /* each with room for so many processes, */
    PROCS = 4, /* and for those that are ending */
    MIN = 1,
    VISITED_BITS = 20,
    FAIR_ROUNDS = 60,
};
static const uint64_t LONG = 20000000000u; /* no timer of the placement takes longer */

typedef enum life { NONE, STARTING, WAITING, BUSY } life;

typedef struct proc {
    uint32_t number; /* td__ms_proc */
    uint8_t life, leaving, told_end, spare;
    uint32_t out, told; /* generations: left; told of */
} proc;

typedef struct agent {
    proc p[PROCS];
    uint32_t n_started, given_up, order, wanted;
    uint32_t decision; /* that it knows of: a number of `decisions` */
} agent;

typedef struct world {
    agent a[N];
    agent seen[N]; /* by the leader: the last report of each */
    uint32_t decision;
    uint32_t n_orders, ordered;
    uint32_t n_given_up; /* places */
    uint32_t asked[N * PROCS], n_asked;
    uint8_t terms, deaths, orders;
} world;

typedef struct model {
    td__ms_state *decision; /* (n), kept once each */
    uint32_t n, max;
    uint64_t *visited;
    bool by_orders; /* places are given up by orders: the mistake that must be found */
    uint64_t n_states, n_fair;
    char violation[160];
} model;

static void violated(model *m, const char *what)
{
    if (!m->violation[0])
        snprintf(m->violation, sizeof m->violation, "%s", what);
}

static const td__ms_content *content(const model *m, uint32_t decision)
{
    return &m->decision[decision].content;
}

static uint32_t keep(model *m, const td__ms_state *s)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (!memcmp(&m->decision[i], s, sizeof *s))
            return i;
    if (m->n == m->max) {
        m->max = 2 * m->max + 64;
        m->decision = realloc(m->decision, m->max * sizeof *m->decision);
        CHECK(m->decision, "no memory");
    }
    m->decision[m->n] = *s;
    return m->n++;
}

static bool is_member(const td__ms_content *c, uint32_t number)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        if (c->member[i] == number)
            return true;
    return false;
}

/* ---- an agent, as launch/workers*.c are ---- */

static void give_up_place(model *m, world *w, agent *a, const proc *p)
{
    const td__ms_content *c = content(m, a->decision);
    if (p->spare)
        return;
    w->n_given_up++;
    if (!m->by_orders) {
        a->given_up++;
        return;
    }
    uint32_t wanted = a->order > c->order ? a->wanted : c->wanted;
    a->wanted = wanted - 1;
    a->order = (uint32_t)c->order + 1 + (a->order > c->order);
}

static void let_go(model *m, world *w, agent *a, proc *p)
{
    if (p->life && p->leaving && !p->told_end && !is_member(content(m, a->decision), p->number)) {
        give_up_place(m, w, a, p);
        p->told_end = true;
    }
}

static void agent_tick(model *m, world *w, int i)
{
    agent *a = &w->a[i];
    const td__ms_content *c = content(m, a->decision);
    uint32_t n_live = 0;
    for (int k = 0; k < PROCS; k++) {
        proc *p = &a->p[k];
        if (p->life && is_member(c, p->number) && p->told < c->generation) {
            p->told = (uint32_t)c->generation;
            p->life = BUSY;
        }
        let_go(m, w, a, p);
        n_live += p->life && !p->told_end;
    }
    for (int k = PROCS; k-- > 0 && n_live > c->target[i];) {
        proc *p = &a->p[k];
        if (p->life && !p->told_end && !is_member(c, p->number)) {
            p->told_end = true;
            n_live--;
        }
    }
    n_live += a->given_up - c->given_up[i];
    for (int k = 0; k < PROCS && n_live < c->target[i]; k++)
        if (!a->p[k].life) {
            a->p[k] = (proc){.number = td__ms_proc(i, ++a->n_started), .life = STARTING};
            n_live++;
        }
}

static void make_report(const agent *a, td__place_report *r)
{
    *r = (td__place_report){.number = 1,
                            .order = a->order,
                            .wanted = a->wanted,
                            .slots = SLOTS,
                            .given_up = a->given_up,
                            .host = "h"};
    for (int k = 0; k < PROCS; k++) {
        const proc *p = &a->p[k];
        if (p->life && !p->told_end)
            r->proc[r->n_procs++] = (td__place_proc){
                .proc = p->number,
                .state = p->life == STARTING  ? TD_PROC_STARTING
                         : p->life == WAITING ? TD_PROC_WAITING
                                              : TD_PROC_BUSY,
                .leaving = p->leaving,
                .out = p->out,
            };
    }
}

/* ---- the leader ---- */

static void decide(model *m, world *w)
{
    static td__place_report report[N];
    td__ms_state s = m->decision[w->decision];
    td__ms_content next;
    uint64_t voters;
    td__place p = {.min = MIN, .most_crashes = 5, .alive = (1u << N) - 1, .store = "store"};
    for (int i = 0; i < N; i++) {
        make_report(&w->seen[i], &report[i]);
        p.report[i] = &report[i];
    }
    p.since_ns = 1;
    p.grow_ns = 1; /* those who wait have waited long enough */
    for (int i = 0; i < 10 && td__place_next(&p, &s, LONG, &voters, &next); i++) {
        if (next.generation < s.content.generation || next.generation > s.content.generation + 1)
            violated(m, "a generation fell, or was left out");
        s.content = next;
        s.position++;
        p.grow_ns = 1;
        if (next.over)
            violated(m, "the job is over");
    }
    s.position = 0; /* states are told apart by what they say */
    w->decision = keep(m, &s);
}

/* ---- what must hold ---- */

static void check_state(model *m, const world *w)
{
    const td__ms_content *c = content(m, w->decision);
    for (uint32_t i = 0; i < c->n_members; i++)
        for (uint32_t k = 0; k < i; k++)
            if (c->member[i] == c->member[k])
                violated(m, "one process has two ranks");
    if (c->wanted < MIN || c->wanted > N * SLOTS)
        violated(m, "fewer are wanted than the least, or more than there is room for");
}

static bool was_asked(const world *w, uint32_t number)
{
    for (uint32_t i = 0; i < w->n_asked; i++)
        if (w->asked[i] == number)
            return true;
    return false;
}

/* At a step border, or because the others have gone on. */
static void leave_generation(model *m, agent *a, proc *p)
{
    const td__ms_content *c = content(m, a->decision);
    if (p->life == BUSY && (c->generation > p->told || c->ending)) {
        p->out = p->told;
        p->life = WAITING;
    }
}

static void step_proc(model *m, agent *a, proc *p)
{
    if (p->told_end)
        *p = (proc){0};
    else if (p->life == STARTING)
        p->life = WAITING;
    else
        leave_generation(m, a, p);
}

/* Everything that is on its way arrives, again and again. */
static void settle(model *m, world *w)
{
    for (int round = 0; round < FAIR_ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            w->seen[i] = w->a[i];
        decide(m, w);
        for (int i = 0; i < N; i++) {
            w->a[i].decision = w->decision;
            agent_tick(m, w, i);
            for (int k = 0; k < PROCS; k++)
                step_proc(m, &w->a[i], &w->a[i].p[k]);
        }
    }
}

static void check_fair(model *m, const world *from, bool steady)
{
    world w = *from;
    settle(m, &w);
    m->n_fair++;
    const td__ms_content *c = content(m, w.decision);
    uint32_t given_up = w.n_given_up, n_live = 0, all = N * SLOTS;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < PROCS; k++) {
            const proc *p = &w.a[i].p[k];
            n_live += p->life != NONE;
            if (p->life && (!is_member(c, p->number) || p->leaving))
                violated(m, "a process is left that has no place, or was asked to go");
        }
    uint32_t least = all > given_up + MIN ? all - given_up : MIN;
    if (n_live != c->n_members || c->n_members != c->wanted)
        violated(m, "not as many ranks as are wanted");
    if (!w.n_orders && c->wanted != least)
        violated(m, "a place that was given up is filled again, or one more is gone");
    if (w.n_orders && c->wanted > w.ordered)
        violated(m, "more ranks than the operator ordered");
    if (w.n_orders && c->wanted + given_up < w.ordered)
        violated(m, "the operator's order is lost");
    /* Who was not asked stays, if nobody died and nobody ordered anything. */
    for (int i = 0; i < N && steady; i++)
        for (uint32_t k = 1; k <= SLOTS; k++)
            if (!was_asked(&w, td__ms_proc(i, k)) && !is_member(c, td__ms_proc(i, k)))
                violated(m, "a process that was not asked to go is gone");
}

/* ---- the search ---- */

static bool visit(model *m, const world *w, int depth)
{
    uint64_t h = 0xcbf29ce484222325u + (uint64_t)depth;
    const uint8_t *p = (const uint8_t *)w;
    for (size_t i = 0; i < sizeof *w; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    h |= 1;
    for (uint64_t k = h >> 7;; k++) {
        uint64_t *e = &m->visited[k & ((1u << VISITED_BITS) - 1)];
        if (*e == h)
            return false;
        if (!*e) {
            CHECK(++m->n_states < 3u << (VISITED_BITS - 2), "the table of states is full");
            *e = h;
            return true;
        }
    }
}

static void explore(model *m, const world *w, int depth, bool steady);

static void go_on(model *m, world *w, int depth, bool steady)
{
    check_state(m, w);
    if (!m->violation[0] && visit(m, w, depth)) {
        check_fair(m, w, steady);
        explore(m, w, depth - 1, steady);
    }
}

static void explore_procs(model *m, const world *w, int i, int depth, bool steady)
{
    for (int k = 0; k < PROCS; k++) {
        const proc *p = &w->a[i].p[k];
        if (!p->life)
            continue;
        world x = *w;
        step_proc(m, &x.a[i], &x.a[i].p[k]);
        if (memcmp(&x, w, sizeof x) != 0)
            go_on(m, &x, depth, steady);
        if (w->terms && !p->leaving && p->life == BUSY) {
            const td__ms_content *c = content(m, w->a[i].decision);
            x = *w;
            x.terms--;
            x.asked[x.n_asked++] = p->number;
            x.a[i].p[k].leaving = true;
            x.a[i].p[k].spare = !is_member(c, p->number) && c->n_members >= c->wanted;
            go_on(m, &x, depth, steady);
        }
        if (w->deaths && !p->told_end) {
            x = *w;
            x.deaths--;
            if (p->leaving)
                give_up_place(m, &x, &x.a[i], p);
            x.a[i].p[k] = (proc){0};
            go_on(m, &x, depth, false);
        }
    }
}

static void explore(model *m, const world *w, int depth, bool steady)
{
    if (depth <= 0)
        return;
    for (int i = 0; i < N; i++) {
        world x = *w;
        if (memcmp(&w->seen[i], &w->a[i], sizeof w->a[i]) != 0) {
            x.seen[i] = x.a[i];
            decide(m, &x);
            go_on(m, &x, depth, steady);
        }
        x = *w;
        x.a[i].decision = x.decision;
        agent_tick(m, &x, i);
        if (memcmp(&x, w, sizeof x) != 0)
            go_on(m, &x, depth, steady);
        explore_procs(m, w, i, depth, steady);
    }
    for (uint32_t n = MIN; w->orders && n <= N * SLOTS; n++) {
        world x = *w;
        x.orders--;
        x.ordered = n;
        x.n_orders++;
        for (int i = 0; i < N; i++)
            x.a[i].order = x.n_orders, x.a[i].wanted = n;
        go_on(m, &x, depth, false);
    }
}

/* All ranks are there, and then. */
static void search(const char *name, const world *budgets, int depth, bool by_orders)
{
    model m = {.by_orders = by_orders};
    world w = *budgets;
    td__ms_state *first = calloc(1, sizeof *first);
    m.visited = calloc((size_t)1 << VISITED_BITS, sizeof *m.visited);
    CHECK(first && m.visited, "no memory");
    first->voters = first->before = first->known = (1u << N) - 1;
    first->content.wanted = N * SLOTS;
    keep(&m, first);
    settle(&m, &w);
    CHECK_EQ_INT(content(&m, w.decision)->n_members, N * SLOTS);
    if (full_test())
        depth += 2;
    explore(&m, &w, depth, true);
    printf("%s: depth %d, %llu states, %llu ends%s%s\n", name, depth,
           (unsigned long long)m.n_states, (unsigned long long)m.n_fair, m.violation[0] ? ", " : "",
           m.violation);
    CHECK(by_orders == (m.violation[0] != 0), "%s: %s", name, m.violation);
    free(first);
    free(m.visited);
    free(m.decision);
}

TEST(places_that_are_given_up_are_counted_once_each)
{
    search("two are asked to go", &(world){.terms = 2}, 9, false);
    search("two are asked to go, one dies", &(world){.terms = 2, .deaths = 1}, 6, false);
}

TEST(orders_are_obeyed)
{
    search("an order", &(world){.orders = 1}, 9, false);
    search("an order, and one is asked to go", &(world){.orders = 1, .terms = 1}, 7, false);
    search("two orders", &(world){.orders = 2, .deaths = 1}, 5, false);
}

TEST(a_lost_update_is_found)
{
    search("places are given up by orders", &(world){.terms = 2}, 9, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_that_are_given_up_are_counted_once_each),
        cmocka_unit_test(orders_are_obeyed),
        cmocka_unit_test(a_lost_update_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
