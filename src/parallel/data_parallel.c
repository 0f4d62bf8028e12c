/* data_parallel.c -- see data_parallel.h. The row-sparse part is in sparse_gather.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/data_parallel.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/kernels/blend.h"
#include "coll/comm_impl.h"
#include "parallel/sparse_gather.h"

enum { ALIGN = 16, SETS = 2 };

/* No sub-tree of a range is cut off: what the last shards pass up is left to the whole sum. */
static const int ENDLESS = 1 << 30;

struct td__dp {
    td_comm *comm;
    int rank, size, shards, accumulate;
    size_t dense, slice, stride; /* floats: of a block, an owner's slice, a slot: size slices */
    int slots;                   /* the most partials that a rank has in any step */
    bool shared;
    float *mine;               /* (sets, slots, stride) registered; one set without shared memory */
    float **slots_of;          /* (size) by rank, if shared */
    float *inbox;              /* (slots, size, slice) else */
    float *whole;              /* (stride) else */
    td__sparse_gather *sparse; /* NULL: there are no row-sparse gradients */

    /* The plan of a step, kept for the next of the same shape. */
    int batches; /* 0: none yet */
    int64_t last_rows;
    td__blend_op *ops; /* for set 0 */
    int n_ops, max_ops;
    float *total;
    int rounds; /* the most partials that a rank has */

    int set;
};

/* ---- Memory ---------------------------------------------------------------------------------- */

static int count_partials(int shards, int rank, int size)
{
    td__subtree trees[64];
    td__shard_range r = td__rank_shards(shards, rank, size);
    return td__shard_subtrees(ENDLESS, r.begin, r.end, trees);
}

static int most_partials(const td__dp *d, int batches)
{
    int most = 0;
    for (int r = 0; r < d->size; r++) {
        int n = count_partials(batches * d->shards, r, d->size);
        most = n > most ? n : most;
    }
    return most;
}

/* Do all ranks share memory? The same answer on all of them. */
static bool shares(const td_comm *c)
{
    return c->ctx.mesh && c->ctx.mesh->ops->share;
}

/* Slots of all ranks, as this rank sees them. */
static td_status map_slots(td__dp *d, size_t nbytes)
{
    const td__region *g = td__comm_region(d->comm, d->mine, nbytes);
    TD_ASSERT(g && g->mesh->size == d->size, "%zu bytes are not shared", nbytes);
    d->slots_of = td__calloc((size_t)d->size, sizeof *d->slots_of);
    if (!d->slots_of)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", d->size);
    for (int r = 0; r < d->size; r++)
        d->slots_of[r] = g->base[r];
    return TD_OK;
}

static td_status set_up(td__dp *d, td__grad_pool *blocks)
{
    size_t floats, nbytes;
    d->dense = td__grad_dense(blocks);
    d->slice = td__align_up((d->dense + (size_t)d->size - 1) / (size_t)d->size, ALIGN);
    d->slice = d->slice ? d->slice : ALIGN;
    d->stride = d->slice * (size_t)d->size;
    for (int m = 1; m <= d->accumulate; m++) {
        int n = most_partials(d, m);
        d->slots = n > d->slots ? n : d->slots;
    }
    d->shared = shares(d->comm);
    if (!td__size_mul(d->stride, (size_t)(d->shared ? SETS : 1) * (size_t)d->slots, &floats) ||
        !td__size_mul(floats, sizeof(float), &nbytes))
        return TD_FAIL(TD_ENOMEM, "gradients of %zu floats are too large", d->dense);
    void *mine;
    TD_TRY(td_comm_alloc(d->comm, nbytes, &mine));
    d->mine = mine;
    if (d->shared)
        TD_TRY(map_slots(d, nbytes));
    if (!d->shared) {
        d->inbox = td__alloc_block((size_t)d->slots * d->stride * sizeof(float));
        d->whole = td__alloc_block(d->stride * sizeof(float));
        if (!d->inbox || !d->whole)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu floats of the ranks' gradients",
                           (size_t)d->slots * d->stride);
    }
    if (td__grad_sparse_count(blocks))
        TD_TRY(td__sparse_gather_create(d->comm, blocks, d->slots, &d->sparse));
    return TD_OK;
}

td_status td__dp_create(td_comm *comm, td__grad_pool *blocks, int shards, int accumulate,
                        td__dp **out)
{
    *out = NULL;
    td__dp *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for gradients of several ranks");
    d->comm = comm;
    d->rank = td_comm_rank(comm);
    d->size = td_comm_size(comm);
    d->shards = shards;
    d->accumulate = accumulate;
    td_status st = set_up(d, blocks);
    if (st) {
        td__dp_destroy(d);
        return st;
    }
    *out = d;
    return TD_OK;
}

void td__dp_destroy(td__dp *d)
{
    if (!d)
        return;
    td__sparse_gather_destroy(d->sparse);
    td_comm_free(d->comm, d->mine);
    td__free_block(d->inbox, (size_t)d->slots * d->stride * sizeof(float));
    td__free_block(d->whole, d->stride * sizeof(float));
    td__free(d->slots_of);
    td__free(d->ops);
    td__free(d);
}

/* ---- The plan -------------------------------------------------------------------------------- */

/* Has any shard of the sub-tree a row? Only the last batch may have fewer rows than shards. */
static bool has_rows(const td__dp *d, const td__subtree *t)
{
    int64_t first = (int64_t)(d->batches - 1) * d->shards, begin = t->begin;
    int64_t end = begin + ((int64_t)1 << t->level);
    if (begin < first)
        return true;
    return d->last_rows * (end - first) / d->shards > d->last_rows * (begin - first) / d->shards;
}

/* Where the owner of a slice finds slot i of a rank; elements are counted from the block's start if
 * slots are shared, else from the slice's. */
static float *slot_of(const td__dp *d, int rank, int i)
{
    if (d->shared)
        return d->slots_of[rank] + (size_t)i * d->stride;
    return d->inbox + (size_t)i * d->stride + (size_t)rank * d->slice;
}

static td_status add_ops(td__dp *d, const td__grad_sum *sum)
{
    if (d->n_ops + sum->n_ops > d->max_ops) {
        int room = 2 * (d->n_ops + sum->n_ops);
        td__blend_op *more = td__realloc(d->ops, (size_t)room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %d sums", room);
        d->ops = more;
        d->max_ops = room;
    }
    for (int i = 0; i < sum->n_ops; i++)
        d->ops[d->n_ops++] = sum->op[i];
    return TD_OK;
}

static td_status make_plan(td__dp *d)
{
    td__grad_stack all = {.n = 0};
    td__grad_sum sum;
    td__subtree trees[64];

    d->n_ops = 0;
    d->rounds = most_partials(d, d->batches);
    for (int r = 0; r < d->size; r++) {
        td__shard_range own = td__rank_shards(d->batches * d->shards, r, d->size);
        int n = td__shard_subtrees(ENDLESS, own.begin, own.end, trees);
        for (int i = 0; i < n; i++) {
            all.at[all.n++] =
                (td__partial){.tree = trees[i],
                              .weight = 1,
                              .dense = has_rows(d, &trees[i]) ? slot_of(d, r, i) : NULL};
            td__grad_plan(&all, false, &sum);
            TD_TRY(add_ops(d, &sum));
        }
    }
    td__grad_plan(&all, true, &sum);
    TD_TRY(add_ops(d, &sum));
    TD_ASSERT(all.n == 1 && all.at[0].dense, "%d partials are left", all.n);
    d->total = all.at[0].dense;
    return TD_OK;
}

td_status td__dp_begin(td__dp *d, int batches, int64_t last_rows)
{
    TD_ASSERT(batches >= 1 && batches <= d->accumulate && last_rows >= 1, "%d batches", batches);
    if (d->shared)
        d->set = (d->set + 1) % SETS;
    if (d->sparse)
        td__sparse_gather_clear(d->sparse);
    if (d->batches == batches && d->last_rows == last_rows)
        return TD_OK;
    d->batches = batches;
    d->last_rows = last_rows;
    td_status st = make_plan(d);
    if (st)
        d->batches = 0;
    return st;
}

/* ---- A step ---------------------------------------------------------------------------------- */

static size_t set_offset(const td__dp *d)
{
    return (size_t)(d->set * d->slots) * d->stride;
}

void td__dp_publish(td__dp *d, const td__grad_stack *local, size_t begin, size_t count)
{
    TD_ASSERT(local->n == count_partials(d->batches * d->shards, d->rank, d->size),
              "%d partials of %d batches", local->n, d->batches);
    unsigned mode = td__cpu_fp_flush(); /* as in the sums of one rank */
    for (int i = 0; i < local->n; i++) {
        const td__partial *p = &local->at[i];
        float *to = d->mine + set_offset(d) + (size_t)i * d->stride + begin;
        if (!p->dense)
            continue;
        if (p->weight == 1)
            memcpy(to, p->dense + begin, count * sizeof *to);
        else
            TD_ISA_PICK(td__cpu_isa(), td__scaled_copy)(to, p->dense + begin, p->weight, count);
    }
    td__cpu_fp_restore(mode);
}

td_status td__dp_exchange(td__dp *d, const td__grad_stack *local, double *sums, size_t n_sums)
{
    /* Nobody leaves this call before all have come to it: with shared slots, that is enough. */
    TD_TRY(td_allreduce(d->comm, sums, sums, n_sums, TD_F64, TD_REDUCE_SUM, NULL));
    for (int i = 0; !d->shared && i < d->rounds; i++)
        TD_TRY(td_all_to_all(d->comm, d->mine + (size_t)i * d->stride,
                             d->inbox + (size_t)i * d->stride, d->slice, TD_F32, NULL));
    if (d->sparse)
        TD_TRY(td__sparse_gather_run(d->sparse, local, d->batches * d->shards));
    return TD_OK;
}

size_t td__dp_slice(const td__dp *d)
{
    return d->slice;
}

void td__dp_sum(td__dp *d, size_t begin, size_t count)
{
    size_t at = begin + (d->shared ? set_offset(d) + (size_t)d->rank * d->slice : 0);
    td__grad_blend_ops(d->ops, d->n_ops, at, count);
}

td_status td__dp_gather(td__dp *d, const float **grads)
{
    *grads = d->shared ? d->total + set_offset(d) : d->whole;
    if (d->shared)
        return td_barrier(d->comm, NULL);
    return td_all_gather(d->comm, d->total, d->whole, d->slice, TD_F32, NULL);
}

td_sparse_grad td__dp_sparse(const td__dp *d, int k)
{
    return td__sparse_gather_sum(d->sparse, k);
}
