/* kinds.c -- eligible jobs of one user by what they ask for.
 *
 * Of jobs that ask for the same, none can start when the first cannot: a pass looks at one of each
 * kind, and its length does not depend on how many wait. A user has few kinds, and thousands of
 * jobs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "service/sched/sched_impl.h"

static bool queue_before(const td__order_node *a, const td__order_node *b)
{
    const job *x = TD_ORDER_OF(a, job, in_queue), *y = TD_ORDER_OF(b, job, in_queue);

    return x->j.priority != y->j.priority ? x->j.priority > y->j.priority : x->j.id < y->j.id;
}

static bool ages_before(const td__order_node *a, const td__order_node *b)
{
    const job *x = TD_ORDER_OF(a, job, in_ages), *y = TD_ORDER_OF(b, job, in_ages);

    return x->eligible_ms != y->eligible_ms ? x->eligible_ms < y->eligible_ms : x->j.id < y->j.id;
}

const job *td__sched_kind_head(const kind *k)
{
    return TD_ORDER_OF(td__order_first(&k->queue), job, in_queue);
}

bool td__sched_kinds_before(const td__order_node *a, const td__order_node *b)
{
    const kind *x = TD_ORDER_OF(a, kind, in_queue), *y = TD_ORDER_OF(b, kind, in_queue);

    return queue_before(&td__sched_kind_head(x)->in_queue, &td__sched_kind_head(y)->in_queue);
}

static int compare(const kind *x, const kind *y)
{
    const int64_t a[] = {x->need.slots,      x->need.gpus,      x->need.memory_mb,
                         x->elsewhere.slots, x->elsewhere.gpus, x->elsewhere.memory_mb,
                         x->time_limit_ms,   x->queues};
    const int64_t b[] = {y->need.slots,      y->need.gpus,      y->need.memory_mb,
                         y->elsewhere.slots, y->elsewhere.gpus, y->elsewhere.memory_mb,
                         y->time_limit_ms,   y->queues};

    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

bool td__sched_kinds_by_key(const td__order_node *a, const td__order_node *b)
{
    return compare(TD_ORDER_OF(a, kind, in_kinds), TD_ORDER_OF(b, kind, in_kinds)) < 0;
}

td_status td__sched_kind_retain(user *u, const td__sched_job *j, kind **out)
{
    kind like = {.owner = u,
                 .need = j->need,
                 .elsewhere = j->elsewhere,
                 .queues = j->queues,
                 .time_limit_ms = j->time_limit_ms,
                 .queue = {.before = queue_before},
                 .ages = {.before = ages_before}};

    for (td__order_node *n = u->kinds.root; n;) {
        kind *k = TD_ORDER_OF(n, kind, in_kinds);
        int c = compare(&like, k);
        if (!c) {
            k->n_jobs++;
            *out = k;
            return TD_OK;
        }
        n = c < 0 ? n->left : n->right;
    }
    kind *k = td__calloc(1, sizeof *k);
    if (!k)
        return TD_FAIL(TD_ENOMEM, "scheduler: out of memory for jobs");
    *k = like;
    k->n_jobs = 1;
    td__order_insert(&u->kinds, &k->in_kinds);
    *out = k;
    return TD_OK;
}

void td__sched_kind_release(kind *k)
{
    if (--k->n_jobs > 0)
        return;
    td__order_remove(&k->owner->kinds, &k->in_kinds);
    td__free(k);
}

void td__sched_kind_add(kind *k, job *j)
{
    td__order_remove(&k->owner->queue, &k->in_queue);
    td__order_insert(&k->queue, &j->in_queue);
    td__order_insert(&k->ages, &j->in_ages);
    td__order_insert(&k->owner->queue, &k->in_queue);
}

void td__sched_kind_remove(kind *k, job *j)
{
    td__order_remove(&k->owner->queue, &k->in_queue);
    td__order_remove(&k->queue, &j->in_queue);
    td__order_remove(&k->ages, &j->in_ages);
    if (k->queue.root)
        td__order_insert(&k->owner->queue, &k->in_queue);
}

int64_t td__sched_kind_since(const kind *k)
{
    return TD_ORDER_OF(td__order_first(&k->ages), job, in_ages)->eligible_ms;
}
