/* vigil.c -- see vigil.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/vigil.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 3000, ANSWER_MS = 1000 };

static uint64_t at_most(uint64_t ns, uint64_t most)
{
    return ns < most ? ns : most;
}

/* How long a rank may be silent: less than a call, so that its end has this reason. */
static uint64_t limit_of(const td_comm *c)
{
    return (uint64_t)c->timeout_ms * 1000000u / 8 * 7;
}

static uint64_t answer_of(const td_comm *c)
{
    return at_most(ANSWER_MS * UINT64_C(1000000), limit_of(c) / 4);
}

/* Since when this rank waits on the comm, and for whom; 0: it does not. */
static uint64_t waits_since(td__watch *w, td__comm_activity *a)
{
    uint64_t vigil = atomic_load(&w->c->vigil);
    td__comm_activity_get(w->c, a);
    if (vigil == TD_VIGIL_NONE)
        return 0;
    if (vigil == TD_VIGIL_CALLS)
        return a->in_call && a->n_waiting ? a->since_ns : 0;
    a->n_waiting = 0;
    for (int i = 0; i < w->n && a->n_waiting < TD_COMM_WAITING; i++)
        if (w->ranks[i] != w->m->rank)
            a->waiting[a->n_waiting++] = i;
    return vigil;
}

bool td__vigil_look(td__watch *w, uint64_t now, td__stall *s)
{
    td__watchdog *m = w->m;
    td__vigil *v = &w->vigil;
    td__comm_activity a;
    uint64_t since = waits_since(w, &a);
    if (!since)
        return false;
    uint64_t seen = v->since_ns == since ? v->seen_ns : since;
    bool stood = now > seen && now - seen > limit_of(w->c) / 2; /* still itself, and asked nobody */
    if (v->since_ns != since || stood) {
        uint64_t every = at_most(LOOK_MS * UINT64_C(1000000), limit_of(w->c) / 4);
        uint64_t begin = stood ? now : since;
        *v = (td__vigil){
            .since_ns = since, .heard_ns = begin, .every_ns = every, .look_ns = begin + every};
    }
    v->seen_ns = now;
    if (now < v->look_ns)
        return false;
    if (!v->asked_ns) {
        td__watchdog_ask(m, now);
        v->asked_ns = now;
        v->first = m->n_tokens - 1;
        v->look_ns = now + answer_of(w->c);
        return false;
    }
    char call[160];
    *s = (td__stall){.vigil_ns = since,
                     .waited_ns = now - since,
                     .fails_ns = limit_of(w->c) + (v->heard_ns - since),
                     .asked_ns = v->asked_ns};
    snprintf(s->call, sizeof s->call, "%s",
             a.in_call ? td__comm_activity_text(&a, call, sizeof call) : "this rank");
    snprintf(s->key, sizeof s->key, "%s", w->key);
    snprintf(s->name, sizeof s->name, "%s", w->c->name);
    s->n = a.n_waiting < TD_COMM_WAITING ? a.n_waiting : TD_COMM_WAITING;
    for (int i = 0; i < s->n; i++) {
        s->waiting[i] = a.waiting[i];
        s->world[i] = w->ranks[a.waiting[i]];
    }
    for (unsigned i = v->first; i < m->n_tokens && i < v->first + TD_STALL_TOKENS; i++)
        s->tokens[i % TD_STALL_TOKENS] = m->tokens[i % TD_STALL_TOKENS];
    return true;
}

/* The wait that s is of, if it goes on. */
static td__watch *find(td__watchdog *m, const td__stall *s)
{
    for (td__watch *w = m->watches; w; w = w->next)
        if (w->vigil.since_ns == s->vigil_ns && strcmp(w->key, s->key) == 0)
            return w;
    return NULL;
}

void td__vigil_judge(td__watchdog *m, const td__stall_world *world, const td__stall *s)
{
    char what[TD_STALL_TEXT], text[TD_STALL_TEXT + 64];
    pthread_mutex_unlock(&m->lock);
    int member = td__stall_silent(world, s, what, sizeof what);
    pthread_mutex_lock(&m->lock);
    td__watch *w = find(m, s);
    if (!w)
        return;
    td__vigil *v = &w->vigil;
    td__comm_activity a;
    uint64_t now = td__clock_ns(), limit = limit_of(w->c), answer = answer_of(w->c);
    if (member < 0) {
        v->heard_ns = v->asked_ns;
        v->every_ns = at_most(2 * v->every_ns, limit / 4);
    }
    v->silent = member < 0 ? 0 : v->silent + 1;
    v->asked_ns = 0;
    v->seen_ns = now;
    v->look_ns = now + v->every_ns;
    if (v->silent && v->look_ns > v->heard_ns + limit - answer)
        v->look_ns = v->heard_ns + limit - answer;
    if (waits_since(w, &a) != s->vigil_ns || member < 0)
        return;
    if (now < v->heard_ns + limit) {
        if (v->silent == 2) { /* one may be late with its answer */
            pthread_mutex_unlock(&m->lock);
            td__stall_report(world, s);
            pthread_mutex_lock(&m->lock);
            if ((w = find(m, s)))
                w->vigil.seen_ns = td__clock_ns();
        }
        return;
    }
    snprintf(text, sizeof text, "has not answered for %.1f s: %s",
             1e-9 * (double)(now - v->heard_ns), what);
    atomic_store(&w->c->unanswered, true);
    td__watch_poison(w, member, TD_ETIMEDOUT, text);
}
