/* sync_async_peer.c -- asynchronous SGD without a server: a rank applies its own gradient at once
 * and sends it to all others, who apply it when they next look, between steps of theirs:
 *
 *     x_r <- x_r - rate g,   g = grad f_i(x_i) of any rank i, in the order of arrival
 *
 * The age of a gradient at rank r is how many of r's own gradients its author had not applied when
 * it was computed. A rank that is `window` steps ahead of what another has applied of it waits for
 * that rank, so that messages do not pile up; not if that rank waits itself. At a meeting all
 * gradients have arrived everywhere, and ranks, whose params then differ by the order of updates
 * alone, take the mean.
 *
 * The order that is recorded has a group for each step, of what was applied after it, and one for
 * each meeting. A replay applies just these, and waits for no window: it is as far behind as the
 * run was.
 *
 * A message: per list of row-sparse gradients {param, rows}; the dense block; the lists' rows and
 * values. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/async.h"

enum { GRADIENT = TD__ASYNC_OWN, APPLIED };

typedef struct list_head {
    int64_t param, n_rows;
} list_head;

typedef struct arrival {
    struct arrival *next;
    int from;
    td__post_head head;
    td__post_bytes *bytes;
} arrival;

typedef struct peers {
    td__async base;
    size_t floats; /* of a dense block */
    int lists;
    int64_t widths[TD__MAX_SPARSE];
    td_mem block; /* a gradient of another, for the device */
    td_sparse_grad rows[TD__MAX_SPARSE];
    td__post_bytes *own;    /* to be sent in this step; NULL: there were no rows */
    double lr;              /* of the last step */
    uint64_t *heard, *said; /* (ranks) steps of each that were applied here; told it */
    /* With the post's lock: */
    uint64_t *applied; /* (ranks) steps of this rank that each has applied */
    arrival *first, *last;
    int wanted; /* the rank whose message a replay has next */
} peers;

static const td__key OPTIONS[] = {
    TD_KEY_ROW("window", INT, "Steps that a rank may be ahead of what another has applied of it.",
               .lo = 1, .hi = 100000, .def = "16"),
    TD_KEYS_END};

/* ---- Gradients as bytes ---------------------------------------------------------------------- */

static td_status share(td__async *a, const td__grad_share *own)
{
    peers *p = (peers *)a;
    td__sync *s = &a->base.base;
    double weight = td__step_own_weight(s->engine);
    double all = s->x.step.weights ? 1 : (double)td__step_rows(s->engine);
    float scale = weight > 0 ? (float)(all / weight) : 0; /* to the mean over this rank's rows */
    size_t nbytes = (size_t)p->lists * sizeof(list_head) + p->floats * sizeof(float);
    td__post_bytes_release(p->own);
    p->own = NULL;
    if (!a->post || !own->grads)
        return TD_OK;
    for (int k = 0; k < p->lists; k++)
        nbytes += (size_t)own->lists[k].n_rows * (size_t)(1 + p->widths[k]) * sizeof(float);
    p->own = td__post_bytes_create(nbytes);
    if (!p->own)
        return TD_FAIL(TD_ENOMEM, "no memory for a gradient of %zu bytes", nbytes);
    list_head *heads = td__post_bytes_data(p->own);
    float *dense = (float *)(heads + p->lists), *at = dense + p->floats;
    TD_TRY(td__mem_read(td__params_device(s->x.step.params), dense, own->grads,
                        p->floats * sizeof *dense));
    for (size_t i = 0; i < p->floats; i++)
        dense[i] *= scale;
    for (int k = 0; k < p->lists; k++) {
        const td_sparse_grad *g = &own->lists[k];
        size_t n = (size_t)g->n_rows, values = n * (size_t)p->widths[k];
        heads[k] = (list_head){g->param, g->n_rows};
        memcpy(at, g->rows, n * sizeof *at);
        at += n;
        for (size_t i = 0; i < values; i++)
            *at++ = scale * g->values[i];
    }
    return TD_OK;
}

static td_status read_bytes(peers *p, int from, td__post_bytes *b)
{
    const list_head *heads = td__post_bytes_data(b);
    const float *dense = (const float *)(heads + p->lists), *at = dense + p->floats;
    size_t left = td__post_bytes_size(b), head = (size_t)((const char *)at - (const char *)heads);
    bool fits = left >= head;
    left -= fits ? head : 0;
    for (int k = 0; fits && k < p->lists; k++) {
        size_t row = (size_t)(1 + p->widths[k]) * sizeof *at;
        fits = heads[k].n_rows >= 0 && (uint64_t)heads[k].n_rows <= left / row;
        if (!fits)
            break;
        size_t n = (size_t)heads[k].n_rows;
        p->rows[k] = (td_sparse_grad){.param = (int)heads[k].param,
                                      .n_rows = heads[k].n_rows,
                                      .width = p->widths[k],
                                      .rows = (const int32_t *)(const void *)at,
                                      .values = at + n};
        at += n * (size_t)(1 + p->widths[k]);
        left -= n * row;
    }
    if (!fits || left)
        return TD_FAIL(TD_EPROTO, "a gradient of %zu bytes from rank %d", td__post_bytes_size(b),
                       from);
    return td__mem_write(p->block.device, p->block.at, dense, p->floats * sizeof *dense);
}

static td_sparse_grad rows_of(void *user, int k)
{
    return ((peers *)user)->rows[k];
}

/* ---- Sending and applying -------------------------------------------------------------------- */

static td_status told(td__async *a, int from, const td__post_head *h, td__post_bytes *b)
{
    peers *p = (peers *)a;
    p->applied[from] = h->number > p->applied[from] ? h->number : p->applied[from];
    if (h->kind != GRADIENT)
        return TD_OK;
    arrival *one = td__calloc(1, sizeof *one);
    if (!one)
        return TD_FAIL(TD_ENOMEM, "no memory for a gradient of rank %d", from);
    *one = (arrival){.from = from, .head = *h, .bytes = b};
    if (b)
        td__post_bytes_retain(b);
    if (p->last)
        p->last->next = one;
    else
        p->first = one;
    p->last = one;
    return TD_OK;
}

static td_status apply_one(peers *p, arrival *one)
{
    td__async *a = &p->base;
    td__sync *s = &a->base.base;
    uint64_t window = (uint64_t)td__sync_value(s, "window");
    int from = one->from;
    td__post_lock(a->post);
    td_status st = td__async_note(a, from);
    td__post_unlock(a->post);
    TD_TRY(st);
    if (one->bytes) {
        TD_TRY(read_bytes(p, from, one->bytes));
        td__step_sum sum = {.user = p, .grads = p->block.at, .rows = rows_of};
        TD_TRY(td__step_update(s->engine, p->lr, &sum));
        td__async_age(a, (double)(a->base.step - one->head.number));
    }
    p->heard[from] = one->head.step;
    if (p->heard[from] - p->said[from] < (window + 3) / 4)
        return TD_OK;
    p->said[from] = p->heard[from];
    return td__post_send(a->post, from, &(td__post_head){.kind = APPLIED, .number = p->heard[from]},
                         NULL);
}

static void drop(arrival *one)
{
    td__post_bytes_release(one->bytes);
    td__free(one);
}

/* All that has come so far. */
static td_status apply_all(peers *p)
{
    td_status st = TD_OK;
    if (!p->base.post)
        return TD_OK;
    td__post_lock(p->base.post);
    arrival *one = p->first;
    p->first = p->last = NULL;
    td__post_unlock(p->base.post);
    for (arrival *next; one; one = next) {
        next = one->next;
        if (!st)
            st = apply_one(p, one);
        drop(one);
    }
    td_params_touch(p->base.base.base.x.step.params);
    return st;
}

/* ---- A replay -------------------------------------------------------------------------------- */

/* Where the first message of the wanted rank is. */
static arrival **find_wanted(peers *p)
{
    arrival **at = &p->first;
    while (*at && (*at)->from != p->wanted)
        at = &(*at)->next;
    return at;
}

static bool wanted_has_come(void *user)
{
    peers *p = user;
    return *find_wanted(p) || !td__async_follows(&p->base);
}

/* The next one of a group, once it has come; NULL: the group ends, or the replay was left. With the
 * post's lock. */
static td_status take_next(peers *p, arrival **out)
{
    td__async *a = &p->base;
    *out = NULL;
    if (!td__async_follows(a))
        return TD_OK;
    p->wanted = td__async_order_next(&a->order);
    if (p->wanted >= 0)
        TD_TRY(td__async_wait(a, wanted_has_come, p, "the gradient that the replay has next"));
    if (!td__async_follows(a))
        return TD_OK;
    td__async_order_took(&a->order);
    if (p->wanted < 0)
        return TD_OK;
    arrival **at = find_wanted(p), *before = NULL;
    *out = *at;
    *at = (*at)->next;
    for (arrival *one = p->first; one; one = one->next)
        before = one;
    p->last = before;
    return TD_OK;
}

/* *all: what has come is to be applied as it came. */
static td_status apply_group(peers *p, bool *all)
{
    td__async *a = &p->base;
    arrival *one;
    *all = !a->post;
    while (!*all) {
        td__post_lock(a->post);
        td_status st = take_next(p, &one);
        *all = !td__async_follows(a);
        td__post_unlock(a->post);
        TD_TRY(st);
        if (!one)
            break;
        st = apply_one(p, one);
        drop(one);
        TD_TRY(st);
    }
    td_params_touch(a->base.base.x.step.params);
    return TD_OK;
}

static td_status end_group(peers *p)
{
    td__async *a = &p->base;
    if (!a->post)
        return TD_OK;
    td__post_lock(a->post);
    td_status st = td__async_order_end(&a->order);
    td__post_unlock(a->post);
    return st;
}

/* Of a part between meetings: a group for each step and one for the meeting, and all gradients of
 * each other rank. */
static bool fits(const td__sync_config *c, const td__async_part *p)
{
    uint64_t steps = p->to - p->from;
    bool good = p->groups == steps + 1;
    (void)c;
    for (int r = 0; r < p->ranks; r++)
        good = good && p->counts[r] == (r == p->rank ? 0 : steps);
    return good;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static bool in_window(const peers *p)
{
    uint64_t window = (uint64_t)td__sync_value(&p->base.base.base, "window");
    for (int r = 0; r < p->base.base.ranks; r++)
        if (r != p->base.rank && p->base.base.step > p->applied[r] + window &&
            !td__async_away(&p->base, r))
            return td__async_hurries(&p->base);
    return true;
}

static bool may_go_on(void *user)
{
    peers *p = user;
    return p->first || in_window(p);
}

static td_status applied(td__async *a, double lr)
{
    peers *p = (peers *)a;
    td__step_times *times = td__step_times_of(a->base.base.engine);
    uint64_t step = a->base.step;
    bool near = false, all;
    p->lr = lr;
    for (int r = 0; a->post && r < a->base.ranks; r++) {
        td__post_head h = {.kind = GRADIENT, .step = step, .number = p->heard[r]};
        if (r == a->rank)
            continue;
        p->said[r] = p->heard[r];
        TD_TRY(td__post_send(a->post, r, &h, p->own));
        times->sent_nbytes += p->own ? td__post_bytes_size(p->own) : 0;
    }
    times->plain_nbytes = times->sent_nbytes;
    td__post_bytes_release(p->own);
    p->own = NULL;
    TD_TRY(apply_group(p, &all));
    while (a->post && all && !near) {
        TD_TRY(apply_all(p));
        td__post_lock(a->post);
        td_status st =
            in_window(p) ? TD_OK : td__async_wait(a, may_go_on, p, "ranks that are behind");
        near = in_window(p);
        td__post_unlock(a->post);
        TD_TRY(st);
    }
    return end_group(p);
}

/* ---- The rule -------------------------------------------------------------------------------- */

static td_status come(td__async *a)
{
    bool all;
    if (!a->again) {
        TD_TRY(apply_group((peers *)a, &all));
        if (all)
            TD_TRY(apply_all((peers *)a));
        TD_TRY(end_group((peers *)a));
    }
    return td__local_merge(&a->base);
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    return td__async_check(c, j, w, fits);
}

static td_status create(td__sync *s)
{
    static const td__async_ops OPS = {.local = {.merge = td__local_take_mean},
                                      .told = told,
                                      .come = come,
                                      .share = share,
                                      .applied = applied};
    peers *p = (peers *)s;
    TD_TRY(td__async_create(s, &OPS));
    size_t n = (size_t)p->base.base.ranks;
    p->floats = td__step_floats(s->engine);
    p->lists = td__step_lists(s->engine);
    td__step_widths(s->engine, p->widths);
    p->heard = td__calloc(n, sizeof *p->heard);
    p->said = td__calloc(n, sizeof *p->said);
    p->applied = td__calloc(n, sizeof *p->applied);
    if (!p->heard || !p->said || !p->applied)
        return TD_FAIL(TD_ENOMEM, "no memory for what %zu ranks have applied", n);
    return td__mem_alloc(td__params_device(s->x.step.params), TD_MEM_OWN,
                         (p->floats + 1) * sizeof(float), &p->block);
}

static void destroy(td__sync *s)
{
    peers *p = (peers *)s;
    td__async_abandon(s, "the run was left");
    for (arrival *one = p->first, *next; one; one = next) {
        next = one->next;
        drop(one);
    }
    td__post_bytes_release(p->own);
    td__free(p->heard);
    td__free(p->said);
    td__free(p->applied);
    td__mem_free(&p->block);
    td__async_destroy(s);
}

static td_status begin(td__sync *s, const td__sync_place *at)
{
    peers *p = (peers *)s;
    bool first = p->base.together; /* all ranks are at this step: the one before is everywhere */
    TD_TRY(td__async_begin(s, at));
    for (int r = 0; first && p->base.post && r < p->base.base.ranks; r++)
        p->heard[r] = p->said[r] = at->step - 1;
    if (!first || !p->base.post)
        return TD_OK;
    td__post_lock(p->base.post);
    for (int r = 0; r < p->base.base.ranks; r++)
        p->applied[r] = p->applied[r] > at->step - 1 ? p->applied[r] : at->step - 1;
    td__post_unlock(p->base.post);
    return TD_OK;
}

/* Of each other rank, as many gradients as a window holds, and those that leave. */
static size_t exchange(const td__sync_sizes *z)
{
    size_t window = (size_t)td__sync_setting_of(z->config, &OPTIONS[0]);
    return td__sync_local_exchange(z) + ((size_t)z->world.ranks * window + 1) * z->grads;
}

const td__sync_ops td__sync_async_peer = {
    .name = "async-peer",
    .help = "asynchronous SGD without a server: gradients go to all ranks, applied on arrival",
    .promise = "on several ranks a function of the order of messages, replayable",
    .unplanned = "its ranks exchange messages at any time",
    .options = OPTIONS,
    .size = sizeof(peers),
    .check = check,
    .traits = td__async_traits,
    .exchange = exchange,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .step = td__async_step,
    .meet = td__async_meet,
    .notes = td__async_notes,
    .order = td__async_told,
    .abandon = td__async_abandon,
};
