/* id_table.c -- see id_table.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/id_table_impl.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "graph/init.h"

enum { FIRST_ROOM = 1024, BLOCK = 64, LINE = 16 }; /* ids; floats of a cache line */

/* ---- Index ----------------------------------------------------------------------------------- */

static size_t place_of(const td__id_table *t, int64_t id)
{
    uint64_t h = (uint64_t)id * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)((h ^ (h >> 29)) & (t->cap - 1));
}

/* Where the id is, or would be. */
td__id_entry *td__ids_find(const td__id_table *t, int64_t id)
{
    size_t at = place_of(t, id);
    while (t->index[at].id != id && t->index[at].id != -1)
        at = (at + 1) & (t->cap - 1);
    return &t->index[at];
}

/* An index with room for twice the entries; without those of ids that were dropped. */
td_status td__ids_rebuild(td__id_table *t, size_t entries)
{
    size_t cap = FIRST_ROOM, old_cap = t->cap;
    td__id_entry *old = t->index;
    while (cap < 2 * entries)
        cap *= 2;
    td__id_entry *index = td__alloc_block(cap * sizeof *index);
    if (!index)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu ids of table %s", cap, t->o.name);
    memset(index, 0xff, cap * sizeof *index);
    t->index = index;
    t->cap = cap;
    t->used = 0;
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i].id < 0 || old[i].slot == TD__ID_GONE)
            continue;
        *td__ids_find(t, old[i].id) = old[i];
        t->used++;
    }
    td__free_block(old, old_cap * sizeof *old);
    return TD_OK;
}

/* Room for n more ids. */
td_status td__ids_reserve(td__id_table *t, size_t n)
{
    return 3 * (t->used + n) > 2 * t->cap ? td__ids_rebuild(t, t->used + n) : TD_OK;
}

/* ---- Making ---------------------------------------------------------------------------------- */

td_status td__id_table_create(const td__id_table_opts *o, td__id_table **out)
{
    td_status st;
    *out = NULL;
    td__id_table *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for table %s", o->name);
    t->o = *o;
    t->o.name = td__strdup(o->name);
    t->o.min_count = o->min_count ? o->min_count : 1;
    t->store.fd = -1;
    st = t->o.name ? td__row_optim_init(&t->optim, o->optim)
                   : TD_FAIL(TD_ENOMEM, "no memory for table %s", o->name);
    if (!st) {
        t->stride = o->width * (size_t)(1 + t->optim.n_states);
        td__row_store_init(&t->store, t->stride, o->memory, o->spill);
        st = td__ids_rebuild(t, 0);
    }
    if (st) {
        td__id_table_destroy(t);
        return st;
    }
    *out = t;
    return TD_OK;
}

void td__id_table_destroy(td__id_table *t)
{
    if (!t)
        return;
    td__row_store_fini(&t->store);
    td__free((void *)(uintptr_t)t->o.name);
    td__free_block(t->index, t->cap * sizeof *t->index);
    td__free(t->free);
    td__free(t->gone);
    td__free(t);
}

void td__id_table_own(td__id_table *t, td__id_filter *mine, const void *user)
{
    t->mine = mine;
    t->mine_user = user;
}

td__id_table_stats td__id_table_look(const td__id_table *t)
{
    return (td__id_table_stats){.rows = t->rows,
                                .waiting = t->used - t->rows,
                                .spilled = td__row_store_spilled(&t->store) << t->store.bits,
                                .dropped = t->dropped};
}

static void first_values(const td__id_table *t, int64_t id, float *out)
{
    td__init_normals(t->o.seed, t->o.name, t->o.std, (uint64_t)id * t->o.width, t->o.width, out);
}

/* A slot for the id of an entry; its values are the caller's business. */
td_status td__ids_make_slot(td__id_table *t, td__id_entry *e)
{
    if (t->slots >= TD__ID_GONE)
        return TD_FAIL(TD_ENOMEM, "table %s has %zu rows, which is all that there can be",
                       t->o.name, t->slots);
    if (!t->n_free)
        TD_TRY(td__row_store_grow(&t->store, t->slots + 1));
    e->slot = t->n_free ? t->free[--t->n_free] : (uint32_t)t->slots++;
    e->last = 0;
    e->dirty = 1;
    t->rows++;
    return TD_OK;
}

static td_status make_row(td__id_table *t, td__id_entry *e)
{
    float *row;
    TD_TRY(td__ids_make_slot(t, e));
    TD_TRY(td__row_store_at(&t->store, e->slot, true, &row));
    first_values(t, e->id, row);
    td__row_optim_new(&t->optim, row, t->o.width);
    return TD_OK;
}

/* ---- Pull and push --------------------------------------------------------------------------- */

/* Rows of a block of ids. Memory is far: while the rows of a block are dealt with, those of the
 * next one and the entries of the one after that are on their way. */
typedef struct block {
    size_t begin, n;
    td__id_entry *entry[BLOCK];
    float *row[BLOCK]; /* NULL: there is none, or it may be in the file */
} block;

static void find_block(const td__id_table *t, const int64_t *ids, size_t n, size_t begin, block *b)
{
    b->begin = begin;
    b->n = begin >= n ? 0 : n - begin < BLOCK ? n - begin : BLOCK;
    for (size_t i = begin + b->n; i < n && i < begin + (size_t)2 * BLOCK; i++)
        __builtin_prefetch(&t->index[place_of(t, ids[i])]);
    for (size_t i = 0; i < b->n; i++) {
        td__id_entry *e = b->entry[i] = td__ids_find(t, ids[begin + i]);
        b->row[i] = NULL;
        if (t->store.most || e->id < 0 || e->slot == TD__ID_NONE)
            continue;
        b->row[i] = td__row_store_row(&t->store, e->slot);
        for (size_t at = 0; at < t->stride; at += LINE)
            __builtin_prefetch(b->row[i] + at, 1);
    }
}

static td_status pull_one(td__id_table *t, int64_t id, bool train, float *out)
{
    td__id_entry *e = td__ids_find(t, id);
    float *row;
    if (e->id < 0 && train) {
        *e = (td__id_entry){.id = id, .slot = TD__ID_NONE};
        t->used++;
    }
    if (e->id >= 0 && e->slot == TD__ID_NONE && train && e->last + 1u >= t->o.min_count)
        TD_TRY(make_row(t, e));
    if (e->id >= 0 && e->slot != TD__ID_NONE) {
        TD_TRY(td__row_store_at(&t->store, e->slot, false, &row));
        memcpy(out, row, t->o.width * sizeof *out);
    } else if (t->o.min_count > 1) {
        memset(out, 0, t->o.width * sizeof *out);
    } else {
        first_values(t, id, out);
    }
    return TD_OK;
}

td_status td__id_table_pull(td__id_table *t, const int64_t *ids, size_t n, bool train, float *out)
{
    if (train)
        TD_TRY(td__ids_reserve(t, n));
    block two[2];
    find_block(t, ids, n, 0, &two[0]);
    for (size_t k = 0; two[k % 2].n; k++) {
        const block *b = &two[k % 2];
        find_block(t, ids, n, b->begin + b->n, &two[(k + 1) % 2]);
        for (size_t i = 0; i < b->n; i++) {
            float *to = out + (b->begin + i) * t->o.width;
            if (b->row[i])
                memcpy(to, b->row[i], t->o.width * sizeof *to);
            else
                TD_TRY(pull_one(t, ids[b->begin + i], train, to));
        }
    }
    return TD_OK;
}

/* With copies: the entry of an id that had none when it was looked for, with a row if it is to have
 * one in this batch, as a pull would have made it. */
static td_status make_up(td__id_table *t, int64_t id, td__id_entry **out)
{
    td__id_entry *e = *out = td__ids_find(t, id); /* others may have been put there meanwhile */
    if (e->id < 0) {
        *e = (td__id_entry){.id = id, .slot = TD__ID_NONE};
        t->used++;
    }
    return e->slot == TD__ID_NONE && e->last + 1u >= t->o.min_count ? make_row(t, e) : TD_OK;
}

static td_status push_block(td__id_table *t, const td__optim_hyper *h, const block *b,
                            const int64_t *ids, const float *grads, uint64_t step)
{
    for (size_t i = 0; i < b->n; i++) {
        td__id_entry *e = b->entry[i];
        float *row = b->row[i];
        if (t->mine && !row)
            TD_TRY(make_up(t, ids[b->begin + i], &e));
        if (e->id < 0)
            continue;
        if (e->slot == TD__ID_NONE) {
            e->last = e->last < TD__ID_LAST ? (e->last + 1u) & TD__ID_LAST : TD__ID_LAST;
            continue;
        }
        if (!row)
            TD_TRY(td__row_store_at(&t->store, e->slot, true, &row));
        td__row_optim_update(&t->optim, h, row, grads + (b->begin + i) * t->o.width, t->o.width);
        e->last = (uint32_t)step & TD__ID_LAST;
        e->dirty = 1;
    }
    return TD_OK;
}

td_status td__id_table_push(td__id_table *t, const int64_t *ids, const float *grads, size_t n,
                            double lr, uint64_t step)
{
    td__optim_hyper h;
    td_status st = TD_OK;
    block two[2];
    td__row_optim_begin(&t->optim, lr, step, &h);
    if (t->mine)
        TD_TRY(td__ids_reserve(t, n));
    unsigned mode = td__cpu_fp_flush(); /* as in the updates of params */
    find_block(t, ids, n, 0, &two[0]);
    for (size_t k = 0; !st && two[k % 2].n; k++) {
        const block *b = &two[k % 2];
        find_block(t, ids, n, b->begin + b->n, &two[(k + 1) % 2]);
        st = push_block(t, &h, b, ids, grads, step);
    }
    td__cpu_fp_restore(mode);
    return st;
}

static td_status note_gone(td__id_table *t, int64_t id)
{
    if (t->n_gone == t->room_gone) {
        size_t room = t->room_gone ? 2 * t->room_gone : FIRST_ROOM;
        int64_t *more = td__realloc(t->gone, room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu ids of table %s", room, t->o.name);
        t->gone = more;
        t->room_gone = room;
    }
    t->gone[t->n_gone++] = id;
    return TD_OK;
}

/* The index is to be rebuilt afterwards. */
td_status td__ids_drop(td__id_table *t, td__id_entry *e)
{
    if (t->n_free == t->room_free) {
        size_t room = t->room_free ? 2 * t->room_free : FIRST_ROOM;
        uint32_t *more = td__realloc(t->free, room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu rows of table %s", room, t->o.name);
        t->free = more;
        t->room_free = room;
    }
    t->free[t->n_free++] = e->slot;
    e->slot = TD__ID_GONE;
    t->rows--;
    return TD_OK;
}

/* A row that was made and never pushed to is as old as the first step that looks for it. */
td_status td__id_table_expire(td__id_table *t, uint64_t step)
{
    size_t before = t->rows;
    if (!t->o.expire)
        return TD_OK;
    for (size_t i = 0; i < t->cap; i++) {
        td__id_entry *e = &t->index[i];
        if (!td__ids_has_row(e))
            continue;
        if (!e->last)
            e->last = (uint32_t)step & TD__ID_LAST;
        if (e->last + t->o.expire >= step)
            continue;
        TD_TRY(note_gone(t, e->id));
        TD_TRY(td__ids_drop(t, e));
        t->dropped++;
    }
    return t->rows < before ? td__ids_rebuild(t, t->used) : TD_OK;
}
