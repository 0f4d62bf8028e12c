/* coded_sum.c -- see coded_sum.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/compress/coded_sum.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/kernels/compress.h"
#include "parallel/step_plan.h"

enum { FEW = 64 }; /* params of fewer numbers are fine, as vectors are */

/* What rank i owns of a bucket: numbers [begin, begin + count) of it. */
typedef struct slice {
    size_t begin, count, chunk; /* chunk: its first */
} slice;

typedef struct coded {
    td__compressor base;
    const td__code *code;
    td__isa isa;
    size_t rank, size;
    td__chunk *chunks; /* of all buckets, if the code has any */
    size_t n_chunks;
    slice *slices;      /* (bucket, rank) */
    size_t *nbytes;     /* of the longest slice of a bucket, in the code */
    size_t wire_nbytes; /* of each of the two; for the largest bucket */
    uint8_t *send, *receive;
    float *owed;     /* what was lost so far, by element of the buckets from `first` on */
    float *velocity; /* likewise; NULL: no momentum */
    size_t first, n_owed;
    float scale; /* local clipping of this step */
    float *sum;  /* of a slice */
    size_t n_sum;
} coded;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- Cutting --------------------------------------------------------------------------------- */

/* Without room, chunks are only counted. */
static void add_chunks(coded *c, size_t count, td__chunk_kind kind)
{
    while (count > 0) {
        size_t n = least(count, c->code->chunk);
        if (c->chunks)
            c->chunks[c->n_chunks] = (td__chunk){(uint16_t)n, (uint16_t)kind};
        c->n_chunks++;
        count -= n;
    }
}

static void cut_in_chunks(coded *c, const td__bucket *b)
{
    const td_params *ps = c->base.o.params;
    size_t at = b->begin, stop = b->begin + b->count;
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        size_t begin = most(info.offset, at), end = least(info.offset + info.count, stop);
        if (info.is_state || info.sparse || begin >= end)
            continue;
        add_chunks(c, begin - at, TD__CHUNK_GAP);
        add_chunks(c, end - begin,
                   info.shape.ndim < 2 || info.count < FEW ? TD__CHUNK_FINE : TD__CHUNK_CODED);
        at = end;
    }
    add_chunks(c, stop - at, TD__CHUNK_GAP);
}

static td_status make_chunks(coded *c)
{
    const td__compressor_opts *o = &c->base.o;
    for (int pass = 0; pass < 2 && c->code->chunk; pass++) {
        if (pass && !(c->chunks = td__calloc(c->n_chunks + 1, sizeof *c->chunks)))
            return TD_FAIL(TD_ENOMEM, "no memory for %zu chunks of gradients", c->n_chunks);
        c->n_chunks = 0;
        for (int k = 0; k < o->n_buckets; k++)
            if (!o->buckets[k].exact)
                cut_in_chunks(c, &o->buckets[k]);
    }
    return TD_OK;
}

/* Slices of equal length on the wire, up to a chunk. *chunk: the bucket's first, then the one after
 * its last. */
static void cut_in_slices(coded *c, int k, size_t *chunk)
{
    const td__code *code = c->code;
    size_t count = c->base.o.buckets[k].count, at = 0, passed = 0, all = 0;
    for (size_t i = 0, n = *chunk; c->chunks && i < count; i += c->chunks[n++].count)
        all += code->nbytes(c->chunks + n, c->chunks[n].count);
    for (size_t i = 0; i < c->size; i++) {
        slice *s = &c->slices[(size_t)k * c->size + i];
        *s = (slice){.begin = at, .chunk = *chunk};
        if (!c->chunks)
            at = least((count + c->size - 1) / c->size * (i + 1), count);
        while (at < count && (passed * c->size < all * (i + 1) || i + 1 == c->size)) {
            const td__chunk *next = &c->chunks[(*chunk)++];
            passed += code->nbytes(next, next->count);
            at += next->count;
        }
        s->count = at - s->begin;
        c->nbytes[k] = most(c->nbytes[k], code->nbytes(c->chunks + s->chunk, s->count));
        c->n_sum = most(c->n_sum, s->count);
    }
    c->wire_nbytes = most(c->wire_nbytes, c->size * c->nbytes[k]);
}

/* Who owns what of all buckets, and its bytes. */
static td_status cut_all(coded *c)
{
    const td__compressor_opts *o = &c->base.o;
    size_t chunk = 0;
    c->slices = td__calloc((size_t)o->n_buckets * c->size + 1, sizeof *c->slices);
    c->nbytes = td__calloc((size_t)o->n_buckets + 1, sizeof *c->nbytes);
    if (!c->slices || !c->nbytes)
        return TD_FAIL(TD_ENOMEM, "no memory for a compressor");
    TD_TRY(make_chunks(c));
    for (int k = 0; k < o->n_buckets; k++)
        if (!o->buckets[k].exact)
            cut_in_slices(c, k, &chunk);
    return TD_OK;
}

static td_status set_up(coded *c)
{
    const td__compressor_opts *o = &c->base.o;
    size_t begin = SIZE_MAX, end = 0;
    TD_TRY(cut_all(c));
    for (int k = 0; k < o->n_buckets; k++) {
        const td__bucket *b = &o->buckets[k];
        if (b->exact)
            continue;
        begin = least(begin, b->begin);
        end = most(end, b->begin + b->count);
    }
    c->send = td__alloc_block(c->wire_nbytes + 1);
    c->receive = td__alloc_block(c->wire_nbytes + 1);
    c->sum = td__alloc_block((c->n_sum + 1) * sizeof *c->sum);
    if (!c->send || !c->receive || !c->sum)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of gradients on the wire",
                       2 * c->wire_nbytes);
    if (!c->code->feedback || begin > end)
        return TD_OK;
    c->first = begin;
    c->n_owed = end - begin;
    c->owed = td__alloc_block((c->n_owed + 1) * sizeof *c->owed);
    if (o->momentum > 0)
        c->velocity = td__alloc_block((c->n_owed + 1) * sizeof *c->velocity);
    if (!c->owed || (o->momentum > 0 && !c->velocity))
        return TD_FAIL(TD_ENOMEM, "no memory for the rounding errors of %zu gradients", c->n_owed);
    return TD_OK;
}

td_status td__coded_create(const td__compressor_ops *ops, const td__code *code,
                           const td__compressor_opts *o, td__compressor **out)
{
    *out = NULL;
    coded *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory for a compressor");
    c->base = (td__compressor){.ops = ops, .o = *o};
    c->code = code;
    c->isa = td__cpu_isa();
    c->scale = 1;
    c->rank = (size_t)td_comm_rank(o->comm);
    c->size = (size_t)td_comm_size(o->comm);
    td_status st = set_up(c);
    if (st) {
        td__coded_destroy(&c->base);
        return st;
    }
    *out = &c->base;
    return TD_OK;
}

void td__coded_destroy(td__compressor *r)
{
    coded *c = (coded *)r;
    if (!c)
        return;
    td__free(c->chunks);
    td__free(c->slices);
    td__free(c->nbytes);
    td__free_block(c->send, c->wire_nbytes + 1);
    td__free_block(c->receive, c->wire_nbytes + 1);
    td__free_block(c->sum, (c->n_sum + 1) * sizeof *c->sum);
    td__free_block(c->owed, (c->n_owed + 1) * sizeof *c->owed);
    td__free_block(c->velocity, (c->n_owed + 1) * sizeof *c->velocity);
    td__free(c);
}

void td__coded_plan(td__planner *w, const td__code *code, const td__compressor_opts *o, int k)
{
    coded *c = td__calloc(1, sizeof *c);
    if (!c) {
        w->st = w->st ? w->st : TD_FAIL(TD_ENOMEM, "no memory for a compressor");
        return;
    }
    *c = (coded){.base = {.o = *o}, .code = code, .size = (size_t)w->ranks};
    td_status st = cut_all(c);
    if (!st && o->buckets[k].count) {
        td__planner_coll(w, TD_PLAN_ALL_TO_ALL, c->size * c->nbytes[k], 1 + k);
        td__planner_coll(w, TD_PLAN_ALL_GATHER, c->size * c->nbytes[k], 1 + k);
    }
    w->st = w->st ? w->st : st;
    c->wire_nbytes = c->n_sum = 0; /* neither was made */
    td__coded_destroy(&c->base);
}

td_status td__coded_step(td__compressor *r, uint64_t step, const float *local)
{
    coded *c = (coded *)r;
    (void)step;
    c->scale = td__reduce_clip(r, local + c->first, c->n_owed);
    return TD_OK;
}

/* Add elements [at, at + n) of the gradients, from `first` on, to what is owed. */
static void owe(coded *c, size_t at, const float *data, size_t n)
{
    void (*move)(float *, float *, const float *, float, float, int, size_t) =
        TD_ISA_PICK(c->isa, td__accumulate_velocity);
    const td__compressor_opts *o = &c->base.o;
    if (c->velocity)
        move(c->velocity + at, c->owed + at, data, c->scale, (float)o->momentum, o->nesterov, n);
    else
        TD_ISA_PICK(c->isa, td__accumulate)(c->owed + at, data, c->scale, n);
}

/* 3. Slice `own` of this rank's numbers with those of the others, in the order of ranks. */
static void add_up(coded *c, const float *own, const slice *s, size_t nbytes)
{
    memset(c->sum, 0, s->count * sizeof *c->sum);
    for (size_t i = 0; i < c->size; i++)
        if (i == c->rank)
            TD_ISA_PICK(c->isa, td__accumulate)(c->sum, own, 1.0f, s->count);
        else
            c->code->add(c->isa, c->sum, c->receive + i * nbytes, c->chunks + s->chunk, s->count);
}

/* NaN and infinities have been seen in the sum, and are not to come again with the velocity. */
static void forget(coded *c, const td__bucket *b, const float *data)
{
    float *u = c->velocity + (b->begin - c->first);
    if (TD_ISA_PICK(c->isa, td__largest_bits)(data, b->count) < 0x7f800000u)
        return;
    for (size_t i = 0; i < b->count; i++)
        u[i] = isfinite(u[i]) ? u[i] : 0;
}

td_status td__coded_reduce(td__compressor *r, int k, float *data)
{
    coded *c = (coded *)r;
    const td__bucket *b = &r->o.buckets[k];
    const td__code *code = c->code;
    const slice *slices = c->slices + (size_t)k * c->size, *own = &slices[c->rank];
    size_t nbytes = c->nbytes[k];
    /* With feedback numbers lie, from here on, where what is left of them will. */
    float *x = c->owed ? c->owed + (b->begin - c->first) : data;

    if (b->exact || !b->count)
        return b->exact ? td__reduce_plain(r, k, data) : TD_OK;
    if (c->owed)
        owe(c, b->begin - c->first, data, b->count);
    for (size_t i = 0; i < c->size; i++)
        if (i != c->rank)
            code->pack(c->isa, c->send + i * nbytes, x + slices[i].begin,
                       c->chunks + slices[i].chunk, slices[i].count);
    TD_TRY(td_all_to_all(r->o.comm, c->send, c->receive, nbytes, TD_U8, NULL));
    add_up(c, x + own->begin, own, nbytes);
    uint8_t *mine = c->send + c->rank * nbytes;
    code->pack(c->isa, mine, c->sum, c->chunks + own->chunk, own->count);
    if (c->owed)
        memcpy(x + own->begin, c->sum, own->count * sizeof *x);
    TD_TRY(td_all_gather(r->o.comm, mine, c->receive, nbytes, TD_U8, NULL));
    for (size_t i = 0; i < c->size; i++)
        code->unpack(c->isa, data + slices[i].begin, c->receive + i * nbytes,
                     c->chunks + slices[i].chunk, slices[i].count);
    if (c->velocity)
        forget(c, b, data);
    r->sent_nbytes += 2 * (c->size - 1) * nbytes;
    r->plain_nbytes += td__reduce_sum_nbytes(r, b->count);
    return TD_OK;
}
