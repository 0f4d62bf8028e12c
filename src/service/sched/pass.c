/* pass.c -- one pass over the queue: who is launched now, who is reserved for, who makes room. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "service/sched/sched_impl.h"

/* How many kinds of jobs of one user that cannot start are looked at in one pass. What else the
 * user has waits, which costs them some backfill and keeps a pass short; others do not wait for
 * it. */
enum { MOST_KINDS = 64 };

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

/* Another system's queue has enough of ours. */
static bool is_held_back(const td__sched *s, const job *j)
{
    return j->j.queues && s->o.max_pending && s->elsewhere >= s->o.max_pending;
}

/* Whatever is launched in a pass, what may not be launched now may not be later in it; and its
 * kind decides alone. */
bool td__sched_may_launch(const td__sched *s, const job *j)
{
    if (is_held_back(s, j) || !td__sched_within(s->used, td__sched_takes(j), s->o.capacity) ||
        !td__sched_within(j->owner->used, j->j.need, j->owner->most))
        return false;
    if (!s->reserved || leaves_room_for(s, td__sched_takes(j), s->reserved))
        return true;
    return j->j.time_limit_ms && s->reserved_ms != INT64_MAX &&
           s->pass_ms + j->j.time_limit_ms <= s->reserved_ms;
}

/* j, the first of its kind, cannot start now. Is it reserved for, because it or another of them has
 * waited so long? Only for lack of room: a quota is its user's own. */
static void consider_reserving(td__sched *s, const job *j)
{
    int64_t waited = s->pass_ms - td__sched_kind_since(j->kind);

    if (s->reserved || is_held_back(s, j) ||
        td__sched_within(s->used, td__sched_takes(j), s->o.capacity) ||
        !td__sched_within(j->owner->used, j->j.need, j->owner->most))
        return;
    /* By j's priority: it is j that has waited for others to be stopped. */
    bool room =
        s->o.preempt_ms >= 0 && s->pass_ms - j->eligible_ms >= s->o.preempt_ms && preempt(s, j);
    if (!room && waited < s->o.starve_ms)
        return;
    s->reserved = j;
    s->reserved_ms = start_of(s, j);
}

void td__sched_pass(td__sched *s, int64_t now)
{
    kind *aside = NULL;

    if (!s->changed)
        return;
    s->reserved = NULL;
    s->pass_ms = now;
    while (s->users.root && (!s->o.max_launching || s->launching < s->o.max_launching)) {
        user *u = TD_ORDER_OF(td__order_first(&s->users), user, in_users);
        kind *k = TD_ORDER_OF(td__order_first(&u->queue), kind, in_queue);
        job *j = TD_ORDER_OF(td__order_first(&k->queue), job, in_queue);
        if (td__sched_may_launch(s, j)) {
            td__sched_launch(s, j, now);
            continue;
        }
        consider_reserving(s, j);
        u->cut = u->n_aside + 1 >= MOST_KINDS;
        td__sched_set_aside(s, k);
        k->aside = aside;
        aside = k;
    }
    for (kind *k = aside, *next; k; k = next) {
        next = k->aside;
        k->aside = NULL;
        td__sched_return(s, k);
    }
    s->changed = false;
}
