/* distribute_index.c -- ranks get the offsets of all records, and read records from rank 0 when
 * they need them: nothing is kept but the index, and rank 0 does nothing but send bytes.
 *
 * Rank 0 writes the samples of a part, as the source gives them, to an unnamed file of records
 * (record_file.h) and broadcasts their offsets. A rank asks for [offset, offset + bytes) of the
 * records that it wants, gets them one after the other, a piece for every `block` bytes or a
 * record, and unpacks, splits, maps and draws itself, with what rank 0 has measured. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/record_file.h"
#include "parallel/distribute/desks.h"
#include "parallel/distribute/distribute.h"
#include "parallel/links.h"

enum { ASKED = 256 }; /* records in a question */

/* Rank 0's. */
typedef struct files {
    td__record_file file[TD_PART_COUNT];
    atomic_bool ready[TD_PART_COUNT]; /* its file is whole: desks may read it */
} files;

/* Records [begin, *end) that travel in one piece; numbers: (offset, bytes) of each. */
static size_t piece_of(const td__serving *v, const int64_t *numbers, int64_t n, int64_t begin,
                       int64_t *end)
{
    size_t nbytes = 0;

    for (*end = begin; *end < n; ++*end) {
        size_t next = (size_t)numbers[2 * *end + 1];
        if (*end > begin && next > v->block - nbytes)
            break;
        nbytes += next;
        if (nbytes >= v->block) {
            ++*end;
            break;
        }
    }
    return nbytes;
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

static td_status check_numbers(const td__record_file *r, const td__question *q,
                               const int64_t *numbers)
{
    for (int64_t i = 0; i + 1 < q->n; i += 2)
        if (numbers[i] < 0 || numbers[i + 1] < 0 || numbers[i] > r->offset[r->count] ||
            numbers[i + 1] > r->offset[r->count] - numbers[i])
            return TD_FAIL(TD_EPROTO, "a rank asks for %" PRId64 " bytes at offset %" PRId64,
                           numbers[i + 1], numbers[i]);
    return TD_OK;
}

static td_status answer(void *user, td__desk *k, const td__question *q, const int64_t *numbers)
{
    const td__serving *v = user;
    files *own = v->own;
    bool there = q->part >= 0 && q->part < TD_PART_COUNT &&
                 atomic_load_explicit(&own->ready[q->part], memory_order_acquire);

    if (!there || q->n % 2 || q->n > 2 * ASKED)
        return TD_FAIL(TD_EPROTO, "a rank asks for records of part %d", q->part);
    const td__record_file *r = &own->file[q->part];
    TD_TRY(check_numbers(r, q, numbers));
    for (int64_t begin = 0, end; begin < q->n / 2; begin = end) {
        size_t nbytes = piece_of(v, numbers, q->n / 2, begin, &end);
        uint8_t *to = td__desk_room(k, nbytes);
        if (!to)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of records", nbytes);
        for (int64_t i = begin; i < end; i++) {
            memcpy(to, r->data + numbers[2 * i], (size_t)numbers[2 * i + 1]);
            to += numbers[2 * i + 1];
        }
        TD_TRY(td__desk_give(k, TD_OK, nbytes));
    }
    return TD_OK;
}

static td_status begin_files(td__serving *v)
{
    v->own = td__calloc(1, sizeof(files));
    return v->own ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory to distribute data");
}

static void end_files(td__serving *v)
{
    files *own = v->own;

    for (int p = 0; own && p < TD_PART_COUNT; p++)
        td__record_file_close(&own->file[p]);
    td__free(own);
}

/* Rank 0 reads all samples before the others get offsets; a death ends the wait all the same. */
static const td_coll_opts WRITING = {.timeout_ms = TD__LINK_IDLE_MS};

static td_status tell(td__serving *v, td__part part, td__dataset *d)
{
    files *own = v->own;
    td__record_file *r = &own->file[part];

    TD_TRY(td__record_file_make(r, d, td__part_name(part)));
    atomic_store_explicit(&own->ready[part], true, memory_order_release);
    return td_broadcast(v->comm, r->offset, (size_t)r->count + 1, TD_I64, 0, &WRITING);
}

/* ---- The others ------------------------------------------------------------------------------ */

typedef struct indexed {
    td__dataset head;
    td__serving *v;
    td__part part;
    int64_t *offset; /* (count + 1) */
    td__arena *names;
} indexed;

static void indexed_destroy(td__dataset *d)
{
    indexed *m = (indexed *)d;

    td__arena_destroy(m->names);
    td__free(m->offset);
    td__free(m);
}

/* n records, at most ASKED, become samples first, first + 1, ... of out. */
static td_status read_some(const indexed *m, const int64_t *index, int64_t first, int64_t n,
                           void *const *out)
{
    int64_t numbers[2 * ASKED] = {0};
    const td__question q = {.part = (int32_t)m->part, .n = 2 * n};

    for (int64_t i = 0; i < n; i++) {
        numbers[2 * i] = m->offset[index[i]];
        numbers[2 * i + 1] = m->offset[index[i] + 1] - m->offset[index[i]];
    }
    TD_TRY(td__desk_ask(m->v->desks, &q, numbers));
    for (int64_t begin = 0, end; begin < n; begin = end) {
        size_t nbytes = piece_of(m->v, numbers, n, begin, &end);
        void *piece;
        TD_TRY(td__desk_take(m->v->desks, nbytes, &piece));
        const uint8_t *at = piece;
        for (int64_t i = begin; i < end; i++) {
            TD_TRY(td__record_unpack(&m->head, at, (size_t)numbers[2 * i + 1], first + i, out));
            at += numbers[2 * i + 1];
        }
    }
    return TD_OK;
}

static td_status indexed_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                              void *const *out)
{
    indexed *m = (indexed *)d;
    td_status st = TD_OK;

    (void)draw;
    for (int64_t begin = 0; begin < n && !st; begin += ASKED) {
        td__desk_hold(m->v->desks);
        st = read_some(m, index + begin, begin, n - begin < ASKED ? n - begin : ASKED, out);
        td__desk_let_go(m->v->desks);
    }
    return st;
}

static const td__dataset_ops OPS = {.destroy = indexed_destroy, .read = indexed_read};

static td_status check_offsets(const indexed *m)
{
    size_t most = td__record_most(&m->head);
    bool ok = m->offset[0] == 0;

    for (int64_t i = 0; i < m->head.count && ok; i++)
        ok =
            m->offset[i] <= m->offset[i + 1] && (uint64_t)(m->offset[i + 1] - m->offset[i]) <= most;
    return ok ? TD_OK : TD_FAIL(TD_EPROTO, "malformed offsets of the data from rank 0");
}

static td_status make_indexed(td__serving *v, td__part part, const td__dataset *head,
                              td__arena *names, td__dataset **out)
{
    td_status st = TD_OK;
    indexed *m = td__calloc(1, sizeof *m);

    if (!m) {
        td__arena_destroy(names);
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    }
    *m = (indexed){.head = *head, .v = v, .part = part, .names = names};
    m->head.ops = &OPS;
    m->offset = td__calloc((size_t)head->count + 1, sizeof *m->offset);
    if (!m->offset) {
        st = TD_FAIL(TD_ENOMEM, "no memory for the offsets of %" PRId64 " records", head->count);
        goto fail;
    }
    TD_TRY_OR(st, fail,
              td_broadcast(v->comm, m->offset, (size_t)head->count + 1, TD_I64, 0, &WRITING));
    TD_TRY_OR(st, fail, check_offsets(m));
    *out = &m->head;
    return TD_OK;
fail:
    indexed_destroy(&m->head);
    return st;
}

const td__distribute_def td__distribute_index = {
    .name = "index",
    .help = "ranks get the offsets of all records, and read records from rank 0 when they use them",
    .as_source = true,
    .answer = answer,
    .begin = begin_files,
    .tell = tell,
    .remote = make_indexed,
    .end = end_files,
};
