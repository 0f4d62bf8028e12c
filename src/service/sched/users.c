/* users.c -- users of the scheduler: quotas, shares, and whose job comes first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "service/sched/sched_impl.h"

enum { REBASE_HALF_LIVES = 200, DAY_S = 86400 };

static const job *head(const user *u)
{
    return td__sched_kind_head(TD_ORDER_OF(td__order_first(&u->queue), kind, in_queue));
}

bool td__sched_users_before(const td__order_node *a, const td__order_node *b)
{
    const user *x = TD_ORDER_OF(a, user, in_users), *y = TD_ORDER_OF(b, user, in_users);
    const job *i = head(x), *k = head(y);

    if (i->j.priority != k->j.priority)
        return i->j.priority > k->j.priority;
    if (x->share != y->share)
        return x->share < y->share;
    if (x->past / x->weight != y->past / y->weight)
        return x->past / x->weight < y->past / y->weight;
    return i->j.id < k->j.id;
}

static size_t hash_name(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return (size_t)h;
}

static user *find_user(const td__sched *s, const char *name)
{
    user *u = s->n_user_buckets ? s->user_table[hash_name(name) % s->n_user_buckets] : NULL;

    while (u && strcmp(u->name, name) != 0)
        u = u->hash_next;
    return u;
}

static td_status grow(td__sched *s)
{
    size_t n = s->n_user_buckets ? 2 * s->n_user_buckets : 64;

    if ((size_t)s->n_users < s->n_user_buckets)
        return TD_OK;
    user **table = td__calloc(n, sizeof(user *));
    user **list = table ? td__realloc(s->by_number, n * sizeof(user *)) : NULL;
    if (!list) {
        td__free(table);
        return TD_FAIL(TD_ENOMEM, "scheduler: out of memory for users");
    }
    s->by_number = list;
    for (int i = 0; i < s->n_users; i++) {
        user *u = list[i], **bucket = &table[hash_name(u->name) % n];
        u->hash_next = *bucket;
        *bucket = u;
    }
    td__free(s->user_table);
    s->user_table = table;
    s->n_user_buckets = n;
    return TD_OK;
}

td_status td__sched_user_get(td__sched *s, const char *name, user **out)
{
    *out = find_user(s, name);
    if (*out)
        return TD_OK;
    TD_TRY(grow(s));
    user *u = td__calloc(1, sizeof *u);
    char *copy = u ? td__strdup(name) : NULL;
    if (!copy) {
        td__free(u);
        return TD_FAIL(TD_ENOMEM, "scheduler: out of memory for users");
    }
    u->name = copy;
    u->most = s->default_most;
    u->most_queued = s->default_queued;
    u->weight = s->default_weight;
    u->queue = (td__order){.before = td__sched_kinds_before};
    u->kinds = (td__order){.before = td__sched_kinds_by_key};
    user **bucket = &s->user_table[hash_name(name) % s->n_user_buckets];
    u->hash_next = *bucket;
    *bucket = u;
    s->by_number[s->n_users++] = u;
    *out = u;
    return TD_OK;
}

void td__sched_users_fini(td__sched *s)
{
    for (int i = 0; i < s->n_users; i++) {
        td__free(s->by_number[i]->name);
        td__free(s->by_number[i]);
    }
    td__free(s->by_number);
    td__free(s->user_table);
}

static double part(int64_t used, int64_t of)
{
    return of > 0 ? (double)used / (double)of : 0;
}

static double dominant(const td__sched *s, td__resources r)
{
    double slots = part(r.slots, s->o.capacity.slots), gpus = part(r.gpus, s->o.capacity.gpus);

    return fmax(fmax(slots, gpus), part(r.memory_mb, s->o.capacity.memory_mb));
}

/* Who orders by a user's place takes it out, changes it and puts it back. */
static void out_of_order(td__sched *s, user *u)
{
    td__order_remove(&s->users, &u->in_users);
}

static void into_order(td__sched *s, user *u)
{
    u->share = dominant(s, u->used) / u->weight;
    if (u->queue.root)
        td__order_insert(&s->users, &u->in_users);
}

void td__sched_enqueue(td__sched *s, job *j)
{
    out_of_order(s, j->owner);
    td__sched_kind_add(j->kind, j);
    into_order(s, j->owner);
}

void td__sched_dequeue(td__sched *s, job *j)
{
    out_of_order(s, j->owner);
    td__sched_kind_remove(j->kind, j);
    into_order(s, j->owner);
}

void td__sched_set_aside(td__sched *s, kind *k)
{
    out_of_order(s, k->owner);
    td__order_remove(&k->owner->queue, &k->in_queue);
    k->owner->n_aside++;
    if (!k->owner->cut)
        into_order(s, k->owner);
}

void td__sched_return(td__sched *s, kind *k)
{
    out_of_order(s, k->owner);
    td__order_insert(&k->owner->queue, &k->in_queue);
    k->owner->n_aside--;
    into_order(s, k->owner);
}

static void add(td__resources *r, td__resources need, int sign)
{
    r->slots += sign * need.slots;
    r->gpus += sign * need.gpus;
    r->memory_mb += sign * need.memory_mb;
}

td__resources td__sched_takes(const job *j)
{
    td__resources r = j->j.need;
    add(&r, j->j.elsewhere, -1);
    return r;
}

static double half_life_s(const td__sched *s)
{
    return s->o.half_life_s > 0 ? s->o.half_life_s : DAY_S;
}

/* Past usage counts half for each half-life that has passed. Rather than to multiply everybody's
 * as time goes by, what is added later is scaled up: the order of users does not change by itself.
 * Before the scale becomes too large, all of it is brought down. */
static double scale(td__sched *s, int64_t now)
{
    double lives = (double)(now - s->usage_origin_ms) / 1000 / half_life_s(s);

    if (lives < REBASE_HALF_LIVES)
        return exp2(lives);
    for (int i = 0; i < s->n_users; i++)
        out_of_order(s, s->by_number[i]);
    for (int i = 0; i < s->n_users; i++)
        s->by_number[i]->past *= exp2(-lives);
    for (int i = 0; i < s->n_users; i++)
        into_order(s, s->by_number[i]);
    s->usage_origin_ms = now;
    return 1;
}

void td__sched_use(td__sched *s, job *j)
{
    out_of_order(s, j->owner);
    add(&s->used, td__sched_takes(j), 1);
    add(&j->owner->used, j->j.need, 1);
    into_order(s, j->owner);
}

void td__sched_give_back(td__sched *s, job *j, int64_t now)
{
    double by = scale(s, now), seconds = (double)(now - j->j.launched_ms) / 1000;

    out_of_order(s, j->owner);
    add(&s->used, td__sched_takes(j), -1);
    add(&j->owner->used, j->j.need, -1);
    j->owner->past += dominant(s, j->j.need) * (seconds > 0 ? seconds : 0) * by;
    into_order(s, j->owner);
    s->changed = true;
}

static bool fits(int64_t used, int64_t need, int64_t most)
{
    return most < 0 || need == 0 || used + need <= most;
}

bool td__sched_within(td__resources used, td__resources need, td__resources most)
{
    return fits(used.slots, need.slots, most.slots) && fits(used.gpus, need.gpus, most.gpus) &&
           fits(used.memory_mb, need.memory_mb, most.memory_mb);
}

td_status td__sched_set_quota(td__sched *s, const char *name, td__resources most, int64_t queued,
                              double weight)
{
    user *u;

    weight = weight > 0 ? weight : 1;
    if (!strcmp(name, "*")) {
        s->default_most = most;
        s->default_queued = queued;
        s->default_weight = weight;
    } else {
        TD_TRY(td__sched_user_get(s, name, &u));
        u->own_quota = true;
    }
    for (int i = 0; i < s->n_users; i++) {
        u = s->by_number[i];
        if (strcmp(name, "*") ? strcmp(name, u->name) != 0 : u->own_quota)
            continue;
        out_of_order(s, u);
        u->most = most;
        u->most_queued = queued;
        u->weight = weight;
        into_order(s, u);
    }
    s->changed = true;
    return TD_OK;
}

void td__sched_unset_quota(td__sched *s, const char *name)
{
    user *u = strcmp(name, "*") ? find_user(s, name) : NULL;

    if (!strcmp(name, "*")) { /* cannot fail: it makes no user */
        (void)!td__sched_set_quota(s, "*", (td__resources){-1, -1, -1}, -1, 1);
        return;
    }
    if (!u)
        return;
    u->own_quota = false;
    out_of_order(s, u);
    u->most = s->default_most;
    u->most_queued = s->default_queued;
    u->weight = s->default_weight;
    into_order(s, u);
    s->changed = true;
}

bool td__sched_fits(const td__sched *s, const char *name, td__resources need,
                    td__resources elsewhere)
{
    const user *u = find_user(s, name);
    td__resources takes = need;

    add(&takes, elsewhere, -1);
    return td__sched_within((td__resources){0}, takes, s->o.capacity) &&
           td__sched_within((td__resources){0}, need, u ? u->most : s->default_most);
}

int td__sched_queued_of(const td__sched *s, const char *name)
{
    const user *u = find_user(s, name);

    return u ? u->queued : 0;
}

int64_t td__sched_most_queued(const td__sched *s, const char *name)
{
    const user *u = find_user(s, name);

    return u ? u->most_queued : s->default_queued;
}

bool td__sched_user_at(const td__sched *s, int64_t now, int i, td__sched_user *out)
{
    if (i < 0 || i >= s->n_users)
        return false;
    const user *u = s->by_number[i];
    double lives = (double)(now - s->usage_origin_ms) / 1000 / half_life_s(s);
    *out = (td__sched_user){.name = u->name,
                            .used = u->used,
                            .queued = u->queued,
                            .past = u->past * exp2(-lives),
                            .weight = u->weight};
    return true;
}
