/* id_table.c -- see id_table.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/id_table.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/file.h"
#include "graph/init.h"
#include "optim/row_optim.h"
#include "ps/row_store.h"

enum { LAST = 0x7fffffff };                        /* steps are counted so far */
enum { FIRST_ROOM = 1024, BLOCK = 64, LINE = 16 }; /* ids; floats of a cache line */

#define NONE UINT32_MAX
#define GONE (UINT32_MAX - 1) /* it was dropped, and the index is about to be rebuilt */

/* An id, open addressing: all that is known of it lies in one place, since every place that a push
 * looks at costs as much as its arithmetic. */
typedef struct entry {
    int64_t id;    /* -1: empty */
    uint32_t slot; /* of its row; NONE: it has none yet */
    /* With a row: the step of the last push (0: none), and whether the row has changed since the
     * last save. Without: how often the id was pulled. */
    uint32_t last : 31, dirty : 1;
} entry;
_Static_assert(sizeof(entry) == 16, "four entries in a cache line");

struct td__id_table {
    td__id_table_opts o;
    td__row_optim optim;
    td__row_store store;
    size_t stride; /* floats: width, and as many for each state */
    entry *index;  /* (cap) */
    size_t cap, used;
    size_t slots, rows, dropped;
    uint32_t *free; /* slots of rows that were dropped */
    size_t n_free, room_free;
    int64_t *gone; /* ids that were dropped since the last save */
    size_t n_gone, room_gone;
};

/* ---- Index ----------------------------------------------------------------------------------- */

static size_t place_of(const td__id_table *t, int64_t id)
{
    uint64_t h = (uint64_t)id * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)((h ^ (h >> 29)) & (t->cap - 1));
}

/* Where the id is, or would be. */
static entry *find(const td__id_table *t, int64_t id)
{
    size_t at = place_of(t, id);
    while (t->index[at].id != id && t->index[at].id != -1)
        at = (at + 1) & (t->cap - 1);
    return &t->index[at];
}

/* An index with room for twice the entries; without those of ids that were dropped. */
static td_status rebuild(td__id_table *t, size_t entries)
{
    size_t cap = FIRST_ROOM, old_cap = t->cap;
    entry *old = t->index;
    while (cap < 2 * entries)
        cap *= 2;
    entry *index = td__alloc_block(cap * sizeof *index);
    if (!index)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu ids of table %s", cap, t->o.name);
    memset(index, 0xff, cap * sizeof *index);
    t->index = index;
    t->cap = cap;
    t->used = 0;
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i].id < 0 || old[i].slot == GONE)
            continue;
        *find(t, old[i].id) = old[i];
        t->used++;
    }
    td__free_block(old, old_cap * sizeof *old);
    return TD_OK;
}

/* Room for n more ids. */
static td_status reserve(td__id_table *t, size_t n)
{
    return 3 * (t->used + n) > 2 * t->cap ? rebuild(t, t->used + n) : TD_OK;
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
        st = rebuild(t, 0);
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
static td_status make_slot(td__id_table *t, entry *e)
{
    if (t->slots >= GONE)
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

static td_status make_row(td__id_table *t, entry *e)
{
    float *row;
    TD_TRY(make_slot(t, e));
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
    entry *entry[BLOCK];
    float *row[BLOCK]; /* NULL: there is none, or it may be in the file */
} block;

static void find_block(const td__id_table *t, const int64_t *ids, size_t n, size_t begin, block *b)
{
    b->begin = begin;
    b->n = begin >= n ? 0 : n - begin < BLOCK ? n - begin : BLOCK;
    for (size_t i = begin + b->n; i < n && i < begin + (size_t)2 * BLOCK; i++)
        __builtin_prefetch(&t->index[place_of(t, ids[i])]);
    for (size_t i = 0; i < b->n; i++) {
        entry *e = b->entry[i] = find(t, ids[begin + i]);
        b->row[i] = NULL;
        if (t->store.most || e->id < 0 || e->slot == NONE)
            continue;
        b->row[i] = td__row_store_row(&t->store, e->slot);
        for (size_t at = 0; at < t->stride; at += LINE)
            __builtin_prefetch(b->row[i] + at, 1);
    }
}

static td_status pull_one(td__id_table *t, int64_t id, bool train, float *out)
{
    entry *e = find(t, id);
    float *row;
    if (e->id < 0 && train) {
        *e = (entry){.id = id, .slot = NONE};
        t->used++;
    }
    if (e->id >= 0 && e->slot == NONE && train && e->last + 1u >= t->o.min_count)
        TD_TRY(make_row(t, e));
    if (e->id >= 0 && e->slot != NONE) {
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
        TD_TRY(reserve(t, n));
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

static td_status push_block(td__id_table *t, const td__optim_hyper *h, const block *b,
                            const float *grads, uint64_t step)
{
    for (size_t i = 0; i < b->n; i++) {
        entry *e = b->entry[i];
        float *row = b->row[i];
        if (e->id < 0)
            continue;
        if (e->slot == NONE) {
            e->last = e->last < LAST ? (e->last + 1u) & LAST : LAST;
            continue;
        }
        if (!row)
            TD_TRY(td__row_store_at(&t->store, e->slot, true, &row));
        td__row_optim_update(&t->optim, h, row, grads + (b->begin + i) * t->o.width, t->o.width);
        e->last = (uint32_t)step & LAST;
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
    unsigned mode = td__cpu_fp_flush(); /* as in the updates of params */
    find_block(t, ids, n, 0, &two[0]);
    for (size_t k = 0; !st && two[k % 2].n; k++) {
        const block *b = &two[k % 2];
        find_block(t, ids, n, b->begin + b->n, &two[(k + 1) % 2]);
        st = push_block(t, &h, b, grads, step);
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
static td_status drop(td__id_table *t, entry *e)
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
    e->slot = GONE;
    t->rows--;
    return TD_OK;
}

static bool has_row(const entry *e)
{
    return e->id >= 0 && e->slot != NONE && e->slot != GONE;
}

/* A row that was made and never pushed to is as old as the first step that looks for it. */
td_status td__id_table_expire(td__id_table *t, uint64_t step)
{
    size_t before = t->rows;
    if (!t->o.expire)
        return TD_OK;
    for (size_t i = 0; i < t->cap; i++) {
        entry *e = &t->index[i];
        if (!has_row(e))
            continue;
        if (!e->last)
            e->last = (uint32_t)step & LAST;
        if (e->last + t->o.expire >= step)
            continue;
        TD_TRY(note_gone(t, e->id));
        TD_TRY(drop(t, e));
        t->dropped++;
    }
    return t->rows < before ? rebuild(t, t->used) : TD_OK;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Little-endian; then `gone` ids, then `rows` records: id, last, floats; then the crc32c of all. */
typedef struct header {
    char magic[8];
    uint32_t width, states;
    uint64_t step, gone, rows;
} header;
_Static_assert(sizeof(header) == 40, "the layout of a table's file");
static const char MAGIC[8] = {'T', 'D', 'T', 'A', 'B', 'L', 'E', '1'};

typedef struct record {
    int64_t id;
    uint64_t last;
} record;

typedef struct sink {
    td__file_out file;
    uint32_t crc;
} sink;

static void put(sink *s, const void *data, size_t nbytes)
{
    s->crc = td__crc32c(s->crc, data, nbytes);
    td__file_out_write(&s->file, data, nbytes);
}

static bool to_save(const entry *e, bool all)
{
    return has_row(e) && (all || e->dirty);
}

static td_status write_rows(td__id_table *t, sink *s, bool all)
{
    for (size_t i = 0; i < t->cap; i++) {
        const entry *e = &t->index[i];
        float *row;
        if (!to_save(e, all))
            continue;
        TD_TRY(td__row_store_at(&t->store, e->slot, false, &row));
        put(s, &(record){e->id, e->last}, sizeof(record));
        put(s, row, t->stride * sizeof *row);
    }
    return TD_OK;
}

td_status td__id_table_save(td__id_table *t, const char *path, uint64_t step, bool all)
{
    header h = {.width = (uint32_t)t->o.width,
                .states = (uint32_t)t->optim.n_states,
                .step = step,
                .gone = t->n_gone};
    sink s = {.crc = 0};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    for (size_t i = 0; i < t->cap; i++)
        h.rows += to_save(&t->index[i], all);
    TD_TRY(td__file_out_open(&s.file, path));
    put(&s, &h, sizeof h);
    put(&s, t->gone, t->n_gone * sizeof *t->gone);
    td_status st = write_rows(t, &s, all);
    if (st) {
        td__file_out_abandon(&s.file);
        return st;
    }
    td__file_out_write(&s.file, &s.crc, sizeof s.crc);
    TD_TRY(td__file_out_commit(&s.file));
    t->n_gone = 0;
    for (size_t i = 0; i < t->cap; i++)
        if (has_row(&t->index[i]))
            t->index[i].dirty = 0;
    return TD_OK;
}

static td_status check_file(const td__id_table *t, const td__file_map *m, const char *path,
                            header *h)
{
    uint32_t crc;
    size_t each = sizeof(record) + t->stride * sizeof(float), need = sizeof *h + sizeof crc;
    if (m->nbytes < need)
        return TD_FAIL(TD_EPROTO, "%s: not a file of a table: %zu bytes", path, m->nbytes);
    memcpy(h, m->data, sizeof *h);
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0)
        return TD_FAIL(TD_EPROTO, "%s: not a file of a table", path);
    if (h->width != t->o.width || h->states != (uint32_t)t->optim.n_states)
        return TD_FAIL(TD_EPROTO,
                       "%s: rows of %u values with %u states, not of %zu with %d: it is of another "
                       "table or optimizer",
                       path, h->width, h->states, t->o.width, t->optim.n_states);
    size_t left = m->nbytes - need;
    if (h->gone > left / sizeof(int64_t) || h->rows > (left - h->gone * sizeof(int64_t)) / each ||
        h->gone * sizeof(int64_t) + h->rows * each != left)
        return TD_FAIL(TD_EPROTO, "%s: damaged or truncated: %zu bytes for %llu rows", path,
                       m->nbytes, (unsigned long long)h->rows);
    memcpy(&crc, m->data + m->nbytes - sizeof crc, sizeof crc);
    return crc == td__crc32c(0, m->data, m->nbytes - sizeof crc)
               ? TD_OK
               : TD_FAIL(TD_EPROTO, "%s: damaged: its checksum is wrong", path);
}

static td_status take_row(td__id_table *t, const uint8_t *from)
{
    record r;
    float *row;
    memcpy(&r, from, sizeof r);
    entry *e = find(t, r.id);
    if (e->id < 0) {
        *e = (entry){.id = r.id, .slot = NONE};
        t->used++;
    }
    if (e->slot == NONE)
        TD_TRY(make_slot(t, e));
    TD_TRY(td__row_store_at(&t->store, e->slot, true, &row));
    memcpy(row, from + sizeof r, t->stride * sizeof *row);
    e->last = (uint32_t)r.last & LAST;
    e->dirty = 0;
    return TD_OK;
}

static td_status take_all(td__id_table *t, const header *h, const uint8_t *from,
                          bool (*mine)(const void *user, int64_t id), const void *user)
{
    size_t each = sizeof(record) + t->stride * sizeof(float), before = t->rows;
    for (uint64_t i = 0; i < h->gone; i++, from += sizeof(int64_t)) {
        int64_t id;
        memcpy(&id, from, sizeof id);
        entry *e = id >= 0 ? find(t, id) : NULL;
        if (e && has_row(e))
            TD_TRY(drop(t, e));
    }
    if (t->rows < before)
        TD_TRY(rebuild(t, t->used));
    for (uint64_t i = 0; i < h->rows; i++, from += each) {
        int64_t id;
        memcpy(&id, from, sizeof id);
        if (id < 0)
            return TD_FAIL(TD_EPROTO, "table %s: a row of id %lld", t->o.name, (long long)id);
        if (mine && !mine(user, id))
            continue;
        TD_TRY(reserve(t, 1));
        TD_TRY(take_row(t, from));
    }
    return TD_OK;
}

td_status td__id_table_load(td__id_table *t, const char *path,
                            bool (*mine)(const void *user, int64_t id), const void *user)
{
    td__file_map m;
    header h;
    TD_TRY(td__file_map_open(&m, path));
    td_status st = check_file(t, &m, path, &h);
    if (!st)
        st = take_all(t, &h, m.data + sizeof h, mine, user);
    td__file_map_close(&m);
    return st;
}
