/* data_parallel.c -- see data_parallel.h. The row-sparse part is in sparse_gather.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/data_parallel.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "coll/nccl/nccl.h"
#include "parallel/peers.h"
#include "parallel/sparse_gather.h"

enum { ALIGN = 16, SETS = 2 };

struct td__dp {
    td_comm *comm;
    td_stream *on; /* of the device that has the partials */
    int rank, size;
    size_t dense, slice, stride; /* floats: of a block, an owner's slice, a slot: size slices */
    td__rank_tree tree;
    float *mine;               /* (sets, slots, stride) registered, or of the peers */
    float **slots_of;          /* (size) by rank */
    td__peers *peers;          /* on a GPU that all share; NULL: slots are the host's, or: */
    td__nccl *nccl;            /* a GPU's own, of which slices go to the others */
    td_mem gpu;                /* then one set of its slots, and: */
    float *inbox;              /* (size, slots, slice) of all ranks' slots, this rank's slice */
    float *whole;              /* (stride) the sum of all */
    td__sparse_gather *sparse; /* NULL: there are no row-sparse gradients */

    /* The tree's additions with addresses in set 0. */
    td__blend_op *ops;
    int max_ops;
    float *total;

    int set;
};

/* ---- Memory ---------------------------------------------------------------------------------- */

/* This rank's slots on its GPU, which reaches no other; of those of others only what it adds up. */
static td_status open_nccl(td__dp *d, td_device *device)
{
    size_t slots = (size_t)d->tree.slots * d->stride, floats, nbytes;
    TD_TRY(td__nccl_open(d->comm, device, "gradients", &d->nccl));
    if (!d->nccl)
        return TD_OK;
    if (!td__size_mul(slots, 2, &floats) || !td__size_add(floats, d->stride, &floats) ||
        !td__size_mul(floats, sizeof(float), &nbytes))
        return TD_FAIL(TD_ENOMEM, "no memory for gradients of %d ranks", d->size);
    TD_TRY(td__mem_alloc(device, TD_MEM_OWN, nbytes, &d->gpu));
    d->mine = d->gpu.at;
    d->inbox = d->mine + slots;
    d->whole = d->inbox + slots;
    return TD_OK;
}

/* Slots of all ranks, as this rank sees them: on the GPU, if they share one. */
static td_status map_slots(td__dp *d, td_device *device, size_t nbytes)
{
    void *const *base = NULL, *mine;
    d->slots_of = td__calloc((size_t)d->size, sizeof *d->slots_of);
    if (!d->slots_of)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", d->size);
    if (!td__device_host_reads(device) && !td__nccl_asked(d->comm))
        TD_TRY(td__peers_open(d->comm, device, nbytes, "gradients", &d->peers));
    if (!td__device_host_reads(device) && !d->peers)
        TD_TRY(open_nccl(d, device));
    if (d->nccl)
        return TD_OK;
    if (!d->peers) {
        TD_TRY(td_comm_alloc(d->comm, nbytes, &mine));
        d->mine = mine;
        base = td__comm_shared(d->comm, d->mine);
        TD_ASSERT(base, "%zu bytes are not shared", nbytes);
    }
    for (int r = 0; r < d->size; r++)
        d->slots_of[r] = d->peers ? td__peers_at(d->peers, r) : base[r];
    d->mine = d->slots_of[d->rank];
    return TD_OK;
}

static td_status set_up(td__dp *d, td_device *device, td__grad_pool *blocks,
                        td__work_partition partition, int micro_batches, int accumulate)
{
    size_t floats, nbytes;
    TD_TRY(td__rank_tree_init(&d->tree, partition, micro_batches, accumulate));
    d->on = td__grad_stream(blocks);
    d->dense = td__grad_dense(blocks);
    d->slice = td__align_up((d->dense + (size_t)d->size - 1) / (size_t)d->size, ALIGN);
    d->slice = d->slice ? d->slice : ALIGN;
    d->stride = d->slice * (size_t)d->size;
    if (!td__size_mul(d->stride, (size_t)SETS * (size_t)d->tree.slots, &floats) ||
        !td__size_mul(floats, sizeof(float), &nbytes))
        return TD_FAIL(TD_ENOMEM, "gradients of %zu floats are too large", d->dense);
    TD_TRY(map_slots(d, device, nbytes));
    if (td__grad_sparse_count(blocks))
        TD_TRY(td__sparse_gather_create(d->comm, blocks, d->tree.slots, &d->sparse));
    return TD_OK;
}

td_status td__dp_create(td_comm *comm, td_device *device, td__grad_pool *blocks, const int *bounds,
                        int micro_batches, int accumulate, td__dp **out)
{
    *out = NULL;
    td__dp *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for gradients of several ranks");
    d->comm = comm;
    d->rank = td_comm_rank(comm);
    d->size = td_comm_size(comm);
    td_status st =
        set_up(d, device, blocks, (td__work_partition){d->size, bounds}, micro_batches, accumulate);
    if (st) {
        td__dp_destroy(d);
        return st;
    }
    *out = d;
    return TD_OK;
}

td_status td__dp_leave(td__dp *d)
{
    if (!d->peers)
        return TD_OK;
    TD_TRY(td__stream_sync(d->on));
    return td__peers_leave(d->peers, d->comm);
}

void td__dp_destroy(td__dp *d)
{
    if (!d)
        return;
    td__sparse_gather_destroy(d->sparse);
    if (!d->peers && !d->nccl && d->mine)
        td_comm_free(d->comm, d->mine);
    td__peers_close(d->peers);
    td__nccl_close(d->nccl);
    td__mem_free(&d->gpu);
    td__free(d->slots_of);
    td__rank_tree_fini(&d->tree);
    td__free(d->ops);
    td__free(d);
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* Of a slot; with NCCL of this rank's slice of it. */
static float *address(const td__dp *d, td__rank_slot s)
{
    if (d->nccl)
        return d->inbox + ((size_t)s.rank * (size_t)d->tree.slots + (size_t)s.slot) * d->slice;
    return d->slots_of[s.rank] + (size_t)s.slot * d->stride;
}

static td_status bind_ops(td__dp *d)
{
    const td__rank_tree *t = &d->tree;
    if (t->n_adds > d->max_ops) {
        td__free(d->ops);
        d->max_ops = 0;
        d->ops = td__calloc((size_t)t->n_adds, sizeof *d->ops);
        if (!d->ops)
            return TD_FAIL(TD_ENOMEM, "no memory for %d sums", t->n_adds);
        d->max_ops = t->n_adds;
    }
    for (int i = 0; i < t->n_adds; i++)
        d->ops[i] = (td__blend_op){address(d, t->adds[i].dst), address(d, t->adds[i].src), 1, 1};
    d->total = address(d, t->total);
    return TD_OK;
}

td_status td__dp_begin(td__dp *d, int batches, int64_t last_rows)
{
    bool changed;
    d->set = (d->set + 1) % SETS;
    if (d->sparse)
        td__sparse_gather_clear(d->sparse);
    TD_TRY(td__rank_tree_plan(&d->tree, batches, last_rows, &changed));
    return changed ? bind_ops(d) : TD_OK;
}

/* NCCL's calls are over when they return: nobody reads the last step's slots any more. */
static size_t set_offset(const td__dp *d)
{
    return d->nccl ? 0 : (size_t)(d->set * d->tree.slots) * d->stride;
}

void td__dp_publish(td__dp *d, const td__grad_stack *local, size_t begin, size_t count)
{
    const td__rank_tree *t = &d->tree;
    TD_ASSERT(local->n ==
                  td__work_partials(t->partition, t->batches * t->micro_batches, d->rank, NULL),
              "%d partials of %d batches", local->n, t->batches);
    unsigned mode = td__cpu_fp_flush(); /* as in the sums of one rank */
    for (int i = 0; i < local->n; i++) {
        const td__partial *p = &local->at[i];
        float *slot = d->mine + set_offset(d) + (size_t)i * d->stride;
        if (p->dense)
            td__stream_publish(d->on, slot + begin, p->dense + begin, p->weight, count);
    }
    td__stream_drain(d->on);
    td__cpu_fp_restore(mode);
}

/* Of each slot, slices go to their owners, and those of this rank's come. */
static td_status swap_slices(td__dp *d)
{
    size_t slice = d->slice * sizeof(float), slots = (size_t)d->tree.slots;
    for (size_t i = 0; i < slots; i++)
        TD_TRY(td__nccl_swap(d->nccl, d->mine + i * d->stride, slice, d->inbox + i * d->slice,
                             slots * slice, slice));
    return TD_OK;
}

td_status td__dp_exchange(td__dp *d, const td__grad_stack *local, double *sums, size_t n_sums)
{
    /* Nobody leaves this call before all have come to it, and that is enough. */
    TD_TRY(td_allreduce(d->comm, sums, sums, n_sums, TD_F64, TD_REDUCE_SUM, NULL));
    if (d->nccl)
        TD_TRY(swap_slices(d));
    if (d->sparse)
        TD_TRY(td__sparse_gather_run(d->sparse, local, d->tree.batches * d->tree.micro_batches,
                                     d->tree.partition));
    return TD_OK;
}

bool td__dp_simple_tree(const td__rank_tree *t)
{
    return t->size == 2 && t->n_adds == 1;
}

bool td__dp_simple(const td__dp *d)
{
    return td__dp_simple_tree(&d->tree);
}

/* Its own part a rank takes from where it is still in the cache. Which of two comes first is the
 * same to a sum. */
void td__dp_total(const td__dp *d, const td__grad_stack *local, size_t begin, size_t count,
                  float *to)
{
    const td__rank_add *add = &d->tree.adds[0];
    const td__partial *own = &local->at[0];
    const float *other = address(d, add->dst.rank == d->rank ? add->src : add->dst);
    td__blend_op op = {own->dense, other + set_offset(d), own->weight, 1};
    td__grad_blended(d->on, &op, begin, count, to);
}

size_t td__dp_slice(const td__dp *d)
{
    return d->slice;
}

void td__dp_sum(td__dp *d, size_t begin, size_t count)
{
    size_t before = d->nccl ? 0 : set_offset(d) + (size_t)d->rank * d->slice;
    td__grad_blend_ops(d->peers || d->nccl ? d->on : NULL, d->ops, d->tree.n_adds, before + begin,
                       count);
}

td_status td__dp_gather(td__dp *d, const float **grads)
{
    *grads = d->nccl ? d->whole : d->total + set_offset(d);
    return d->nccl ? td__nccl_all_gather(d->nccl, d->total, d->whole, d->slice * sizeof(float))
                   : td_barrier(d->comm, NULL);
}

td_sparse_grad td__dp_sparse(const td__dp *d, int k)
{
    return td__sparse_gather_sum(d->sparse, k);
}

uint64_t td__dp_nbytes(const td__dp *d)
{
    return (uint64_t)(d->tree.rounds + 1) * (uint64_t)(d->size - 1) * d->slice * sizeof(float);
}
