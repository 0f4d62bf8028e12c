/* sparse_gather.c -- see sparse_gather.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/sparse_gather.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

struct td__sparse_gather {
    td_comm *comm;
    td__grad_pool *blocks; /* borrowed: of the local partials */
    td__grad_pool *lists;  /* blocks without a dense part */
    int slots, n_sparse;
    int64_t *lengths;  /* (size, slots, n_sparse): rows of each list; -1: the partial is absent */
    int64_t *own;      /* (slots, n_sparse) */
    int32_t *in, *out; /* (words), (size, words) of the last gather */
    size_t words;      /* of the longest message: all have that length */
    size_t room;       /* words that `in` can hold */
    const int32_t **from;  /* by rank: how far its message has been read */
    td__rank_leaf *leaves; /* (size, slots) */
    td__grad_stack sum;
    td__partial in_sum[TD__GRAD_RANGE];
};

td_status td__sparse_gather_create(td_comm *comm, td__grad_pool *blocks, int slots,
                                   td__sparse_gather **out)
{
    *out = NULL;
    td__sparse_gather *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for row-sparse gradients");
    s->comm = comm;
    s->blocks = blocks;
    s->slots = slots;
    s->n_sparse = td__grad_sparse_count(blocks);
    s->sum = (td__grad_stack)TD__GRAD_STACK_IN(s->in_sum);
    size_t n = (size_t)slots * (size_t)s->n_sparse;
    s->own = td__calloc(n, sizeof *s->own);
    s->lengths = td__calloc(n * (size_t)td_comm_size(comm), sizeof *s->lengths);
    size_t size = (size_t)td_comm_size(comm);
    s->from = td__calloc(size, sizeof *s->from);
    s->leaves = td__calloc(size * (size_t)slots, sizeof *s->leaves);
    td_status st = s->own && s->lengths && s->from && s->leaves
                       ? td__grad_pool_like(blocks, &s->lists)
                       : TD_FAIL(TD_ENOMEM, "no memory for row-sparse gradients");
    if (st) {
        td__sparse_gather_destroy(s);
        return st;
    }
    *out = s;
    return TD_OK;
}

void td__sparse_gather_destroy(td__sparse_gather *s)
{
    if (!s)
        return;
    if (s->lists)
        td__sparse_gather_clear(s);
    td__grad_pool_destroy(s->lists);
    td__free(s->own);
    td__free(s->lengths);
    td__free(s->from);
    td__free(s->leaves);
    td__free(s->in);
    td__free(s->out);
    td__free(s);
}

void td__sparse_gather_clear(td__sparse_gather *s)
{
    td__grad_clear(s->lists, &s->sum);
}

static size_t list_words(const td__sparse_gather *s, int k, int64_t rows)
{
    return rows > 0 ? (size_t)rows * (size_t)(1 + td__grad_sparse_width(s->blocks, k)) : 0;
}

/* The longest message of all ranks, and room for it. */
static td_status make_room(td__sparse_gather *s)
{
    size_t lists = (size_t)s->slots * (size_t)s->n_sparse, most = 1;
    int size = td_comm_size(s->comm);
    for (int r = 0; r < size; r++) {
        size_t words = 0;
        for (size_t i = 0; i < lists; i++)
            words +=
                list_words(s, (int)(i % (size_t)s->n_sparse), s->lengths[(size_t)r * lists + i]);
        most = words > most ? words : most;
    }
    s->words = most;
    if (most <= s->room)
        return TD_OK;
    size_t room = most + most / 2; /* lists vary from step to step */
    td__free(s->in);
    td__free(s->out);
    s->room = 0;
    s->in = td__calloc(room, sizeof *s->in);
    s->out = td__calloc(room * (size_t)size, sizeof *s->out);
    if (!s->in || !s->out)
        return TD_FAIL(TD_ENOMEM, "no memory for row-sparse gradients of %d ranks", size);
    s->room = room;
    return TD_OK;
}

static td_status send(td__sparse_gather *s, const td__grad_stack *local)
{
    size_t lists = (size_t)s->slots * (size_t)s->n_sparse;
    for (int i = 0; i < s->slots; i++)
        for (int k = 0; k < s->n_sparse; k++) {
            bool here = i < local->n && local->at[i].block;
            s->own[i * s->n_sparse + k] =
                here ? td__grad_sparse(s->blocks, &local->at[i], k).n_rows : -1;
        }
    TD_TRY(td_all_gather(s->comm, s->own, s->lengths, lists, TD_I64, NULL));
    TD_TRY(make_room(s));
    int32_t *to = s->in;
    for (int i = 0; i < local->n; i++)
        for (int k = 0; k < s->n_sparse && local->at[i].block; k++) {
            td_sparse_grad g = td__grad_sparse(s->blocks, &local->at[i], k);
            memcpy(to, g.rows, (size_t)g.n_rows * sizeof *to);
            to += g.n_rows;
            memcpy(to, g.values, (size_t)(g.n_rows * g.width) * sizeof *to);
            to += g.n_rows * g.width;
        }
    return td_all_gather(s->comm, s->in, s->out, s->words, TD_I32, NULL);
}

/* Partial i of a rank, from its message. */
static td_status unpack(td__sparse_gather *s, const int64_t *lengths, const int32_t **from,
                        td__partial *p)
{
    if (lengths[0] < 0)
        return TD_OK;
    TD_TRY(td__grad_hold(s->lists, p));
    for (int k = 0; k < s->n_sparse; k++) {
        const int32_t *rows = *from;
        td__grad_set_rows(s->lists, p, k, lengths[k], rows, (const float *)(rows + lengths[k]));
        *from += list_words(s, k, lengths[k]);
    }
    return TD_OK;
}

/* A rank's slots come in rising order, so that its message is read front to back. */
static td_status merge(td__sparse_gather *s, const td__rank_leaf *leaves, int n)
{
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);
    for (int r = 0; r < td_comm_size(s->comm); r++)
        s->from[r] = s->out + (size_t)r * s->words;
    for (int i = 0; i < n; i++) {
        const td__rank_leaf *l = &leaves[i];
        size_t slot = (size_t)l->rank * (size_t)s->slots + (size_t)l->slot;
        TD_ASSERT(s->sum.n < s->sum.room && l->slot < s->slots, "%d partials", s->sum.n);
        td__partial *p = &s->sum.at[s->sum.n];
        *p = (td__partial){.tree = l->tree, .weight = 1};
        TD_TRY(unpack(s, s->lengths + slot * (size_t)s->n_sparse, &s->from[l->rank], p));
        s->sum.n++;
        td__grad_plan(&s->sum, false, &sum);
        td__grad_finish(s->lists, &sum);
    }
    return TD_OK;
}

td_status td__sparse_gather_add(td__sparse_gather *s, const td__grad_stack *local,
                                const td__rank_leaf *leaves, int n)
{
    TD_TRY(send(s, local));
    return merge(s, leaves, n);
}

void td__sparse_gather_finish(td__sparse_gather *s)
{
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);
    td__grad_plan(&s->sum, true, &sum);
    td__grad_finish(s->lists, &sum);
    TD_ASSERT(s->sum.n == 1 && s->sum.at[0].block, "%d partials are left", s->sum.n);
}

td_status td__sparse_gather_run(td__sparse_gather *s, const td__grad_stack *local,
                                int micro_batches, td__work_partition partition)
{
    int size = td_comm_size(s->comm), n = 0;
    for (int r = 0; r < size; r++) {
        td__subtree trees[64];
        int mine = td__work_partials(partition, micro_batches, r, trees);
        for (int i = 0; i < mine; i++)
            s->leaves[n++] = (td__rank_leaf){.tree = trees[i], .rank = r, .slot = i};
    }
    TD_TRY(td__sparse_gather_add(s, local, s->leaves, n));
    td__sparse_gather_finish(s);
    return TD_OK;
}

size_t td__sparse_gather_words(const td__sparse_gather *s)
{
    return s->words;
}

td_sparse_grad td__sparse_gather_sum(const td__sparse_gather *s, int k)
{
    return td__grad_sparse(s->lists, &s->sum.at[0], k);
}
