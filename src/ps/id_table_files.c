/* id_table_files.c -- tables by id in files, and on their way to other processes. See
 * id_table.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/file.h"
#include "ps/id_table_impl.h"

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

static bool is_mine(const td__id_table *t, int64_t id)
{
    return !t->mine || t->mine(t->mine_user, id);
}

static bool to_save(const td__id_table *t, const td__id_entry *e, bool all)
{
    return td__ids_has_row(e) && (all || e->dirty) && is_mine(t, e->id);
}

static void put_gone(const td__id_table *t, sink *s)
{
    for (size_t i = 0; i < t->n_gone; i++)
        if (is_mine(t, t->gone[i]))
            put(s, &t->gone[i], sizeof t->gone[i]);
}

static td_status write_rows(td__id_table *t, sink *s, bool all)
{
    for (size_t i = 0; i < t->cap; i++) {
        const td__id_entry *e = &t->index[i];
        float *row;
        if (!to_save(t, e, all))
            continue;
        TD_TRY(td__row_store_at(&t->store, e->slot, false, &row));
        put(s, &(record){e->id, e->last}, sizeof(record));
        put(s, row, t->stride * sizeof *row);
    }
    return TD_OK;
}

td_status td__id_table_save(td__id_table *t, const char *path, uint64_t step, bool all)
{
    header h = {.width = (uint32_t)t->o.width, .states = (uint32_t)t->optim.n_states, .step = step};
    sink s = {.crc = 0};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    for (size_t i = 0; i < t->cap; i++)
        h.rows += to_save(t, &t->index[i], all);
    for (size_t i = 0; i < t->n_gone; i++)
        h.gone += is_mine(t, t->gone[i]);
    TD_TRY(td__file_out_open(&s.file, path));
    put(&s, &h, sizeof h);
    put_gone(t, &s);
    td_status st = write_rows(t, &s, all);
    if (st) {
        td__file_out_abandon(&s.file);
        return st;
    }
    td__file_out_write(&s.file, &s.crc, sizeof s.crc);
    TD_TRY(td__file_out_commit(&s.file));
    t->n_gone = 0;
    for (size_t i = 0; i < t->cap; i++)
        if (td__ids_has_row(&t->index[i]))
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
    td__id_entry *e = td__ids_find(t, r.id);
    if (e->id < 0) {
        *e = (td__id_entry){.id = r.id, .slot = TD__ID_NONE};
        t->used++;
    }
    if (e->slot == TD__ID_NONE)
        TD_TRY(td__ids_make_slot(t, e));
    TD_TRY(td__row_store_at(&t->store, e->slot, true, &row));
    memcpy(row, from + sizeof r, t->stride * sizeof *row);
    e->last = (uint32_t)r.last & TD__ID_LAST;
    e->dirty = 0;
    return TD_OK;
}

static td_status take_all(td__id_table *t, const header *h, const uint8_t *from,
                          td__id_filter *mine, const void *user)
{
    size_t each = sizeof(record) + t->stride * sizeof(float), before = t->rows;
    for (uint64_t i = 0; i < h->gone; i++, from += sizeof(int64_t)) {
        int64_t id;
        memcpy(&id, from, sizeof id);
        td__id_entry *e = id >= 0 ? td__ids_find(t, id) : NULL;
        if (e && td__ids_has_row(e))
            TD_TRY(td__ids_drop(t, e));
    }
    if (t->rows < before)
        TD_TRY(td__ids_rebuild(t, t->used));
    for (uint64_t i = 0; i < h->rows; i++, from += each) {
        int64_t id;
        memcpy(&id, from, sizeof id);
        if (id < 0)
            return TD_FAIL(TD_EPROTO, "table %s: a row of id %lld", t->o.name, (long long)id);
        if (mine && !mine(user, id))
            continue;
        TD_TRY(td__ids_reserve(t, 1));
        TD_TRY(take_row(t, from));
    }
    return TD_OK;
}

td_status td__id_table_load(td__id_table *t, const char *path, td__id_filter *mine,
                            const void *user)
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

/* ---- To other processes ---------------------------------------------------------------------- */

#define WAITS (UINT64_C(1) << 63) /* in a record: it ends here, the id has no row yet */

size_t td__id_table_row_nbytes(const td__id_table *t)
{
    return sizeof(record) + t->stride * sizeof(float);
}

td_status td__id_table_give(td__id_table *t, td__id_filter *which, const void *user, size_t *place,
                            void *out, size_t room, size_t *nbytes)
{
    size_t each = td__id_table_row_nbytes(t);
    *nbytes = 0;
    for (; *place < t->cap && *nbytes + each <= room; ++*place) {
        const td__id_entry *e = &t->index[*place];
        char *to = (char *)out + *nbytes;
        bool waits = e->id >= 0 && e->slot == TD__ID_NONE;
        float *row;
        if ((!waits && !td__ids_has_row(e)) || !which(user, e->id))
            continue;
        memcpy(to, &(record){e->id, e->last | (waits ? WAITS : 0)}, sizeof(record));
        *nbytes += waits ? sizeof(record) : each;
        if (waits)
            continue;
        TD_TRY(td__row_store_at(&t->store, e->slot, false, &row));
        memcpy(to + sizeof(record), row, t->stride * sizeof *row);
    }
    return TD_OK;
}

/* An id that has no row yet. */
static void take_count(td__id_table *t, const record *r)
{
    td__id_entry *e = td__ids_find(t, r->id);
    if (e->id < 0) {
        *e = (td__id_entry){.id = r->id, .slot = TD__ID_NONE};
        t->used++;
    }
    if (e->slot == TD__ID_NONE)
        e->last = (uint32_t)r->last & TD__ID_LAST;
}

td_status td__id_table_put(td__id_table *t, const void *rows, size_t nbytes)
{
    size_t each = td__id_table_row_nbytes(t), size;
    const uint8_t *at = rows;
    record r = {0};
    for (size_t left = nbytes; left; left -= size, at += size) {
        if (left >= sizeof r)
            memcpy(&r, at, sizeof r);
        size = r.last & WAITS ? sizeof r : each;
        if (left < size || r.id < 0)
            return TD_FAIL(TD_EPROTO, "table %s: %zu bytes are no rows of %zu", t->o.name, nbytes,
                           each);
        TD_TRY(td__ids_reserve(t, 1));
        if (r.last & WAITS)
            take_count(t, &r);
        else
            TD_TRY(take_row(t, at));
    }
    return TD_OK;
}

td_status td__id_table_keep(td__id_table *t, td__id_filter *which, const void *user)
{
    size_t before = t->rows;
    for (size_t i = 0; i < t->cap; i++)
        if (td__ids_has_row(&t->index[i]) && !which(user, t->index[i].id))
            TD_TRY(td__ids_drop(t, &t->index[i]));
    return t->rows < before ? td__ids_rebuild(t, t->used) : TD_OK;
}
