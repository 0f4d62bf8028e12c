/* bucket_sum.c -- see bucket_sum.h.
 *
 * Memory of the tree: a bucket of c elements has n slices of s = c/n elements, rounded up to whole
 * cache lines; in a slot it takes 2 n s elements, so buckets lie a little apart: n s that leave,
 * then n s that arrive. Where two ranks swap whole partials, these lie there one behind the other,
 * in the order of ranks. In `whole`, where the sums arrive, buckets lie where the block has them,
 * so that a param is in one piece: what the last slice of a bucket has too much is written over
 * the beginning of the next, which arrives later. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/bucket_sum.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/kernels/blend.h"
#include "coll/comm.h"
#include "coll/nccl/nccl.h"
#include "graph/params.h"
#include "parallel/sparse_gather.h"

enum { ALIGN = 16, CHUNK = 16 << 10 };

/* How a bucket is cut among ranks. */
typedef struct cut {
    size_t slice, offset; /* elements: of a rank's; of the bucket in half a slot */
} cut;

struct td__bucket_sum {
    td__bucket_sum_opts o;
    int rank, size;
    td__buckets buckets;
    td__bucket_queue *queue;
    td__sparse_gather *sparse; /* NULL: there are no row-sparse gradients */
    td__rank_tree tree;
    float *whole;   /* (block, and a little more) registered: the sum of all */
    td__nccl *nccl; /* NULL: whole and slots are memory of the host */
    td_mem gpu[3];  /* else whole, slots and CHUNK zeros */
    /* The tree's. */
    cut *cuts;     /* by bucket */
    size_t stride; /* elements of half a slot */
    float *slots;  /* (slots, 2 stride): of a bucket, (2, size, slice), or (size, count) */
    /* The compressor's. */
    td__compressor *compressor; /* NULL: the tree */
    uint64_t sent_before, plain_before;

    /* The step under way. */
    uint64_t step;
    td__grad_stack *total, *stacks;
    td__grad_sum sum; /* what joins siblings */
    TD__GRAD_JOINS(TD__GRAD_STACK) in_sum;
    td__grad_stack all;
    td__partial in_all[TD__GRAD_STACK];
    td__grad_sum rest; /* for a compressor: what joins the rest */
    TD__GRAD_JOINS(TD__GRAD_STACK) in_rest;
    double *sums;
    size_t n_sums;
    bool begun, sending; /* not yet over; some bucket was posted */

    pthread_mutex_t lock; /* of the following; nothing else is taken under it */
    size_t *marks;        /* by thread: elements that are final */
    int next;             /* the first bucket that is not */
    bool planned;
};

static size_t slice_of(size_t count, size_t ranks)
{
    return td__align_up((count + ranks - 1) / ranks, ALIGN);
}

static bool swaps_in(const td__rank_tree *t)
{
    return t->size == 2 && t->rounds == 1;
}

void td__bucket_sum_plan(td__planner *w, int k)
{
    size_t count = w->buckets.at[k].count, n = (size_t)w->ranks;
    size_t all = slice_of(count, n) * n * sizeof(float);
    if (swaps_in(&w->tree)) {
        td__planner_coll(w, TD_PLAN_ALL_GATHER, count * n * sizeof(float), 1 + k);
        return;
    }
    for (int i = 0; i < w->tree.rounds; i++)
        td__planner_coll(w, TD_PLAN_ALL_TO_ALL, all, 1 + k);
    td__planner_coll(w, TD_PLAN_ALL_GATHER, all, 1 + k);
}

/* ---- Making one ------------------------------------------------------------------------------ */

static td_status on_gpu(td__bucket_sum *b, int i, size_t floats, float **out)
{
    td_device *d = td__params_device(b->o.params);
    TD_TRY(td__mem_alloc(d, TD_MEM_OWN, floats * sizeof(float), &b->gpu[i]));
    *out = b->gpu[i].at;
    return TD_OK;
}

static td_status open_nccl(td__bucket_sum *b)
{
    td_device *d = td__params_device(b->o.params);
    const char *c = b->o.compressor;
    float *zeros;
    /* Where bits do not matter ranks may have devices of several kinds: all of them ask. */
    if (b->size < 2 ||
        (c ? strcmp(c, "allreduce") != 0 || !b->o.any_bits : td__device_host_reads(d)))
        return TD_OK;
    TD_TRY(td__nccl_open(b->o.comm, d, "gradients", &b->nccl));
    return b->nccl ? on_gpu(b, 2, CHUNK, &zeros) : TD_OK;
}

static td_status set_up_tree(td__bucket_sum *b)
{
    size_t floats;
    b->cuts = td__calloc((size_t)b->buckets.n + 1, sizeof *b->cuts);
    if (!b->cuts)
        return TD_FAIL(TD_ENOMEM, "no memory for %d buckets", b->buckets.n);
    for (int k = 0; k < b->buckets.n; k++) {
        size_t n = (size_t)b->size, count = b->buckets.at[k].count;
        b->cuts[k] = (cut){slice_of(count, n), b->stride};
        b->stride += n * b->cuts[k].slice;
    }
    if (!td__size_mul(b->stride, 2 * (size_t)b->tree.slots, &floats) || floats > SIZE_MAX / 8)
        return TD_FAIL(TD_ENOMEM, "gradients of %zu floats are too large", b->stride);
    if (b->nccl)
        return on_gpu(b, 1, floats, &b->slots);
    b->slots = td__alloc_block(floats * sizeof *b->slots);
    if (!b->slots)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu floats of the ranks' gradients", floats);
    return TD_OK;
}

static td_status set_up_compressor(td__bucket_sum *b)
{
    const td__compressor_ops *ops = td__compressor_find(b->o.compressor);
    if (!ops)
        return TD_FAIL(TD_EINVAL, "unknown gradient compressor '%s'; see docs/compression.md",
                       b->o.compressor);
    td__compressor_opts o = b->o.with;
    o.comm = b->o.comm;
    o.params = b->o.params;
    o.buckets = b->buckets.at;
    o.n_buckets = b->buckets.n;
    o.nccl = b->nccl;
    return ops->create(&o, &b->compressor);
}

static td_status carry(void *user, int k);

static td_status set_up(td__bucket_sum *b)
{
    size_t most;
    void *whole;
    TD_TRY(td__buckets_init(&b->buckets, b->o.params, b->o.own, b->o.n_own, b->o.bucket_nbytes));
    TD_TRY(td__rank_tree_init(&b->tree, (td__work_partition){b->size, b->o.bounds},
                              b->o.micro_batches, b->o.accumulate));
    b->marks = td__calloc((size_t)b->o.threads, sizeof *b->marks);
    if (!b->marks)
        return TD_FAIL(TD_ENOMEM, "no memory for %d threads", b->o.threads);
    if (!td__size_add(td__grad_dense(b->o.blocks), (size_t)b->size * ALIGN, &most))
        return TD_FAIL(TD_ENOMEM, "gradients of %zu floats are too large",
                       td__grad_dense(b->o.blocks));
    TD_TRY(open_nccl(b));
    if (b->nccl) {
        TD_TRY(on_gpu(b, 0, most, &b->whole));
    } else {
        TD_TRY(td_comm_alloc(b->o.comm, most * sizeof(float), &whole));
        b->whole = whole;
    }
    TD_TRY(b->o.compressor ? set_up_compressor(b) : set_up_tree(b));
    if (td__grad_sparse_count(b->o.blocks))
        TD_TRY(td__sparse_gather_create(b->o.comm, b->o.blocks, b->tree.slots, &b->sparse));
    return td__bucket_queue_create(b->buckets.n + 1, !b->o.inline_, carry, b, &b->queue);
}

td_status td__bucket_sum_create(const td__bucket_sum_opts *o, td__bucket_sum **out)
{
    *out = NULL;
    td__bucket_sum *b = td__calloc(1, sizeof *b);
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for gradients of several ranks");
    b->o = *o;
    b->rank = td_comm_rank(o->comm);
    b->size = td_comm_size(o->comm);
    b->sum = (td__grad_sum)TD__GRAD_SUM_IN(b->in_sum);
    b->all = (td__grad_stack)TD__GRAD_STACK_IN(b->in_all);
    b->rest = (td__grad_sum)TD__GRAD_SUM_IN(b->in_rest);
    pthread_mutex_init(&b->lock, NULL);
    td_status st = set_up(b);
    if (st) {
        td__bucket_sum_destroy(b);
        return st;
    }
    *out = b;
    return TD_OK;
}

void td__bucket_sum_destroy(td__bucket_sum *b)
{
    if (!b)
        return;
    td__bucket_queue_destroy(b->queue);
    if (b->compressor)
        b->compressor->ops->destroy(b->compressor);
    td__sparse_gather_destroy(b->sparse);
    td__comm_about(b->o.comm, 0, NULL);
    if (b->whole && !b->nccl)
        td_comm_free(b->o.comm, b->whole);
    if (!b->nccl)
        td__free_block(b->slots, 2 * (size_t)b->tree.slots * b->stride * sizeof(float));
    td__nccl_close(b->nccl);
    for (int i = 0; i < TD_LEN(b->gpu); i++)
        td__mem_free(&b->gpu[i]);
    td__rank_tree_fini(&b->tree);
    td__buckets_fini(&b->buckets);
    td__free(b->cuts);
    td__free(b->marks);
    pthread_mutex_destroy(&b->lock);
    td__free(b);
}

/* ---- What the queue's thread does ------------------------------------------------------------ */

static bool swaps(const td__bucket_sum *b)
{
    return swaps_in(&b->tree);
}

static float *in_slot(const td__bucket_sum *b, int slot, int k)
{
    return b->slots + 2 * ((size_t)slot * b->stride + b->cuts[k].offset);
}

/* Where partial i of this rank leaves from. */
static float *outbox(const td__bucket_sum *b, int i, int k)
{
    return in_slot(b, i, k) + (swaps(b) ? (size_t)b->rank * b->buckets.at[k].count : 0);
}

/* Where slices of a partial arrive from all ranks. */
static float *inbox(const td__bucket_sum *b, int i, int k)
{
    return in_slot(b, i, k) + (size_t)b->size * b->cuts[k].slice;
}

static float *slot_address(const td__bucket_sum *b, td__rank_slot s, int k)
{
    return inbox(b, s.slot, k) + (size_t)s.rank * b->cuts[k].slice;
}

/* The tree's additions, for this rank's slice of bucket k; on the host a chunk at a time, which
 * stays in the cache. */
static void add_up(const td__bucket_sum *b, int k)
{
    td_stream *on = b->nccl ? td__nccl_stream(b->nccl) : NULL;
    size_t slice = b->cuts[k].slice, each = on ? slice : CHUNK;
    for (size_t at = 0; at < slice; at += each)
        for (int i = 0; i < b->tree.n_adds; i++) {
            const td__rank_add *a = &b->tree.adds[i];
            td__blend_op op = {slot_address(b, a->dst, k), slot_address(b, a->src, k), 1, 1};
            td__grad_blend_ops(on, &op, 1, at, slice - at < each ? slice - at : each);
        }
}

/* Slices of partial i to and from all ranks. */
static td_status swap_slices(td__bucket_sum *b, int i, int k)
{
    float *out = outbox(b, i, k), *in = inbox(b, i, k);
    size_t slice = b->cuts[k].slice, nbytes = slice * sizeof *in;
    return b->nccl ? td__nccl_swap(b->nccl, out, nbytes, in, nbytes, nbytes)
                   : td_all_to_all(b->o.comm, out, in, slice, TD_F32, NULL);
}

static td_status gather(td__bucket_sum *b, const float *in, float *out, size_t count)
{
    return b->nccl ? td__nccl_all_gather(b->nccl, in, out, count * sizeof(float))
                   : td_all_gather(b->o.comm, in, out, count, TD_F32, NULL);
}

static td_status carry_in_tree(td__bucket_sum *b, int k)
{
    const cut *c = &b->cuts[k];
    for (int i = 0; i < b->tree.rounds; i++)
        TD_TRY(swap_slices(b, i, k));
    add_up(b, k);
    return gather(b, slot_address(b, b->tree.total, k), b->whole + b->buckets.at[k].begin,
                  c->slice);
}

/* The same on a GPU. */
static td_status sum_of_two(td__bucket_sum *b, int k)
{
    td__bucket at = b->buckets.at[k];
    float *both = in_slot(b, 0, k), *to = b->whole + at.begin;
    td_stream *on = td__nccl_stream(b->nccl);
    td__blend_op op = {both, both + at.count, 1, 1};
    if (b->tree.n_adds) {
        td__grad_blended(on, &op, 0, at.count, to);
    } else {
        td__stream_copy(on, to, both + (size_t)b->tree.total.rank * at.count,
                        at.count * sizeof *to);
    }
    return td__stream_sync(on);
}

/* Which of two is added to the other does not matter to a sum. */
static td_status carry_swapped(td__bucket_sum *b, int k)
{
    td__bucket at = b->buckets.at[k];
    const float *both = in_slot(b, 0, k);
    TD_TRY(gather(b, outbox(b, 0, k), in_slot(b, 0, k), at.count));
    if (b->nccl)
        return sum_of_two(b, k);
    unsigned mode = td__cpu_fp_flush(); /* as in the sums of one rank */
    void (*add)(float *, const float *, float, const float *, float, size_t) =
        TD_ISA_PICK(td__cpu_isa(), td__blended);
    if (b->tree.n_adds)
        add(b->whole + at.begin, both, 1, both + at.count, 1, at.count);
    else
        memcpy(b->whole + at.begin, both + (size_t)b->tree.total.rank * at.count,
               at.count * sizeof *both);
    td__cpu_fp_restore(mode);
    return TD_OK;
}

static td_status carry_tail(td__bucket_sum *b)
{
    TD_TRY(td_allreduce(b->o.comm, b->sums, b->sums, b->n_sums, TD_F64, TD_REDUCE_SUM, NULL));
    if (b->sparse)
        TD_TRY(td__sparse_gather_run(b->sparse, b->total, b->tree.batches * b->tree.micro_batches,
                                     b->tree.partition));
    return TD_OK;
}

/* For the stall report: what the calls that follow carry. */
static void say_what(td__bucket_sum *b, int k)
{
    const td_params *ps = b->o.params;
    size_t begin = k < b->buckets.n ? b->buckets.at[k].begin : SIZE_MAX;
    const char *name = NULL;
    for (int i = 0; i < td_params_count(ps) && k < b->buckets.n; i++) {
        td_param_info info = td_params_info(ps, i);
        if (info.offset > begin)
            break;
        name = info.name;
    }
    td__comm_about(b->o.comm, k < b->buckets.n ? k + 1 : 0, name);
}

static td_status carry(void *user, int k)
{
    td__bucket_sum *b = user;
    say_what(b, k);
    if (k == b->buckets.n)
        return carry_tail(b);
    if (!b->compressor)
        return swaps(b) ? carry_swapped(b, k) : carry_in_tree(b, k);
    const td__compressor_ops *ops = b->compressor->ops;
    if (k == 0 && ops->step)
        TD_TRY(ops->step(b->compressor, b->step, b->whole));
    return ops->reduce(b->compressor, k, b->whole + b->buckets.at[k].begin);
}

/* ---- What the compute threads do ------------------------------------------------------------- */

/* All threads have lent their last micro-batch: what is to be added is known. With the lock held.
 * */
static void make_plan(td__bucket_sum *b)
{
    b->planned = true;
    for (int t = 0; t < b->o.threads; t++) {
        td__grad_stack *s = &b->stacks[t];
        TD_ASSERT(b->total->n + s->n <= b->total->room, "%d partials", b->total->n + s->n);
        memcpy(&b->total->at[b->total->n], s->at, (size_t)s->n * sizeof *s->at);
        b->total->n += s->n;
        s->n = 0;
    }
    td__grad_plan(b->total, false, &b->sum);
    TD_ASSERT(b->total->n == td__work_partials(b->tree.partition,
                                               b->tree.batches * b->tree.micro_batches, b->rank,
                                               NULL),
              "%d partials of %d batches", b->total->n, b->tree.batches);
    b->all.n = b->total->n;
    for (int i = 0; i < b->all.n; i++) {
        b->all.at[i] = b->total->at[i];
        b->all.at[i].block = NULL; /* rows go their own way */
    }
    td__grad_plan(&b->all, true, &b->rest);
}

static void clear(const td__bucket_sum *b, float *at, size_t count)
{
    td_stream *on = td__grad_stream(b->o.blocks);
    if (!b->nccl) {
        memset(at, 0, count * sizeof *at);
        return;
    }
    for (size_t k = 0; k < count; k += CHUNK)
        td__stream_copy(on, at + k, b->gpu[2].at,
                        (count - k < CHUNK ? count - k : CHUNK) * sizeof *at);
    td__stream_drain(on);
}

/* Elements of bucket k to where it leaves from. */
static void publish_some(td__bucket_sum *b, int k, size_t at, size_t count)
{
    size_t begin = b->buckets.at[k].begin + at;
    td_stream *on = td__grad_stream(b->o.blocks);
    int n = b->sum.n_ops;
    if (!b->compressor && b->total->n == 1 && n) { /* the last addition makes the one partial */
        td__grad_blend_ops(on, b->sum.op, n - 1, begin, count);
        td__grad_blended(on, &b->sum.op[n - 1], begin, count, outbox(b, 0, k) + at);
        return;
    }
    td__grad_blend(on, &b->sum, begin, count);
    if (!b->compressor) {
        for (int i = 0; i < b->total->n; i++)
            if (b->total->at[i].dense)
                td__grad_publish(on, &b->total->at[i], begin, count, outbox(b, i, k) + at);
        return;
    }
    td__grad_blend(on, &b->rest, begin, count);
    if (b->all.n && b->all.at[0].dense)
        td__grad_publish(on, &b->all.at[0], begin, count, b->whole + begin);
    else
        clear(b, b->whole + begin, count);
}

/* Bucket k of this rank is final. A chunk at a time, which stays in the cache of a host. */
static void publish(td__bucket_sum *b, int k)
{
    size_t all = b->buckets.at[k].count, each = b->nccl ? all : CHUNK;
    for (size_t at = 0; at < all; at += each)
        publish_some(b, k, at, all - at < each ? all - at : each);
}

static bool posts_at_once(const td__bucket_sum *b)
{
    return !b->compressor || !b->compressor->ops->whole;
}

/* Post what all threads have passed. */
static void advance(td__bucket_sum *b, int thread, size_t count)
{
    pthread_mutex_lock(&b->lock);
    size_t low = b->marks[thread] = count;
    for (int t = 0; t < b->o.threads; t++)
        low = b->marks[t] < low ? b->marks[t] : low;
    if (low && !b->planned)
        make_plan(b);
    int from = b->next;
    while (b->next < b->buckets.n &&
           b->buckets.at[b->next].begin + b->buckets.at[b->next].count <= low)
        b->next++;
    int to = b->next;
    b->sending = b->sending || to > from;
    pthread_mutex_unlock(&b->lock);
    for (int k = from; k < to; k++) {
        publish(b, k);
        if (posts_at_once(b))
            td__bucket_queue_post(b->queue, k);
    }
}

void td__bucket_sum_passed(td__bucket_sum *b, int thread, size_t count)
{
    advance(b, thread, count);
}

/* While this rank computes, who waits for messages sleeps; afterwards, spinning is quicker. */
static void set_patient(td__bucket_sum *b, bool patient)
{
    if (!b->o.inline_)
        td__comm_set_patient(b->o.comm, patient);
}

/* ---- A step ---------------------------------------------------------------------------------- */

td_status td__bucket_sum_begin(td__bucket_sum *b, uint64_t step, int batches, int64_t last_rows)
{
    bool changed;
    if (b->sparse)
        td__sparse_gather_clear(b->sparse);
    TD_TRY(td__rank_tree_plan(&b->tree, batches, last_rows, &changed));
    td__bucket_queue_begin(b->queue);
    b->step = step;
    b->begun = true;
    b->sending = b->planned = false;
    b->next = 0;
    if (b->compressor) {
        b->sent_before = b->compressor->sent_nbytes;
        b->plain_before = b->compressor->plain_nbytes;
    }
    return TD_OK;
}

void td__bucket_sum_open(td__bucket_sum *b, td__grad_stack *total, td__grad_stack *stacks,
                         const bool *busy)
{
    b->total = total;
    b->stacks = stacks;
    for (int t = 0; t < b->o.threads; t++)
        b->marks[t] = busy[t] ? 0 : SIZE_MAX;
    set_patient(b, true);
    advance(b, 0, b->marks[0]); /* a rank without micro-batches is through at once */
}

void td__bucket_sum_flush(td__bucket_sum *b)
{
    if (!b->planned)
        make_plan(b);
    TD_ASSERT(b->next == b->buckets.n, "%d of %d buckets are final", b->next, b->buckets.n);
    td__grad_finish(b->o.blocks, &b->sum);
    for (int k = 0; !posts_at_once(b) && k < b->buckets.n; k++)
        td__bucket_queue_post(b->queue, k);
}

void td__bucket_sum_close(td__bucket_sum *b, double *sums, size_t n_sums)
{
    set_patient(b, false);
    b->sums = sums;
    b->n_sums = n_sums;
    b->sending = true;
    td__bucket_queue_post(b->queue, b->buckets.n);
}

td_status td__bucket_sum_wait(td__bucket_sum *b, int k)
{
    TD_TRY(td__bucket_queue_wait(b->queue, k));
    if (k == b->buckets.n)
        b->begun = false;
    return TD_OK;
}

void td__bucket_sum_cancel(td__bucket_sum *b, const char *why)
{
    if (!b->begun)
        return;
    set_patient(b, false);
    if (b->sending)
        td_comm_abort(b->o.comm, why);
    td__bucket_queue_cancel(b->queue);
    if (b->planned)
        td__grad_drop(b->o.blocks, &b->sum);
    b->begun = false;
}

/* ---- Results --------------------------------------------------------------------------------- */

int td__bucket_sum_count(const td__bucket_sum *b)
{
    return b->buckets.n;
}

td__bucket td__bucket_sum_bucket(const td__bucket_sum *b, int k)
{
    return b->buckets.at[k];
}

const float *td__bucket_sum_grads(const td__bucket_sum *b)
{
    return b->whole;
}

td_sparse_grad td__bucket_sum_sparse(const td__bucket_sum *b, int k)
{
    return td__sparse_gather_sum(b->sparse, k);
}

const td__bucket_span *td__bucket_sum_spans(const td__bucket_sum *b)
{
    return td__bucket_queue_spans(b->queue);
}

void td__bucket_sum_nbytes(const td__bucket_sum *b, uint64_t *sent, uint64_t *plain)
{
    if (b->compressor) {
        *sent = b->compressor->sent_nbytes - b->sent_before;
        *plain = b->compressor->plain_nbytes - b->plain_before;
        return;
    }
    uint64_t others = (uint64_t)(b->size - 1) * sizeof(float), sliced = b->stride / (size_t)b->size;
    *sent = *plain = (uint64_t)(b->tree.rounds + 1) * others * sliced;
}
