/* distribute_lazy.c -- a block of samples is copied to a rank when it reads the first of them, and
 * stays there: what a rank never reads never travels, what it reads again is its own.
 *
 * A part is a table of all samples whose memory nobody has touched yet, and a mark for each block
 * that has come. Blocks hold samples as the source gives them; splits and stages stand over the
 * table, with what rank 0 has measured. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/distribute/desks.h"
#include "parallel/distribute/distribute.h"

/* The first of a block, and how many it has. */
static int64_t block_rows(const td__serving *v, const td__dataset *d, int64_t block, int64_t *begin)
{
    int64_t most = td__serving_rows(v, d);

    *begin = block * most;
    return d->count - *begin < most ? d->count - *begin : most;
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

static td_status read_block(td__desk *k, td__dataset *d, int64_t begin, int64_t n)
{
    int64_t *index = td__malloc((size_t)n * sizeof *index);
    td_status st = index ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a block of samples");

    for (int64_t i = 0; i < n && !st; i++)
        index[i] = begin + i;
    if (!st)
        st = td__rows_read(k, d, index, n, NULL);
    td__free(index);
    return st;
}

static td_status answer(void *user, td__desk *k, const td__question *q, const int64_t *numbers)
{
    td__serving *v = user;
    td__dataset *d = q->part >= 0 && q->part < TD_PART_COUNT
                         ? td__data_source_part(v->data, (td__part)q->part)
                         : NULL;
    int64_t begin;

    if (!d || q->n != 1 || numbers[0] < 0 || numbers[0] > (d->count - 1) / td__serving_rows(v, d))
        return TD_FAIL(TD_EPROTO, "a rank asks for a block of part %d that is not there", q->part);
    int64_t n = block_rows(v, d, numbers[0], &begin);
    return td__desk_give(k, read_block(k, d, begin, n), td__rows_nbytes(d, n));
}

/* ---- The others ------------------------------------------------------------------------------ */

typedef struct lazy {
    td__dataset head;
    td__serving *v;
    td__part part;
    td__table *table;
    atomic_uchar *here; /* (blocks): it has come */
} lazy;

static void lazy_destroy(td__dataset *d)
{
    lazy *m = (lazy *)d;

    td__table_destroy(m->table);
    td__free(m->here);
    td__free(m);
}

static bool is_here(const lazy *m, int64_t block)
{
    return atomic_load_explicit(&m->here[block], memory_order_acquire);
}

static td_status fetch(lazy *m, int64_t block)
{
    const td__question q = {.part = (int32_t)m->part, .n = 1};
    void *at[TD__MAX_FIELDS], *piece;
    int64_t begin, n = block_rows(m->v, &m->head, block, &begin);

    TD_TRY(td__desk_ask(m->v->desks, &q, &block));
    TD_TRY(td__desk_take(m->v->desks, td__rows_nbytes(&m->head, n), &piece));
    td__rows_at(&m->head, n, piece, at);
    for (int f = 0; f < m->head.n_fields; f++) {
        size_t nbytes = m->table->nbytes[f];
        memcpy(m->table->column[f] + (size_t)begin * nbytes, at[f], (size_t)n * nbytes);
    }
    atomic_store_explicit(&m->here[block], 1, memory_order_release);
    return TD_OK;
}

static td_status lazy_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                           void *const *out)
{
    lazy *m = (lazy *)d;
    int64_t most = td__serving_rows(m->v, d);

    for (int64_t i = 0; i < n; i++) {
        int64_t block = index[i] / most;
        td_status st = TD_OK;
        if (is_here(m, block))
            continue;
        td__desk_hold(m->v->desks);
        if (!is_here(m, block)) /* another thread may have fetched it meanwhile */
            st = fetch(m, block);
        td__desk_let_go(m->v->desks);
        TD_TRY(st);
    }
    return td__dataset_read(&m->table->head, index, n, draw, out);
}

static const td__dataset_ops OPS = {.destroy = lazy_destroy, .read = lazy_read};

static td_status make_lazy(td__serving *v, td__part part, const td__dataset *head, td__arena *names,
                           td__dataset **out)
{
    td__table *table;

    TD_TRY(td__distribute_table(head, names, &table));
    lazy *m = td__calloc(1, sizeof *m);
    if (m) {
        *m = (lazy){.head = table->head, .v = v, .part = part, .table = table};
        m->head.ops = &OPS;
        m->here =
            td__calloc((size_t)(head->count / td__serving_rows(m->v, head)) + 1, sizeof *m->here);
    }
    if (!m || !m->here) {
        td__table_destroy(table);
        td__free(m);
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    }
    *out = &m->head;
    return TD_OK;
}

const td__distribute_def td__distribute_lazy = {
    .name = "lazy",
    .help = "a block of samples is copied to a rank when it first reads one of them, and kept",
    .as_source = true,
    .answer = answer,
    .remote = make_lazy,
};
