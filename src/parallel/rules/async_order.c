/* async_order.c -- see async_order.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/async_order.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"

enum { MANY = 4096 }; /* words, that are sent */

typedef struct td__async_words_of words_of;
struct td__async_words_of {
    words_of *next;
    int rank;
    td__post_bytes *bytes;
};

static void drop(words_of *w)
{
    if (w)
        td__post_bytes_release(w->bytes);
    td__free(w);
}

void td__async_order_fini(td__async_order *o)
{
    drop(o->told);
    for (words_of *w = o->first, *next; w; w = next) {
        next = w->next;
        drop(w);
    }
    td__backup_sets_destroy(o->sets);
    td__free(o->made.at);
    td__free(o->given.at);
}

/* ---- The record ------------------------------------------------------------------------------ */

static td_status add(td__async_words *w, int32_t word)
{
    if (w->n == w->room) {
        size_t room = w->room ? 2 * w->room : 64;
        int32_t *more = td__realloc(w->at, room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for the order of %zu messages", room);
        w->at = more;
        w->room = room;
    }
    w->at[w->n++] = word;
    return TD_OK;
}

td_status td__async_order_add(td__async_order *o, int from)
{
    o->open = true;
    return add(&o->made, from);
}

td_status td__async_order_end(td__async_order *o)
{
    o->open = false;
    return add(&o->made, TD__ORDER_END);
}

td_status td__async_order_met(td__async_order *o, uint64_t step)
{
    if (o->open)
        TD_TRY(td__async_order_end(o));
    TD_TRY(add(&o->made, TD__ORDER_MET));
    return add(&o->made, (int32_t)step);
}

bool td__async_order_full(const td__async_order *o)
{
    return o->made.n >= MANY;
}

static td__post_bytes *bytes_of(const int32_t *words, size_t n)
{
    td__post_bytes *b = td__post_bytes_create(n * sizeof *words);
    if (b && n)
        memcpy(td__post_bytes_data(b), words, n * sizeof *words);
    return b;
}

td__post_bytes *td__async_order_take(td__async_order *o)
{
    if (o->open && td__async_order_end(o))
        return NULL;
    td__post_bytes *b = bytes_of(o->made.at, o->made.n);
    o->made.n = 0;
    return b;
}

td_status td__async_order_came(td__async_order *o, int from, td__post_bytes *b)
{
    words_of *w = td__calloc(1, sizeof *w);
    if (!w)
        return TD_FAIL(TD_ENOMEM, "no memory for the order of messages of rank %d", from);
    *w = (words_of){.rank = from, .bytes = b};
    td__post_bytes_retain(b);
    if (o->last)
        o->last->next = w;
    else
        o->first = w;
    o->last = w;
    return TD_OK;
}

bool td__async_order_told(td__async_order *o, td__order_event *out)
{
    words_of *w = o->first;
    drop(o->told);
    o->told = w;
    if (!w)
        return false;
    o->first = w->next;
    o->last = o->first ? o->last : NULL;
    *out = (td__order_event){.rank = w->rank,
                             .words = td__post_bytes_data(w->bytes),
                             .n = td__post_bytes_size(w->bytes) / sizeof *out->words};
    return true;
}

/* ---- The replay, before the run -------------------------------------------------------------- */

/* The part after p, up to the next meeting. */
static void find_part(td__async_part *p, uint64_t *counts, const int32_t *words, size_t n)
{
    memset(counts, 0, (size_t)p->ranks * sizeof *counts);
    *p = (td__async_part){
        .rank = p->rank, .ranks = p->ranks, .from = p->to, .counts = counts, .words = words};
    while (p->n < n && words[p->n] != TD__ORDER_MET) {
        if (words[p->n] >= 0)
            counts[words[p->n]]++;
        else
            p->groups++;
        p->n++;
    }
    p->to = p->n + 1 < n ? (uint64_t)words[p->n + 1] : p->from;
}

static td_status check_rank(const td__sync_config *c, const td__backup_sets *sets,
                            td__async_part *p, uint64_t *counts,
                            bool (*fits)(const td__sync_config *c, const td__async_part *p))
{
    size_t n, at = 0;
    const int32_t *words = td__backup_sets_order(sets, p->rank, &n);
    while (at < n) {
        find_part(p, counts, words + at, n - at);
        at += p->n + 2;
        if (at <= n && !fits(c, p)) /* what follows the last meeting is of a run that was killed */
            return TD_FAIL(TD_EINVAL,
                           "%s: in steps %llu to %llu rank %d applied other messages than ranks of "
                           "this job send: it is damaged, or of another job",
                           c->replay, (unsigned long long)p->from + 1, (unsigned long long)p->to,
                           p->rank);
    }
    return TD_OK;
}

td_status td__async_order_check(const td__sync_config *c, int ranks,
                                bool (*fits)(const td__sync_config *c, const td__async_part *p))
{
    td__backup_sets *sets;
    if (!c->replay)
        return TD_OK;
    TD_TRY(td__backup_sets_read_orders(c->replay, ranks, c->rule, &sets));
    uint64_t *counts = td__calloc((size_t)ranks, sizeof *counts);
    td_status st = counts ? td__backup_sets_check_whole(sets, 0)
                          : TD_FAIL(TD_ENOMEM, "no memory for messages of %d ranks", ranks);
    for (int r = 0; !st && ranks > 1 && r < ranks; r++)
        st = check_rank(c, sets, &(td__async_part){.rank = r, .ranks = ranks}, counts, fits);
    td__free(counts);
    td__backup_sets_destroy(sets);
    return st;
}

td_status td__async_order_read(td__async_order *o, const td__sync_ctx *x, const char *rule,
                               int ranks)
{
    if (!x->config->replay)
        return TD_OK;
    TD_TRY(td__backup_sets_read_orders(x->config->replay, ranks, rule, &o->sets));
    return td__backup_sets_check_whole(o->sets, x->steps);
}

td__post_bytes *td__async_order_of(const td__async_order *o, int rank)
{
    size_t n;
    const int32_t *words = td__backup_sets_order(o->sets, rank, &n);
    return bytes_of(words, n);
}

/* ---- The replay, in the run ------------------------------------------------------------------ */

static const char *name_of(const td__async_order *o)
{
    return o->path ? o->path : "the run that is replayed";
}

static void find_next_meeting(td__async_order *o)
{
    size_t i = o->at;
    while (i < o->given.n && o->given.at[i] != TD__ORDER_MET)
        i++;
    o->until = i + 1 < o->given.n ? (uint64_t)o->given.at[i + 1] : 0;
}

td_status td__async_order_give(td__async_order *o, td__post_bytes *b)
{
    const int32_t *words = td__post_bytes_data(b);
    for (size_t i = 0; i < td__post_bytes_size(b) / sizeof *words; i++)
        TD_TRY(add(&o->given, words[i]));
    o->follows = true;
    find_next_meeting(o);
    return TD_OK;
}

void td__async_order_leave(td__async_order *o)
{
    if (o->follows)
        TD_LOG(WARN, TRAIN,
               "ranks halt for a request, and the replay of %s is left: from here on messages are "
               "applied in the order of arrival",
               name_of(o));
    o->follows = false;
}

static void pass(td__async_order *o)
{
    while (td__async_order_next(o) != TD__ORDER_MET)
        o->at++;
    o->at += 2;
    o->met = o->until;
    find_next_meeting(o);
}

/* To after the last meeting of that step. */
static td_status seek(td__async_order *o, uint64_t step)
{
    while (o->until && (o->met != step || o->until == step))
        pass(o);
    if (o->met != step)
        return TD_FAIL(TD_EINVAL,
                       "%s: its ranks did not meet after step %llu, so a replay of it cannot be "
                       "resumed there",
                       name_of(o), (unsigned long long)step);
    return TD_OK;
}

td_status td__async_order_begins(td__async_order *o, uint64_t step, bool resumed)
{
    if (!o->follows)
        return TD_OK;
    if (resumed && o->met + 1 != step)
        TD_TRY(seek(o, step - 1));
    if (!o->until)
        return TD_FAIL(TD_EINVAL, "%s ends at step %llu, and this run goes on: set train.steps",
                       name_of(o), (unsigned long long)o->met);
    if (step > o->until)
        return TD_FAIL(TD_EINVAL,
                       "%s: its ranks met after step %llu, to validate, to save or at the end, and "
                       "those of this run do not: replay it with the same job",
                       name_of(o), (unsigned long long)o->until);
    return TD_OK;
}

td_status td__async_order_meets(const td__async_order *o, uint64_t step)
{
    if (o->follows && o->until != step)
        return TD_FAIL(TD_EINVAL,
                       "%s: its ranks did not meet after step %llu, and those of this run do, to "
                       "validate, to save or at the end: replay it with the same job",
                       name_of(o), (unsigned long long)step);
    return TD_OK;
}

td_status td__async_order_pass(td__async_order *o, uint64_t step)
{
    if (!o->follows)
        return TD_OK;
    while (td__async_order_next(o) == TD__ORDER_END)
        o->at++;
    if (td__async_order_next(o) != TD__ORDER_MET || o->until != step)
        return TD_FAIL(TD_EINVAL, "%s: in step %llu there are messages that nobody has sent here",
                       name_of(o), (unsigned long long)step);
    pass(o);
    return TD_OK;
}

int td__async_order_next(const td__async_order *o)
{
    return o->at < o->given.n ? o->given.at[o->at] : TD__ORDER_MET;
}
