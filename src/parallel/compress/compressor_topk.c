/* compressor_topk.c -- the few largest gradients on the wire: Deep Gradient Compression (Lin, Han,
 * Mao, Wang, Dally 2018).
 *
 * Of a bucket of c gradients a rank sends the k = ratio c of largest magnitude; the rest is kept
 * and grows until it is large enough. For a gradient g of this rank:
 *
 *     g' = g min(1, (clip / sqrt(n)) / |g|)       local clipping, |.| over the whole block
 *     u  = m u + g'                               momentum correction: the velocity is accumulated,
 *     v  = v + u                                  not the gradient
 *     send top_k(v), then u = 0, v -= sent        momentum factor masking: what was sent is not
 *                                                 pushed on by an old velocity
 *     nesterov: u = m (u + g'), v = v + u + g'
 *
 * The optimizer must then have no momentum of its own: its update is lr times the sum. During the
 * warm-up the share falls exponentially from 25 % to the ratio.
 *
 * Values travel as bf16 (the rounding error stays in v, so nothing is lost), places as in top_k.h:
 * 3.5 bytes for each at one in a thousand, 1,140 times less than the bucket. An all-gather brings
 * all lists to all ranks, who add them up in the order of ranks: the same bits everywhere. Counted
 * as bytes sent by a rank that is a ratio of 2280/n, as a plain sum sends 2 (n-1)/n of the bucket
 * and the all-gather n - 1 lists.
 *
 * NaN and infinities count as large, are sent, and leave nothing behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/kernels/compress.h"
#include "parallel/step_plan.h"
#include "parallel/compress/top_k.h"

#define RATIO 0.001
#define FIRST_RATIO 0.25 /* of the warm-up */

typedef struct topk {
    td__compressor base;
    td__isa isa;
    size_t size;
    double ratio;        /* of this step */
    float scale;         /* local clipping of this step */
    size_t first, count; /* elements [first, first + count) of the block are in the buckets */
    float *u, *v;        /* count; u NULL: no momentum */
    uint32_t *index;     /* places in a bucket */
    size_t n_index;
    uint8_t *wire; /* this rank's list, then those of all */
    size_t wire_nbytes;
} topk;

static size_t share_of(size_t count, double ratio)
{
    size_t k = (size_t)ceil((double)count * ratio);
    return k < 1 ? 1 : k > count ? count : k;
}

static size_t list_nbytes(size_t count, size_t k)
{
    return k * sizeof(td_bf16) + td__gaps_nbytes(count, k);
}

static void destroy(td__compressor *r)
{
    topk *t = (topk *)r;
    if (!t)
        return;
    td__free_block(t->u, (t->count + 1) * sizeof *t->u);
    td__free_block(t->v, (t->count + 1) * sizeof *t->v);
    td__free_block(t->index, (t->n_index + 1) * sizeof *t->index);
    td__free_block(t->wire, t->wire_nbytes + 1);
    td__free(t);
}

static td_status set_up(topk *t)
{
    const td__compressor_opts *o = &t->base.o;
    double most = o->warmup_steps > 0 && t->ratio < FIRST_RATIO ? FIRST_RATIO : t->ratio;
    size_t begin = SIZE_MAX, end = 0, list = 0;
    for (int k = 0; k < o->n_buckets; k++) {
        const td__bucket *b = &o->buckets[k];
        if (b->exact || !b->count)
            continue;
        if (b->count > UINT32_MAX)
            return TD_FAIL(TD_ENOTSUP, "a bucket of %zu gradients: topk takes 2^32 - 1 at most",
                           b->count);
        begin = b->begin < begin ? b->begin : begin;
        end = b->begin + b->count > end ? b->begin + b->count : end;
        t->n_index = b->count > t->n_index ? b->count : t->n_index;
        size_t nbytes = list_nbytes(b->count, share_of(b->count, most));
        list = nbytes > list ? nbytes : list;
    }
    t->first = begin < end ? begin : 0;
    t->count = begin < end ? end - begin : 0;
    t->wire_nbytes = list * (t->size + 1);
    t->v = td__alloc_block((t->count + 1) * sizeof *t->v);
    t->index = td__alloc_block((t->n_index + 1) * sizeof *t->index);
    t->wire = td__alloc_block(t->wire_nbytes + 1);
    if (o->momentum > 0)
        t->u = td__alloc_block((t->count + 1) * sizeof *t->u);
    if (!t->v || !t->index || !t->wire || (o->momentum > 0 && !t->u))
        return TD_FAIL(TD_ENOMEM, "no memory for the error-feedback residual of %zu gradients",
                       t->count);
    return TD_OK;
}

static td_status create(const td__compressor_opts *o, td__compressor **out)
{
    *out = NULL;
    if (o->ratio < 0 || o->ratio > 1)
        return TD_FAIL(TD_EINVAL, "topk: a share of %g: must be above 0 and at most 1", o->ratio);
    topk *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for a compressor");
    t->base = (td__compressor){.ops = &td__compressor_topk, .o = *o};
    if (!(t->base.o.ratio > 0))
        t->base.o.ratio = RATIO;
    t->isa = td__cpu_isa();
    t->size = (size_t)td_comm_size(o->comm);
    t->ratio = t->base.o.ratio;
    t->scale = 1;
    td_status st = set_up(t);
    if (st) {
        destroy(&t->base);
        return st;
    }
    *out = &t->base;
    return TD_OK;
}

static td_status step(td__compressor *r, uint64_t n, const float *local)
{
    topk *t = (topk *)r;
    const td__compressor_opts *o = &r->o;
    t->ratio = o->ratio;
    if (o->warmup_steps > 0 && n <= (uint64_t)o->warmup_steps && o->ratio < FIRST_RATIO)
        t->ratio =
            FIRST_RATIO * pow(o->ratio / FIRST_RATIO, (double)(n - 1) / (double)o->warmup_steps);
    t->scale = td__reduce_clip(r, local + t->first, t->count);
    return TD_OK;
}

static void accumulate(topk *t, const td__bucket *b, const float *data)
{
    float *v = t->v + (b->begin - t->first), m = (float)t->base.o.momentum;
    void (*with)(float *, float *, const float *, float, float, int, size_t) =
        TD_ISA_PICK(t->isa, td__accumulate_velocity);
    if (t->u)
        with(t->u + (b->begin - t->first), v, data, t->scale, m, t->base.o.nesterov, b->count);
    else
        TD_ISA_PICK(t->isa, td__accumulate)(v, data, t->scale, b->count);
}

/* Take the k largest out of what is owed. */
static void take(topk *t, const td__bucket *b, size_t k, uint8_t *list)
{
    float *v = t->v + (b->begin - t->first), *u = t->u ? t->u + (b->begin - t->first) : NULL;
    td__top_k(t->isa, v, b->count, k, t->index);
    for (size_t j = 0; j < k; j++) {
        size_t at = t->index[j];
        td_bf16 h = td__bf16_from_f32(v[at]);
        memcpy(list + j * sizeof h, &h, sizeof h);
        float rest = v[at] - td__bf16_to_f32(h);
        v[at] = isfinite(rest) ? rest : 0;
        if (u)
            u[at] = 0;
    }
    td__gaps_write(list + k * sizeof(td_bf16), t->index, b->count, k);
}

static td_status add(topk *t, const td__bucket *b, size_t k, const uint8_t *list, float *data)
{
    TD_TRY(td__gaps_read(list + k * sizeof(td_bf16), t->index, b->count, k));
    for (size_t j = 0; j < k; j++) {
        td_bf16 h;
        memcpy(&h, list + j * sizeof h, sizeof h);
        data[t->index[j]] += td__bf16_to_f32(h);
    }
    return TD_OK;
}

static td_status reduce(td__compressor *r, int i, float *data)
{
    topk *t = (topk *)r;
    const td__bucket *b = &r->o.buckets[i];
    if (b->exact)
        return td__reduce_plain(r, i, data);
    if (!b->count)
        return TD_OK;
    size_t k = share_of(b->count, t->ratio), nbytes = list_nbytes(b->count, k);
    accumulate(t, b, data);
    take(t, b, k, t->wire);
    TD_TRY(td_all_gather(r->o.comm, t->wire, t->wire + nbytes, nbytes, TD_U8, NULL));
    memset(data, 0, b->count * sizeof *data);
    for (size_t n = 0; n < t->size; n++)
        TD_TRY(add(t, b, k, t->wire + (n + 1) * nbytes, data));
    r->sent_nbytes += (t->size - 1) * nbytes;
    r->plain_nbytes += td__reduce_sum_nbytes(r, b->count);
    return TD_OK;
}

/* The share falls from step to step of the warm-up. */
static void plan(td__planner *w, const td__compressor_opts *o, int i)
{
    size_t count = o->buckets[i].count;
    double ratio = o->ratio > 0 ? o->ratio : RATIO;
    bool falls = w->at->step <= (uint64_t)(o->warmup_steps > 0 ? o->warmup_steps : 0);
    size_t nbytes = count ? list_nbytes(count, share_of(count, ratio)) : 0;
    if (count)
        td__planner_coll(w, TD_PLAN_ALL_GATHER, falls ? TD__PLAN_ANY : (uint64_t)w->ranks * nbytes,
                         1 + i);
}

const td__compressor_ops td__compressor_topk = {
    .name = "topk",
    .help = "the largest gradients alone, the rest later (deep gradient compression)",
    .compresses = true,
    .kept = 1,
    .sgd_only = true,
    .takes_momentum = true,
    .whole = true,
    .create = create,
    .destroy = destroy,
    .step = step,
    .reduce = reduce,
    .plan = plan,
};
