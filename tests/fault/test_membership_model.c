/* test_membership_model.c -- the membership protocol (docs/membership.md), run exhaustively: three
 * agents, every order of everything that can happen, down to a bounded depth.
 *
 * What can happen: a message arrives, is lost, arrives twice; an agent looks at the clock; time
 * passes, a little or more than the silence that counts as death; an agent dies (its kernel tells
 * the others, after all that it had said); an agent is stopped, and goes on; the operator wants
 * another generation. Faults have budgets, everything else has none but the depth. States that were
 * met before with as much depth left are not entered again.
 *
 * What must hold, in every state: see check_decided in support/membership_model.c. And from a
 * sample of the states, when faults stop and everybody who can run does: if those are a quorum,
 * they have one leader and a generation of exactly themselves.
 *
 * The checker can fail: when deaths are reported that did not happen, which the protocol excludes,
 * it must find two memberships for one place. The full test goes two events deeper. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread, full */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/full.h"
#include "support/membership_model.h"

enum { VISITED_BITS = 22, FAIR_ROUNDS = 60 };

typedef struct exploration {
    ms_model m;
    uint64_t *seen; /* hash, its low 8 bits the depth that was left */
    bool fair;      /* look at how it goes on after the faults */
    uint64_t n_states, n_steps, n_fair;
} exploration;

/* ---- after the faults ---- */

static void deliver_all(ms_model *m, ms_world *w)
{
    for (int round = 0; round < 50; round++) {
        bool any = false;
        for (int i = 0; i < MS_AGENTS; i++)
            for (int k = 0; k < MS_AGENTS; k++) {
                if (!ms_world_runs(w, k))
                    continue;
                while (w->n_queue[i][k] && ms_world_runs(w, k)) {
                    ms_model_deliver(m, w, i, k, false);
                    ms_world_bury(w);
                    any = true;
                }
                if (w->end[i][k] && ms_world_runs(w, k)) {
                    ms_model_hear_death(m, w, i, k);
                    ms_world_bury(w);
                    any = true;
                }
            }
        if (!any)
            return;
    }
}

/* Could those that run go on, whatever the others may have accepted? */
static bool can_go_on(ms_model *m, const ms_world *w, uint64_t run, uint64_t dead)
{
    for (int i = 0; i < MS_AGENTS; i++) {
        const td__ms_state *s = &m->p.state[w->a[i].accepted];
        if (!w->a[i].crashed &&
            (!td__ms_quorum(s->before, run, dead) || !td__ms_quorum(s->voters, run, dead)))
            return false;
    }
    return run != 0;
}

static void check_fair(exploration *x, const ms_world *start)
{
    ms_model *m = &x->m;
    ms_world w = *start;
    uint64_t run = 0, dead = 0;
    int leader = -1;
    for (int round = 0; round < FAIR_ROUNDS; round++) {
        w.now += MS_HEARTBEAT;
        for (int i = 0; i < MS_AGENTS; i++)
            if (ms_world_runs(&w, i))
                ms_model_tick(m, &w, i, false);
        ms_world_bury(&w);
        deliver_all(m, &w);
    }
    for (int i = 0; i < MS_AGENTS; i++) {
        run |= ms_world_runs(&w, i) ? (uint64_t)1 << i : 0;
        dead |= w.a[i].crashed ? (uint64_t)1 << i : 0;
    }
    if (!can_go_on(m, &w, run, dead))
        return;
    x->n_fair++;
    for (int i = 0; i < MS_AGENTS; i++)
        if (w.a[i].leading && ms_world_runs(&w, i))
            leader = leader < 0 ? i : MS_AGENTS;
    if (leader < 0 || leader == MS_AGENTS) {
        ms_model_violated(m, "a quorum that runs undisturbed has not one leader");
        return;
    }
    const td__ms_state *s = &m->p.state[w.a[leader].decided];
    if (s->voters & ~run)
        ms_model_violated(m, "a voter that does not run is still in");
    if (!s->content.generation)
        ms_model_violated(m, "a quorum that runs undisturbed has no generation");
    for (int i = 0; i < MS_AGENTS; i++)
        if (ms_world_runs(&w, i) && (s->voters & (uint64_t)1 << i) &&
            m->p.state[w.a[i].decided].content.generation != s->content.generation)
            ms_model_violated(m, "a member does not know its generation");
}

/* ---- the search ---- */

static uint64_t hash_world(const ms_world *w)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < MS_AGENTS; i++) {
        const ms_model_agent *a = &w->a[i];
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
        h = ms_model_mix(h, v, sizeof v);
        for (int k = 0; k < MS_AGENTS; k++) {
            uint64_t old = w->now - a->heard[k];
            old = old < 2 * MS_SILENCE ? old : 2 * MS_SILENCE;
            h = ms_model_mix(h, &old, sizeof old);
            h = ms_model_mix(h, w->queue[i][k], w->n_queue[i][k] * sizeof w->queue[0][0][0]);
            h = ms_model_mix(h, &w->n_queue[i][k], 1);
            h = ms_model_mix(h, &w->end[i][k], 1);
        }
    }
    h = ms_model_mix(h, w->place, sizeof w->place);
    h = ms_model_mix(h, w->generation, sizeof w->generation);
    return ms_model_mix(h, &w->losses, offsetof(ms_world, lies) + 1 - offsetof(ms_world, losses));
}

/* true: was met before with at least this depth left. */
static bool was_seen(exploration *x, const ms_world *w, int depth)
{
    uint64_t h = hash_world(w), key = h & ~(uint64_t)255;
    uint64_t mask = ((uint64_t)1 << VISITED_BITS) - 1, at = (h >> 20) & mask;
    for (int i = 0; i < 16; i++, at = (at + 1) & mask) {
        uint64_t *e = &x->seen[at];
        if (*e && (*e & ~(uint64_t)255) == key) {
            if ((int)(*e & 255) >= depth + 1)
                return true;
            *e = key | (uint64_t)(depth + 1);
            return false;
        }
        if (!*e) {
            *e = key | (uint64_t)(depth + 1);
            x->n_states++;
            return false;
        }
    }
    return false; /* the table is crowded here: entered twice at worst */
}

static void explore(exploration *x, const ms_world *w, int depth);

static void go_on(exploration *x, ms_world *w, int depth)
{
    ms_world_bury(w);
    ms_model_check_leaders(&x->m, w);
    x->n_steps++;
    explore(x, w, depth - 1);
}

static void explore_messages(exploration *x, const ms_world *w, int depth)
{
    for (int i = 0; i < MS_AGENTS; i++)
        for (int k = 0; k < MS_AGENTS; k++) {
            if (!ms_world_runs(w, k))
                continue;
            ms_world next = *w;
            if (w->n_queue[i][k]) {
                ms_model_deliver(&x->m, &next, i, k, false);
                go_on(x, &next, depth);
            } else if (w->end[i][k]) {
                ms_model_hear_death(&x->m, &next, i, k);
                go_on(x, &next, depth);
            }
            if (w->n_queue[i][k] && w->copies) {
                next = *w;
                next.copies--;
                ms_model_deliver(&x->m, &next, i, k, true);
                go_on(x, &next, depth);
            }
            if (w->n_queue[i][k] && w->losses) {
                next = *w;
                next.losses--;
                memmove(next.queue[i][k], next.queue[i][k] + 1,
                        (size_t)--next.n_queue[i][k] * sizeof next.queue[0][0][0]);
                go_on(x, &next, depth);
            }
            if (w->lies && i != k && ms_world_runs(w, i)) {
                next = *w;
                next.lies--;
                ms_model_hear_death(&x->m, &next, i, k);
                go_on(x, &next, depth);
            }
        }
}

static void explore_agents(exploration *x, const ms_world *w, int depth)
{
    for (int i = 0; i < MS_AGENTS; i++) {
        const ms_model_agent *a = &w->a[i];
        ms_world next = *w;
        if (ms_world_runs(w, i) && (w->now >= a->heartbeat_at || (a->leader < 0 && !a->leading))) {
            ms_model_tick(&x->m, &next, i, false);
            go_on(x, &next, depth);
        }
        if (ms_world_runs(w, i) && a->leading && w->orders) {
            next = *w;
            next.orders--;
            ms_model_tick(&x->m, &next, i, true);
            go_on(x, &next, depth);
        }
        if (!a->crashed && w->crashes) {
            next = *w;
            next.crashes--;
            ms_world_crash(&next, i);
            go_on(x, &next, depth);
        }
        if (!a->crashed && (a->paused || w->pauses)) {
            next = *w;
            next.pauses = (uint8_t)(next.pauses - !a->paused);
            next.a[i].paused = !a->paused;
            go_on(x, &next, depth);
        }
    }
}

static void explore(exploration *x, const ms_world *w, int depth)
{
    if (was_seen(x, w, depth) || x->m.n_violations)
        return;
    if (x->fair && x->n_states % 256 == 0)
        check_fair(x, w);
    if (!depth)
        return;
    explore_messages(x, w, depth);
    explore_agents(x, w, depth);
    for (int i = 0; i < 2; i++)
        if (i ? w->silences : w->waits) {
            ms_world next = *w;
            if (i)
                next.silences--;
            else
                next.waits--;
            next.now += i ? MS_SILENCE + 1 : 2 * MS_HEARTBEAT;
            go_on(x, &next, depth);
        }
}

/* From the very beginning, and from a generation that all have. */
static void search(const ms_world *budgets, bool settled, int depth, const char *name, bool lies)
{
    exploration x = {.seen = calloc((size_t)1 << VISITED_BITS, sizeof *x.seen), .fair = !lies};
    ms_model *m = &x.m;
    ms_world w;
    assert_non_null(x.seen);
    ms_model_init(m);
    ms_world_init(m, &w, budgets);
    for (int round = 0; settled && round < 3; round++) {
        for (int i = 0; i < MS_AGENTS; i++)
            ms_model_tick(m, &w, i, false);
        deliver_all(m, &w);
        w.now += MS_HEARTBEAT;
    }
    if (settled)
        assert_true(m->p.state[w.a[MS_AGENTS - 1].decided].content.generation == 1);
    explore(&x, &w, depth);
    printf("%s, depth %d: %llu states, %llu steps, %llu runs to the end%s%s\n", name, depth,
           (unsigned long long)x.n_states, (unsigned long long)x.n_steps,
           (unsigned long long)x.n_fair, m->violation ? "; found: " : "",
           m->violation ? m->violation : "");
    if (lies)
        assert_true(m->n_violations > 0);
    else if (m->n_violations)
        fail_msg("%s: %s", name, m->violation);
    ms_model_fini(m);
    free(x.seen);
}

static void every_order_keeps_one_chain(void **unused)
{
    static const struct {
        const char *name;
        ms_world budgets;
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
    search(&(ms_world){.lies = 2, .waits = 1, .orders = 1}, true, 12, "false deaths", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_keeps_one_chain),
        cmocka_unit_test(deaths_that_did_not_happen_are_found_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
