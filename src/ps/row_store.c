/* row_store.c -- see row_store.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/row_store.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/unnamed_file.h"

enum { LEAST = 2, FEW = 8 };    /* chunks in memory; bits of small ones */
enum { HUGE_NBYTES = 4 << 20 }; /* from which on memory is of huge pages */

static size_t chunk_nbytes(const td__row_store *s)
{
    return (s->stride * sizeof(float)) << s->bits;
}

void td__row_store_init(td__row_store *s, size_t stride, size_t memory, const char *folder)
{
    *s = (td__row_store){.stride = stride, .fd = -1, .folder = folder ? folder : "/var/tmp"};
    s->bits = FEW;
    while (!memory && chunk_nbytes(s) < HUGE_NBYTES)
        s->bits++;
    s->most = memory ? memory / chunk_nbytes(s) : 0;
    if (memory && s->most < LEAST)
        s->most = LEAST;
}

void td__row_store_fini(td__row_store *s)
{
    for (size_t i = 0; i < s->n_chunks; i++)
        if (s->chunk[i].rows)
            td__free_block(s->chunk[i].rows, chunk_nbytes(s));
    td__free(s->chunk);
    if (s->fd >= 0)
        close(s->fd);
}

/* ---- The file -------------------------------------------------------------------------------- */

static td_status open_file(td__row_store *s)
{
    if (s->fd >= 0)
        return TD_OK;
    s->fd = td__unnamed_open(s->folder);
    return s->fd >= 0
               ? TD_OK
               : TD_FAIL(TD_EIO, "%s: no file for rows of a table: %s", s->folder, strerror(errno));
}

static td_status move(td__row_store *s, size_t i, bool out)
{
    size_t nbytes = chunk_nbytes(s);
    float *at = s->chunk[i].rows;
    bool done = out ? td__unnamed_put(s->fd, i * nbytes, at, nbytes)
                    : td__unnamed_get(s->fd, i * nbytes, at, nbytes);
    return done ? TD_OK
                : TD_FAIL(TD_EIO, "%s: rows of a table cannot be %s: %s", s->folder,
                          out ? "written" : "read", errno ? strerror(errno) : "the file is short");
}

/* One chunk that was not used since the hand passed it last goes to the file. */
static td_status put_away(td__row_store *s)
{
    for (;;) {
        s->hand = (s->hand + 1) % s->n_chunks;
        td__store_chunk *c = &s->chunk[s->hand];
        if (!c->rows)
            continue;
        if (c->used) {
            c->used = false;
            continue;
        }
        TD_TRY(open_file(s));
        if (c->dirty)
            TD_TRY(move(s, s->hand, true));
        td__free_block(c->rows, chunk_nbytes(s));
        *c = (td__store_chunk){.rows = NULL};
        s->held--;
        return TD_OK;
    }
}

static td_status hold(td__row_store *s, size_t i)
{
    while (s->most && s->held >= s->most)
        TD_TRY(put_away(s));
    s->chunk[i].rows = td__alloc_block(chunk_nbytes(s));
    if (!s->chunk[i].rows)
        return TD_FAIL(TD_ENOMEM, "no memory for %d rows of a table", 1 << s->bits);
    s->held++;
    return TD_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

td_status td__row_store_grow(td__row_store *s, size_t n)
{
    while (s->n_chunks << s->bits < n) {
        if (s->n_chunks == s->room) {
            size_t room = s->room ? 2 * s->room : 64;
            td__store_chunk *more = td__calloc(room, sizeof *more);
            if (!more)
                return TD_FAIL(TD_ENOMEM, "no memory for %zu chunks of a table", room);
            if (s->n_chunks)
                memcpy(more, s->chunk, s->n_chunks * sizeof *more);
            td__free(s->chunk);
            s->chunk = more;
            s->room = room;
        }
        size_t i = s->n_chunks++;
        s->chunk[i] = (td__store_chunk){.rows = NULL};
        td_status st = hold(s, i);
        if (st) {
            s->n_chunks--;
            return st;
        }
        s->chunk[i].dirty = s->chunk[i].used = true;
    }
    return TD_OK;
}

td_status td__row_store_at(td__row_store *s, size_t slot, bool write, float **out)
{
    size_t i = slot >> s->bits;
    if (!s->chunk[i].rows) {
        TD_TRY(hold(s, i));
        td_status st = move(s, i, false);
        if (st) { /* not half of it */
            td__free_block(s->chunk[i].rows, chunk_nbytes(s));
            s->chunk[i].rows = NULL;
            s->held--;
            return st;
        }
    }
    s->chunk[i].used = true;
    s->chunk[i].dirty = s->chunk[i].dirty || write;
    *out = td__row_store_row(s, slot);
    return TD_OK;
}

size_t td__row_store_spilled(const td__row_store *s)
{
    return s->n_chunks - s->held;
}
