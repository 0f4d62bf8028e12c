/* data_parallel.c -- see data_parallel.h. The row-sparse part is in sparse_gather.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/data_parallel.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "parallel/sparse_gather.h"

enum { ALIGN = 16, SETS = 2 };

struct td__dp {
    td_comm *comm;
    td_stream *on; /* of the device that has the partials */
    int rank, size;
    size_t dense, slice, stride; /* floats: of a block, an owner's slice, a slot: size slices */
    td__rank_tree tree;
    float *mine;         /* (sets, slots, stride) registered, or own.at */
    float **slots_of;    /* (size) by rank */
    td_mem own, *opened; /* on a device that all share: this rank's slots; (size) the others' */
    bool on_device;
    td__sparse_gather *sparse; /* NULL: there are no row-sparse gradients */

    /* The tree's additions with addresses in set 0. */
    td__blend_op *ops;
    int max_ops;
    float *total;

    int set;
};

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Slots of all ranks, as this rank sees them. */
static td_status map_slots(td__dp *d, size_t nbytes)
{
    void *const *base = td__comm_shared(d->comm, d->mine);
    TD_ASSERT(base, "%zu bytes are not shared", nbytes);
    d->slots_of = td__calloc((size_t)d->size, sizeof *d->slots_of);
    if (!d->slots_of)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", d->size);
    for (int r = 0; r < d->size; r++)
        d->slots_of[r] = base[r];
    return TD_OK;
}

/* What a rank tells the others: bytes, without holes. */
typedef struct peer_card {
    td__mem_ticket ticket;
    unsigned char good;
} peer_card;
_Static_assert(sizeof(peer_card) == sizeof(td__mem_ticket) + 1, "no holes: it is sent");

static void close_peers(td__dp *d)
{
    for (int r = 0; d->opened && r < d->size; r++)
        td__mem_free(&d->opened[r]);
    td__mem_free(&d->own);
    td__free(d->opened);
    td__free(d->slots_of);
    d->opened = NULL;
    d->slots_of = NULL;
    d->on_device = false;
}

/* Slots of the other ranks as this one sees them; false: some rank's cannot be had. */
static bool open_all(td__dp *d, const peer_card *cards, size_t nbytes)
{
    for (int r = 0; r < d->size; r++) {
        if (!cards[r].good)
            return false;
        if (r != d->rank && td__mem_open(d->own.device, &cards[r].ticket, nbytes, &d->opened[r]))
            return false;
        d->slots_of[r] = r == d->rank ? d->own.at : d->opened[r].at;
    }
    return true;
}

/* Slots in the memory of a device, if all ranks share one. Collective. */
static td_status share_device(td__dp *d, td_device *device, size_t nbytes)
{
    peer_card own = {.good = 0}, *cards = td__calloc((size_t)d->size, sizeof *cards);
    d->opened = td__calloc((size_t)d->size, sizeof *d->opened);
    d->slots_of = td__calloc((size_t)d->size, sizeof *d->slots_of);
    int32_t good = cards && d->opened && d->slots_of;
    own.good = good && !td__mem_alloc(device, TD_MEM_PEER, nbytes, &d->own) &&
               !td__mem_handle(&d->own, &own.ticket);
    td_status st = good ? td_all_gather(d->comm, &own, cards, sizeof own, TD_U8, NULL)
                        : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", d->size);
    if (!st) {
        good = open_all(d, cards, nbytes);
        if (!good)
            TD_LOG(DEBUG, TRAIN, "gradients are added up in memory of the host: %s",
                   td_last_error());
        st = td_allreduce(d->comm, &good, &good, 1, TD_I32, TD_REDUCE_MIN, NULL);
    }
    td__free(cards);
    if (st || !good) {
        close_peers(d);
        return st;
    }
    d->on_device = true;
    d->mine = d->own.at;
    if (d->rank == 0)
        TD_LOG(DEBUG, TRAIN, "gradients of %d ranks are added up in the memory of their one GPU",
               d->size);
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
    if (!td__device_host_reads(device))
        TD_TRY(share_device(d, device, nbytes));
    if (!d->on_device) {
        void *mine;
        TD_TRY(td_comm_alloc(d->comm, nbytes, &mine));
        d->mine = mine;
        TD_TRY(map_slots(d, nbytes));
    }
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

void td__dp_destroy(td__dp *d)
{
    if (!d)
        return;
    td__sparse_gather_destroy(d->sparse);
    if (!d->on_device)
        td_comm_free(d->comm, d->mine);
    close_peers(d);
    td__rank_tree_fini(&d->tree);
    td__free(d->ops);
    td__free(d);
}

/* ---- A step ---------------------------------------------------------------------------------- */

static float *address(const td__dp *d, td__rank_slot s)
{
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

static size_t set_offset(const td__dp *d)
{
    return (size_t)(d->set * d->tree.slots) * d->stride;
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

td_status td__dp_exchange(td__dp *d, const td__grad_stack *local, double *sums, size_t n_sums)
{
    /* Nobody leaves this call before all have come to it, and that is enough. */
    TD_TRY(td_allreduce(d->comm, sums, sums, n_sums, TD_F64, TD_REDUCE_SUM, NULL));
    if (d->sparse)
        TD_TRY(td__sparse_gather_run(d->sparse, local, d->tree.batches * d->tree.micro_batches,
                                     d->tree.partition));
    return TD_OK;
}

bool td__dp_on_device(const td__dp *d)
{
    return d->on_device;
}

bool td__dp_simple(const td__dp *d)
{
    return d->size == 2 && d->tree.n_adds == 1;
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
    td__grad_blend_ops(d->on_device ? d->on : NULL, d->ops, d->tree.n_adds,
                       set_offset(d) + (size_t)d->rank * d->slice + begin, count);
}

td_status td__dp_gather(td__dp *d, const float **grads)
{
    *grads = d->total + set_offset(d);
    return td_barrier(d->comm, NULL);
}

td_sparse_grad td__dp_sparse(const td__dp *d, int k)
{
    return td__sparse_gather_sum(d->sparse, k);
}

uint64_t td__dp_nbytes(const td__dp *d)
{
    return (uint64_t)(d->tree.rounds + 1) * (uint64_t)(d->size - 1) * d->slice * sizeof(float);
}
