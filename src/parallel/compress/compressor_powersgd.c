/* reduce_powersgd.c -- gradients of low rank on the wire: PowerSGD (Vogels, Karimireddy, Jaggi
 * 2019), one step of power iteration for each matrix and training step, with error feedback.
 *
 * A param of several axes is a matrix: its first axis, times all others (of a convolution (out, in
 * kh kw)). For the matrix M of this rank, gradient plus what is owed, and Q (rank, cols), the same
 * on all ranks and kept from step to step:
 *
 *   1. orthonormal Q        rows that vanished are drawn anew
 *   2. P = sum of M Q^T     over ranks
 *   3. orthonormal P        Gram and Schmidt, twice, in f64
 *   4. Q' = P M             of this rank; M - P^T Q' is owed to the next step
 *   5. Q = sum of Q'        over ranks
 *   6. the sum is P^T Q
 *
 * What is owed is thus the part of M outside of P's columns, on each rank by itself. Both sums have
 * one message for all matrices of a bucket; vectors, and matrices that would not become shorter,
 * travel with the first as they are. A param that is larger than a bucket comes in pieces: the
 * whole rows in a piece are a matrix of their own, and what is cut off at its ends is exact.
 *
 * A matrix with NaN or infinities gives NaN on all ranks, owes nothing and begins anew. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/kernels/blend.h"
#include "base/rng.h"
#include "parallel/kernels/compress.h"
#include "parallel/step_plan.h"

enum { RANK = 2, MOST_RANK = 64 };

/* A stretch of a bucket: a matrix, or (cols 0) numbers that are exact. */
typedef struct piece {
    size_t begin, rows, cols; /* begin: in the block; exact: rows numbers */
    size_t q;                 /* where its Q is in all */
} piece;

typedef struct powersgd {
    td__compressor base;
    td__isa isa;
    int rank;
    uint64_t step;
    piece *pieces;
    int n_pieces;
    int *first;  /* piece of each bucket; n_buckets + 1 */
    float *owed; /* elements [begin, begin + count) of the block */
    size_t begin, count;
    float *q; /* of all matrices, (rank, cols) each */
    size_t n_q;
    float *p, *own; /* first message of a bucket; Q of this rank */
    size_t n_p, n_own;
} powersgd;

static void destroy(td__compressor *r)
{
    powersgd *s = (powersgd *)r;
    if (!s)
        return;
    td__free(s->pieces);
    td__free(s->first);
    td__free_block(s->owed, (s->count + 1) * sizeof *s->owed);
    td__free_block(s->q, (s->n_q + 1) * sizeof *s->q);
    td__free_block(s->p, (s->n_p + 1) * sizeof *s->p);
    td__free_block(s->own, (s->n_own + 1) * sizeof *s->own);
    td__free(s);
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* To the bucket whose first piece is number `first`. */
static void add_piece(powersgd *s, int first, size_t begin, size_t rows, size_t cols)
{
    if (!rows)
        return;
    if (!cols && s->n_pieces > first && !s->pieces[s->n_pieces - 1].cols) {
        s->pieces[s->n_pieces - 1].rows += rows;
        return;
    }
    s->pieces[s->n_pieces++] = (piece){begin, rows, cols, s->n_q};
    s->n_q += (size_t)s->rank * cols;
}

/* The stretch [begin, end) of a param. */
static void add_param(powersgd *s, int first, const td_param_info *info, size_t begin, size_t end)
{
    size_t rows = info->shape.ndim > 1 ? (size_t)info->shape.dim[0] : 0;
    size_t cols = rows ? info->count / rows : 0, rank = (size_t)s->rank, whole = 0;
    size_t from = end, to = end;
    if (cols) {
        from = info->offset + (begin - info->offset + cols - 1) / cols * cols;
        to = info->offset + (end - info->offset) / cols * cols;
        whole = to > from ? (to - from) / cols : 0;
    }
    if (rank * (whole + cols) >= whole * cols) {
        add_piece(s, first, begin, end - begin, 0);
        return;
    }
    add_piece(s, first, begin, from - begin, 0);
    add_piece(s, first, from, whole, cols);
    add_piece(s, first, to, end - to, 0);
}

static void cut_bucket(powersgd *s, const td__bucket *b)
{
    const td_params *ps = s->base.o.params;
    size_t at = b->begin, stop = b->begin + b->count;
    int first = s->n_pieces;
    for (int i = 0; i < td_params_count(ps) && !b->exact; i++) {
        td_param_info info = td_params_info(ps, i);
        size_t begin = info.offset > at ? info.offset : at, end = info.offset + info.count;
        end = end < stop ? end : stop;
        if (info.is_state || info.sparse || begin >= end)
            continue;
        add_piece(s, first, at, begin - at, 0);
        add_param(s, first, &info, begin, end);
        at = end;
    }
    add_piece(s, first, at, stop - at, 0);
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static td_status cut_all(powersgd *s)
{
    const td__compressor_opts *o = &s->base.o;
    size_t room = 4 * (size_t)(td_params_count(o->params) + 2 * o->n_buckets);
    s->pieces = td__calloc(room, sizeof *s->pieces);
    s->first = td__calloc((size_t)o->n_buckets + 1, sizeof *s->first);
    if (!s->pieces || !s->first)
        return TD_FAIL(TD_ENOMEM, "no memory for a compressor");
    for (int k = 0; k < o->n_buckets; k++) {
        cut_bucket(s, &o->buckets[k]);
        s->first[k + 1] = s->n_pieces;
    }
    return TD_OK;
}

/* Elements of the two messages of bucket k. */
static void messages_of(const powersgd *s, int k, size_t *p, size_t *own)
{
    size_t rank = (size_t)s->rank;
    *p = *own = 0;
    for (int i = s->first[k]; i < s->first[k + 1]; i++) {
        const piece *c = &s->pieces[i];
        *p += c->cols ? rank * c->rows : c->rows;
        *own += rank * c->cols;
    }
}

static td_status set_up(powersgd *s)
{
    const td__compressor_opts *o = &s->base.o;
    size_t end = 0;
    TD_TRY(cut_all(s));
    s->begin = SIZE_MAX;
    for (int i = 0; i < s->n_pieces; i++) {
        const piece *c = &s->pieces[i];
        if (c->cols) {
            s->begin = c->begin < s->begin ? c->begin : s->begin;
            end = largest(end, c->begin + c->rows * c->cols);
        }
    }
    for (int k = 0; k < o->n_buckets; k++) {
        size_t p, own;
        messages_of(s, k, &p, &own);
        s->n_p = largest(s->n_p, p);
        s->n_own = largest(s->n_own, own);
    }
    s->count = end > s->begin ? end - s->begin : 0;
    s->owed = td__alloc_block((s->count + 1) * sizeof *s->owed);
    s->q = td__alloc_block((s->n_q + 1) * sizeof *s->q);
    s->p = td__alloc_block((s->n_p + 1) * sizeof *s->p);
    s->own = td__alloc_block((s->n_own + 1) * sizeof *s->own);
    if (!s->owed || !s->q || !s->p || !s->own)
        return TD_FAIL(TD_ENOMEM, "no memory for the error-feedback residual of %zu gradients",
                       s->count);
    return TD_OK;
}

static td_status create(const td__compressor_opts *o, td__compressor **out)
{
    *out = NULL;
    if (o->rank < 0 || o->rank > MOST_RANK)
        return TD_FAIL(TD_EINVAL, "powersgd: rank %d: must be 1 to %d", o->rank, MOST_RANK);
    powersgd *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a compressor");
    s->base = (td__compressor){.ops = &td__compressor_powersgd, .o = *o};
    s->isa = td__cpu_isa();
    s->rank = o->rank ? o->rank : RANK;
    td_status st = set_up(s);
    if (st) {
        destroy(&s->base);
        return st;
    }
    *out = &s->base;
    return TD_OK;
}

static td_status step(td__compressor *r, uint64_t n, const float *local)
{
    (void)local;
    ((powersgd *)r)->step = n;
    return TD_OK;
}

/* ---- Arithmetic ------------------------------------------------------------------------------ */

static double dot(const float *a, const float *b, size_t n)
{
    double lane[4] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % 4] += (double)a[i] * (double)b[i];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* Make vector c of v (., n) a unit vector at right angles to those before it. false: it is one of
 * their combinations, up to rounding, and becomes zero. */
static bool straighten(float *v, int c, size_t n)
{
    float *x = v + (size_t)c * n;
    double before = sqrt(dot(x, x, n));
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < c; b++) {
            const float *y = v + (size_t)b * n;
            double by = dot(x, y, n);
            for (size_t i = 0; i < n; i++)
                x[i] = (float)((double)x[i] - by * (double)y[i]);
        }
    double norm = sqrt(dot(x, x, n));
    bool gone = norm <= 1e-6 * before; /* not so for NaN, which is to be seen */
    double by = gone ? 0 : 1 / norm;
    for (size_t i = 0; i < n; i++)
        x[i] = gone ? 0 : (float)((double)x[i] * by);
    return !gone;
}

/* 1. Every rank draws the same numbers. */
static void prepare_q(powersgd *s, const piece *c, int number)
{
    float *q = s->q + c->q;
    for (int k = 0; k < s->rank; k++) {
        if (straighten(q, k, c->cols))
            continue;
        td__rng_key key = {.seed = s->base.o.seed,
                           .stream = (uint32_t)number,
                           .step = (uint32_t)s->step,
                           .micro_batch = (uint32_t)k};
        for (size_t i = 0; i < c->cols; i++)
            q[(size_t)k * c->cols + i] = td__rng_normal(&key, i);
        (void)straighten(q, k, c->cols);
    }
}

static bool all_finite(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += 0 * (double)x[i]; /* NaN for infinities, too */
    return sum == 0;
}

/* ---- A bucket -------------------------------------------------------------------------------- */

/* 1, 2: this rank's part of the first message; its length. */
static size_t first_message(powersgd *s, int k, const float *data)
{
    const td__bucket *b = &s->base.o.buckets[k];
    size_t n = 0;
    for (int i = s->first[k]; i < s->first[k + 1]; i++) {
        const piece *c = &s->pieces[i];
        const float *from = data + (c->begin - b->begin);
        if (!c->cols) {
            memcpy(s->p + n, from, c->rows * sizeof *from);
            n += c->rows;
            continue;
        }
        float *m = s->owed + (c->begin - s->begin);
        TD_ISA_PICK(s->isa, td__blend)(m, 1.0f, from, 1.0f, c->rows * c->cols);
        prepare_q(s, c, i);
        TD_ISA_PICK(s->isa, td__low_rank_p)(s->p + n, m, s->q + c->q, c->rows, c->cols, s->rank);
        n += (size_t)s->rank * c->rows;
    }
    return n;
}

/* 3, 4: likewise of the second. */
static size_t second_message(powersgd *s, int k)
{
    size_t n = 0;
    float *p = s->p;
    for (int i = s->first[k]; i < s->first[k + 1]; i++) {
        const piece *c = &s->pieces[i];
        if (!c->cols) {
            p += c->rows;
            continue;
        }
        for (int v = 0; v < s->rank; v++)
            (void)straighten(p, v, c->rows);
        float *m = s->owed + (c->begin - s->begin), *q = s->own + n;
        TD_ISA_PICK(s->isa, td__low_rank_q)(q, m, p, c->rows, c->cols, s->rank);
        TD_ISA_PICK(s->isa, td__low_rank_subtract)(m, p, q, c->rows, c->cols, s->rank);
        p += (size_t)s->rank * c->rows;
        n += (size_t)s->rank * c->cols;
    }
    return n;
}

/* 6 */
static void unpack(powersgd *s, int k, float *data)
{
    const td__bucket *b = &s->base.o.buckets[k];
    const float *p = s->p, *own = s->own;
    for (int i = s->first[k]; i < s->first[k + 1]; i++) {
        const piece *c = &s->pieces[i];
        float *to = data + (c->begin - b->begin), *q = s->q + c->q;
        if (!c->cols) {
            memcpy(to, p, c->rows * sizeof *to);
            p += c->rows;
            continue;
        }
        size_t n_q = (size_t)s->rank * c->cols, n_p = (size_t)s->rank * c->rows;
        memcpy(q, own, n_q * sizeof *q);
        TD_ISA_PICK(s->isa, td__low_rank_set)(to, p, q, c->rows, c->cols, s->rank);
        if (!all_finite(p, n_p) || !all_finite(q, n_q)) {
            for (size_t j = 0; j < c->rows * c->cols; j++)
                to[j] = NAN;
            memset(s->owed + (c->begin - s->begin), 0, c->rows * c->cols * sizeof *s->owed);
            memset(q, 0, n_q * sizeof *q);
        }
        p += n_p;
        own += n_q;
    }
}

static td_status sum(powersgd *s, float *x, size_t n)
{
    s->base.sent_nbytes += td__reduce_sum_nbytes(&s->base, n);
    if (!n)
        return TD_OK;
    return td_allreduce(s->base.o.comm, x, x, n, TD_F32, TD_REDUCE_SUM,
                        &(td_coll_opts){.algo = s->base.o.algo});
}

static td_status reduce(td__compressor *r, int k, float *data)
{
    powersgd *s = (powersgd *)r;
    const td__bucket *b = &r->o.buckets[k];
    if (b->exact || s->step <= (uint64_t)r->o.warmup_steps)
        return td__reduce_plain(r, k, data);
    TD_TRY(sum(s, s->p, first_message(s, k, data)));
    TD_TRY(sum(s, s->own, second_message(s, k)));
    unpack(s, k, data);
    r->plain_nbytes += td__reduce_sum_nbytes(r, b->count);
    return TD_OK;
}

static void plan(td__planner *w, const td__compressor_opts *o, int k)
{
    powersgd s = {.base = {.o = *o}, .rank = o->rank ? o->rank : RANK};
    size_t p = o->buckets[k].count, own = 0;
    bool plain = w->at->step <= (uint64_t)(o->warmup_steps > 0 ? o->warmup_steps : 0);
    td_status st = plain ? TD_OK : cut_all(&s);
    if (!st && !plain)
        messages_of(&s, k, &p, &own);
    if (p || plain)
        td__planner_coll(w, TD_PLAN_ALLREDUCE, p * sizeof(float), 1 + k);
    if (own)
        td__planner_coll(w, TD_PLAN_ALLREDUCE, own * sizeof(float), 1 + k);
    w->st = w->st ? w->st : st;
    td__free(s.pieces);
    td__free(s.first);
}

const td__compressor_ops td__compressor_powersgd = {
    .name = "powersgd",
    .help = "matrices of low rank, with error feedback",
    .compresses = true,
    .kept = 1,
    .create = create,
    .destroy = destroy,
    .step = step,
    .reduce = reduce,
    .plan = plan,
};
