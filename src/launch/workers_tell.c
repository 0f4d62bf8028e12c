/* workers_tell.c -- what a decided state means for the processes of this host: their generation and
 * rank, that it is to end, how many ranks there will be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "launch/workers_impl.h"

/* Its rank in the generation of c; -1: none. */
static int proc_rank(const td__ms_content *c, uint32_t proc)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        if (c->member[i] == proc)
            return (int)i;
    return -1;
}

int td__worker_rank(const td__workers *w, const td__worker *k)
{
    return w->plan ? td__agent_spec_host(w->s)->first + k->slot : proc_rank(&w->now, k->proc);
}

/* Ranks of c, and those that its agents are starting. */
static uint32_t expected(const td__workers *w, const td__ms_content *c)
{
    uint32_t n = 0;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        n += c->target[a];
    n = n > w->s->spares ? n - w->s->spares : 0;
    return n > c->n_members ? n : c->n_members;
}

static void tell_expected(td__worker *k, uint32_t n)
{
    if (n != k->told_expected)
        td__link_send(&k->link, TD_CTL_EXPECTED, &n, sizeof n);
    k->told_expected = n;
}

static void tell_generation(td__worker *k, const td__ms_content *c, int rank, uint64_t now)
{
    if (k->out_of < k->told && !k->late_ns) /* it has yet to notice that that one is over */
        k->late_ns = now;
    td__ctl_generation g = {
        .number = c->generation, .rank = rank, .size = (int32_t)c->n_members, .seat = k->seat - 1};
    memcpy(g.store, c->store, sizeof g.store);
    memcpy(g.why, c->why, sizeof g.why);
    td__link_send(&k->link, TD_CTL_GENERATION, &g, sizeof g);
    k->told = c->generation;
    k->state = TD_PROC_BUSY;
    k->was_in = true;
    k->rank = rank;
    if (k->ends) /* what it said holds: it does not listen any more */
        return;
    k->failed = k->hopeless = k->wrong = k->kept = false;
    k->said[0] = 0;
}

static void tell_wanted(td__worker *k, const td__ms_content *c, int rank)
{
    bool goes = k->leaving || td__place_too_many(c, (uint32_t)rank);
    if (k->told_wanted == c->generation && k->told_goes == goes)
        return;
    td__ctl_wanted w = {.generation = c->generation, .goes = goes};
    td__link_send(&k->link, TD_CTL_WANTED, &w, sizeof w);
    k->told_wanted = c->generation;
    k->told_goes = goes;
}

/* Members that have none take the lowest that no member has: that of a process that was lost goes
 * to who comes for it. A process that waits beside a full world has none. */
static void give_seats(td__workers *w, const td__ms_content *c)
{
    for (int i = 0; i < w->max; i++) {
        td__worker *k = &w->all[i];
        bool taken = true;
        if (!k->used || k->done || k->seat || proc_rank(c, k->proc) < 0)
            continue;
        for (int seat = 1; taken; seat += taken) {
            taken = false;
            for (int j = 0; j < w->max; j++)
                taken |= w->all[j].used && !w->all[j].done && w->all[j].seat == seat &&
                         proc_rank(c, w->all[j].proc) >= 0;
            k->seat = taken ? 0 : seat;
        }
    }
}

void td__workers_apply(td__workers *w, const td__ms_state *s)
{
    const td__ms_content *c = &s->content;
    w->now = *c;
    w->target = c->target[w->s->index];
    give_seats(w, c);
    for (int i = 0; i < w->max; i++) {
        td__worker *k = &w->all[i];
        int rank = k->used && !k->done ? proc_rank(c, k->proc) : -1;
        if (rank < 0)
            continue;
        if (c->generation > k->told)
            tell_generation(k, c, rank, td__clock_ns());
        tell_expected(k, expected(w, c));
        if (c->ending)
            tell_wanted(k, c, rank);
    }
}
