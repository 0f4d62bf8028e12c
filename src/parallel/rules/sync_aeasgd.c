/* sync_aeasgd.c -- asynchronous elastic averaging (AEASGD: Zhang, Choromanska and LeCun, 2015):
 * ranks are tied to a centre c as with easgd, but each exchanges with it alone, every tau of its
 * own steps, and nobody waits for the others. With alpha = beta / n:
 *
 *     d <- alpha (x_i - c);   x_i <- x_i - d;   c <- c + d
 *
 * The centre is cut in ranges, one a rank, which serves it on its post's thread whatever it is
 * doing itself. The age of an exchange is how many others have moved the centre since this rank's
 * last. At a meeting ranks take the centre.
 *
 * The order that is recorded is, on each rank, that in which ranks have exchanged with its range.
 * In a replay requests wait for their turn. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/partition.h"
#include "graph/params.h"
#include "parallel/rules/async.h"

enum { MINE = TD__ASYNC_OWN, MOVE };

typedef struct elastic {
    td__async base;
    float *move; /* (count) what came back; with the post's lock, as all below */
    int moves;   /* ranges of it that have */
    /* (ranks) Requests that are not served yet, with their bytes, NULL if the range is empty; and
     * this rank's own. */
    bool *asks;
    td__post_bytes **asked;
    const float *own;
    uint64_t served; /* exchanges with this rank's range */
    uint64_t *seen;  /* (ranks) of each range, when this rank last exchanged */
} elastic;

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("10"),
    TD_KEY_ROW("beta", REAL, "alpha, the pull between a rank and the centre, is beta / n.", .hi = 1,
               .flags = TD_KEY_ABOVE, .def = "0.9"),
    TD_KEYS_END};

static void range_of(const elastic *e, int rank, size_t *begin, size_t *count)
{
    int64_t from, to;
    td__even_range((int64_t)e->base.base.count, rank, e->base.base.ranks, &from, &to);
    *begin = (size_t)from;
    *count = (size_t)(to - from);
}

/* This rank's range: the centre moves to x, d is how far. */
static td_status serve(elastic *e, int rank, const float *x, float *d)
{
    td__sync_local *l = &e->base.base;
    float alpha = (float)td__sync_value(&l->base, "beta") / (float)l->ranks;
    size_t begin, count;
    range_of(e, e->base.rank, &begin, &count);
    for (size_t i = 0; i < count; i++) {
        d[i] = alpha * (x[i] - l->centre[begin + i]);
        l->centre[begin + i] += d[i];
    }
    e->served++;
    return td__async_note(&e->base, rank);
}

static td_status serve_own(elastic *e)
{
    td__async *a = &e->base;
    size_t begin, count;
    range_of(e, a->rank, &begin, &count);
    TD_TRY(serve(e, a->rank, e->own, e->move + begin));
    td__async_age(a, (double)(e->served - e->seen[a->rank] - 1));
    e->seen[a->rank] = e->served;
    return TD_OK;
}

static td_status serve_other(elastic *e, int rank, td__post_bytes *b)
{
    size_t nbytes = b ? td__post_bytes_size(b) : 0;
    td__post_bytes *reply = td__post_bytes_create(nbytes);
    if (!reply)
        return TD_FAIL(TD_ENOMEM, "no memory for a range of the centre");
    td_status st = /* counted if empty */
        serve(e, rank, b ? td__post_bytes_data(b) : NULL, td__post_bytes_data(reply));
    if (!st)
        st = td__post_send(e->base.post, rank, &(td__post_head){.kind = MOVE, .number = e->served},
                           reply);
    td__post_bytes_release(reply);
    return st;
}

/* The rank to be served next, of those that ask: as the replay has it, or as they come; -1: none */
static int find_due(elastic *e)
{
    td__async_order *o = &e->base.order;
    int next = -1;
    if (td__async_follows(&e->base)) {
        while ((next = td__async_order_next(o)) == TD__ORDER_END)
            td__async_order_took(o);
        return next >= 0 && e->asks[next] ? next : -1;
    }
    for (int r = 0; next < 0 && r < e->base.base.ranks; r++)
        next = e->asks[r] ? r : -1;
    return next;
}

/* With the post's lock. */
static td_status serve_due(td__async *a)
{
    elastic *e = (elastic *)a;
    for (int r = find_due(e); r >= 0; r = find_due(e)) {
        if (td__async_follows(a))
            td__async_order_took(&a->order);
        td__post_bytes *b = e->asked[r];
        e->asks[r] = false;
        e->asked[r] = NULL;
        td_status st = r == a->rank ? serve_own(e) : serve_other(e, r, b);
        td__post_bytes_release(b);
        TD_TRY(st);
    }
    return TD_OK;
}

static td_status told(td__async *a, int from, const td__post_head *h, td__post_bytes *b)
{
    elastic *e = (elastic *)a;
    bool mine = h->kind == MINE;
    size_t begin, count;
    range_of(e, mine ? a->rank : from, &begin, &count);
    if ((b ? td__post_bytes_size(b) : 0) != count * sizeof(float) || (mine && e->asks[from]))
        return TD_FAIL(TD_EPROTO, "a range of the centre of %zu bytes from rank %d",
                       b ? td__post_bytes_size(b) : 0, from);
    if (!mine) {
        if (count)
            memcpy(e->move + begin, td__post_bytes_data(b), count * sizeof(float));
        e->moves++;
        td__async_age(a, (double)(h->number - e->seen[from] - 1));
        e->seen[from] = h->number;
        return TD_OK;
    }
    if (b)
        td__post_bytes_retain(b);
    e->asks[from] = true;
    e->asked[from] = b;
    return serve_due(a);
}

/* Between meetings ranks exchange equally often, with each range. */
static bool fits(const td__sync_config *c, const td__async_part *p)
{
    bool good = true;
    for (int r = 0; r < p->ranks; r++)
        good = good && p->counts[r] == td__async_exchanges(c, p);
    return good;
}

static bool own_moved(void *user)
{
    elastic *e = user;
    return !e->asks[e->base.rank];
}

static bool all_moved(void *user)
{
    elastic *e = user;
    return e->moves == e->base.base.ranks - 1;
}

static td_status ask(elastic *e, const float *x)
{
    td__async *a = &e->base;
    for (int r = 0; r < a->base.ranks; r++) {
        size_t begin, count;
        if (r == a->rank)
            continue;
        range_of(e, r, &begin, &count);
        td__post_bytes *b = td__post_bytes_create(count * sizeof *x);
        if (!b)
            return TD_FAIL(TD_ENOMEM, "no memory for a range of the params");
        memcpy(td__post_bytes_data(b), x + begin, count * sizeof *x);
        td_status st =
            td__post_send(a->post, r, &(td__post_head){.kind = MINE, .step = a->base.step}, b);
        td__post_bytes_release(b);
        TD_TRY(st);
    }
    return TD_OK;
}

static td_status move(elastic *e, float *x)
{
    td__async *a = &e->base;
    size_t begin, count;
    td_status st = TD_OK;
    range_of(e, a->rank, &begin, &count);
    if (!a->post) {
        TD_TRY(serve(e, 0, x, e->move));
    } else {
        td__post_lock(a->post);
        e->moves = 0;
        e->own = x + begin;
        e->asks[a->rank] = true;
        st = serve_due(a);
        if (!st)
            st = td__async_wait(a, own_moved, e, "this rank's turn in the replay");
        td__post_unlock(a->post);
        TD_TRY(st);
        TD_TRY(ask(e, x));
        td__post_lock(a->post);
        st = td__async_wait(a, all_moved, e, "the centre");
        td__post_unlock(a->post);
    }
    for (size_t i = 0; !st && i < a->base.count; i++)
        x[i] -= e->move[i];
    return st;
}

static td_status exchange(td__async *a)
{
    td_params *params = a->base.base.x.step.params;
    td__step_times *times = td__step_times_of(a->base.base.engine);
    td__mapping map;
    TD_TRY(td__params_map(params, 0, a->base.count, TD_MAP_BOTH, &map));
    td_status st = move((elastic *)a, map.at);
    if (st) {
        td__mem_map_drop(&map);
        return st;
    }
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(params);
    times->sent_nbytes = times->plain_nbytes = a->post ? a->base.count * sizeof(float) : 0;
    return TD_OK;
}

/* Each has its range; the others' are zero. */
static td_status come(td__async *a)
{
    td__sync_local *l = &a->base;
    size_t begin, count;
    if (a->post) {
        range_of((elastic *)a, a->rank, &begin, &count);
        memset(l->mean, 0, l->count * sizeof *l->mean);
        memcpy(l->mean + begin, l->centre + begin, count * sizeof *l->mean);
        TD_TRY(
            td_allreduce(l->base.x.comm, l->mean, l->mean, l->count, TD_F32, TD_REDUCE_SUM, NULL));
        td__post_lock(a->post);
        memcpy(l->centre, l->mean, l->count * sizeof *l->mean);
        td__post_unlock(a->post);
    }
    return td__async_take_centre(a);
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    return td__async_check(c, j, w, fits);
}

static td_status create(td__sync *s)
{
    static const td__async_ops OPS = {.local = {.blocks = 1},
                                      .told = told,
                                      .changed = serve_due,
                                      .exchange = exchange,
                                      .come = come};
    elastic *e = (elastic *)s;
    TD_TRY(td__async_create(s, &OPS));
    size_t n = (size_t)e->base.base.ranks;
    e->move = td__calloc(e->base.base.count + 1, sizeof *e->move);
    e->seen = td__calloc(n, sizeof *e->seen);
    e->asks = td__calloc(n, sizeof *e->asks);
    e->asked = td__calloc(n, sizeof *e->asked);
    return e->move && e->seen && e->asks && e->asked
               ? TD_OK
               : TD_FAIL(TD_ENOMEM, "no memory for moves of the centre");
}

static void destroy(td__sync *s)
{
    elastic *e = (elastic *)s;
    td__async_abandon(s, "the run was left");
    for (int r = 0; e->asked && r < e->base.base.ranks; r++)
        td__post_bytes_release(e->asked[r]);
    td__free(e->move);
    td__free(e->seen);
    td__free(e->asks);
    td__free(e->asked);
    td__async_destroy(s);
}

const td__sync_ops td__sync_aeasgd = {
    .name = "aeasgd",
    .help = "asynchronous elastic averaging: each rank exchanges with a centre at its own pace",
    .promise = "on several ranks a function of the order of exchanges, replayable",
    .unplanned = "its ranks exchange messages at any time",
    .options = OPTIONS,
    .size = sizeof(elastic),
    .check = check,
    .traits = td__async_traits,
    .exchange = td__sync_local_exchange,
    .create = create,
    .destroy = destroy,
    .begin = td__async_begin,
    .step = td__async_step,
    .gather = td__async_gather,
    .meet = td__async_meet,
    .states = td__sync_local_states,
    .notes = td__async_notes,
    .order = td__async_told,
    .abandon = td__async_abandon,
};
