/* pass.c -- one pass over the queue: who is launched now, who is reserved for, who makes room. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "service/sched/sched_impl.h"

/* How many jobs that cannot start are looked at in one pass. Those behind them are not reached,
 * which costs some backfill and keeps a pass short with 100,000 queued jobs. */
enum {
    DEPTH = 64,
    DEPTH_HELD = 1024 /* of those that only wait until fewer are pending: looking is cheap */
};

static void subtract(td__resources *r, td__resources need)
{
    r->slots -= need.slots;
    r->gpus -= need.gpus;
    r->memory_mb -= need.memory_mb;
}

/* When it ends at the latest, by its time limit. */
static int64_t end_of(const job *j)
{
    int64_t begun = j->j.started_ms ? j->j.started_ms : j->j.launched_ms;

    return j->j.time_limit_ms ? begun + j->j.time_limit_ms : INT64_MAX;
}

static int by_end(const void *a, const void *b)
{
    const job *x = *(job *const *)a, *y = *(job *const *)b;
    int64_t i = end_of(x), k = end_of(y);

    return i != k ? (i < k ? -1 : 1) : (x->j.id > y->j.id) - (x->j.id < y->j.id);
}

/* The time at which j can start at the latest, when active jobs end by their limits; INT64_MAX:
 * nobody knows. */
static int64_t start_of(td__sched *s, const job *j)
{
    td__resources used = s->used;
    size_t n = 0;

    for (td__order_node *a = td__order_first(&s->active); a; a = td__order_next(a))
        s->scratch[n++] = TD_ORDER_OF(a, job, in_active);
    qsort(s->scratch, n, sizeof(job *), by_end);
    for (size_t i = 0; i < n; i++) {
        subtract(&used, td__sched_takes(s->scratch[i]));
        if (td__sched_within(used, td__sched_takes(j), s->o.capacity))
            return end_of(s->scratch[i]);
    }
    return INT64_MAX;
}

static bool leaves(int64_t need, int64_t reserved, int64_t free)
{
    return need == 0 || (reserved <= free && need <= free - reserved);
}

/* Does `need` take only what the reserved job does not wait for? */
static bool leaves_room_for(const td__sched *s, td__resources need, const job *reserved)
{
    td__resources r = td__sched_takes(reserved), c = s->o.capacity;

    return leaves(need.slots, r.slots, c.slots - s->used.slots) &&
           leaves(need.gpus, r.gpus, c.gpus - s->used.gpus) &&
           leaves(need.memory_mb, r.memory_mb, c.memory_mb - s->used.memory_mb);
}

/* Stop preemptible jobs of lower priority, as few as make room for j. True: room will come. */
static bool preempt(td__sched *s, const job *j)
{
    td__resources used = s->used;
    size_t n = 0;

    for (td__order_node *a = td__order_first(&s->active); a; a = td__order_next(a)) {
        const job *v = TD_ORDER_OF(a, job, in_active);
        if (v->stop)
            subtract(&used, td__sched_takes(v));
    }
    for (td__order_node *a = td__order_first(&s->active); a; a = td__order_next(a)) {
        job *v = TD_ORDER_OF(a, job, in_active);
        if (td__sched_within(used, td__sched_takes(j), s->o.capacity))
            break;
        if (v->stop || !v->j.preemptible || v->j.priority >= j->j.priority)
            continue;
        subtract(&used, td__sched_takes(v));
        s->scratch[n++] = v;
    }
    if (!td__sched_within(used, td__sched_takes(j), s->o.capacity))
        return false;
    while (n-- > 0) { /* the last ones may have made the first ones needless */
        job *v = s->scratch[n];
        td__resources with = used, back = td__sched_takes(v);
        with.slots += back.slots;
        with.gpus += back.gpus;
        with.memory_mb += back.memory_mb;
        if (td__sched_within(with, td__sched_takes(j), s->o.capacity))
            used = with;
        else
            td__sched_stop(s, v, TD_WHY_PREEMPT);
    }
    return true;
}

typedef struct pass {
    td__sched *s;
    int64_t now;
    const job *reserved; /* NULL: none */
    int64_t start;       /* of the reserved job at the latest */
} pass;

/* Another system's queue has enough of ours. */
static bool is_held_back(const td__sched *s, const job *j)
{
    return j->j.queues && s->o.max_pending && s->elsewhere >= s->o.max_pending;
}

static bool may_launch(const pass *p, const job *j)
{
    const td__sched *s = p->s;

    if (!td__sched_within(s->used, td__sched_takes(j), s->o.capacity) ||
        !td__sched_within(j->owner->used, j->j.need, j->owner->most))
        return false;
    if (!p->reserved || leaves_room_for(s, td__sched_takes(j), p->reserved))
        return true;
    return j->j.time_limit_ms && p->start != INT64_MAX && p->now + j->j.time_limit_ms <= p->start;
}

/* j cannot start now. Is it reserved for? Only for lack of room: a quota is its user's own. */
static void consider_reserving(pass *p, const job *j)
{
    const td__sched *s = p->s;
    int64_t waited = p->now - j->eligible_ms;

    if (p->reserved || td__sched_within(s->used, td__sched_takes(j), s->o.capacity) ||
        !td__sched_within(j->owner->used, j->j.need, j->owner->most))
        return;
    bool room = s->o.preempt_ms >= 0 && waited >= s->o.preempt_ms && preempt(p->s, j);
    if (!room && waited < s->o.starve_ms)
        return;
    p->reserved = j;
    p->start = start_of(p->s, j);
}

void td__sched_pass(td__sched *s, int64_t now)
{
    pass p = {.s = s, .now = now};
    job *aside = NULL;
    int n_aside = 0, n_held = 0;

    if (!s->changed)
        return;
    s->changed = false;
    while (n_aside < DEPTH && n_held < DEPTH_HELD && s->users.root &&
           (!s->o.max_launching || s->launching < s->o.max_launching)) {
        user *u = TD_ORDER_OF(td__order_first(&s->users), user, in_users);
        job *j = TD_ORDER_OF(td__order_first(&u->queue), job, in_queue);
        bool held = is_held_back(s, j);
        if (!held && may_launch(&p, j)) {
            td__sched_launch(s, j, now);
            continue;
        }
        if (!held)
            consider_reserving(&p, j);
        td__sched_dequeue(s, j);
        j->aside = aside;
        aside = j;
        n_aside += !held;
        n_held += held;
    }
    for (job *j = aside, *next; j; j = next) {
        next = j->aside;
        j->aside = NULL;
        td__sched_enqueue(s, j);
    }
}
