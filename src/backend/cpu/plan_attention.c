/* plan_attention.c -- attention and its gradient, in blocks of queries.
 *
 * For one (batch, head), ROWS queries at a time, against all keys they may see:
 *
 *   forward    A = Q K'          P = softmax(scale A + mask)       O = P V
 *   backward   A = Q K',  dP = dO V'
 *              P = exp(scale A + mask - lse)     G = P (dP - delta) scale     delta = dO . O
 *              dQ = G K       dV += P' dO        dK += G' Q
 *
 * All products go through gemm.h. K' and V' are packed once per head as (D, S) and used up to the
 * last key that a block of queries sees: a prefix of the panels. K and V are packed as blocks of
 * KEYS keys, (KEYS, D) each, summed by the batch-reduce product over just the blocks that are seen.
 * So causal attention does half the work, and no more than ROWS x S scores exist at any time.
 *
 * Heads that share keys (grouped queries) follow one another and add into the same dK, dV. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/sizes.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

enum { ROWS = 32, KEYS = 32 };

typedef struct state {
    int64_t b, t, s, h, hkv, d;
    int64_t blocks, width; /* blocks of keys; blocks * KEYS */
    int64_t mask_stride;   /* elements between the masks of batch entries; 0 if shared */
    bool causal, has_mask;
    float scale;
    td_dtype dtype;
    td__gemm by_keys;   /* (ROWS, D) x (D, S): A, dP */
    td__gemm by_blocks; /* sum over blocks of (ROWS, KEYS) x (KEYS, D): O, dQ */
    td__gemm by_rows;   /* (S, ROWS) x (ROWS, D): dV, dK */
    /* Offsets in scratch. */
    size_t keys_t, values_t, keys, values, scores, d_probs, probs, d_scores, d_keys, d_values;
    size_t rows_packed, offsets, tail, gemm;
    td__attention_softmax_fn *softmax;
    td__attention_back_fn *back;
    td__attention_delta_fn *delta;
    td__attention_store_fn *store;
} state;

/* One (batch, head) at work. */
typedef struct head {
    const state *st;
    char *scratch;
    const float *mask; /* of this batch entry, or NULL */
} head;

static const void *at(const void *base, int64_t i, td_dtype t)
{
    return (const char *)base + i * (int64_t)td_dtype_size(t);
}

static void *at_out(void *base, int64_t i, td_dtype t)
{
    return (char *)base + i * (int64_t)td_dtype_size(t);
}

/* Keys that the queries [first, first + n) may see, as a number of leading ones. */
static int64_t seen_by(const state *st, int64_t first, int64_t n)
{
    return st->causal ? td__min64(first + n, st->s) : st->s;
}

/* (S, D) with rows ld apart, as blocks of (KEYS, D); the last one filled up with zeros. */
static void pack_blocks(const head *w, size_t where, const void *x, int64_t ld)
{
    const state *st = w->st;
    size_t nbytes = td__gemm_packed_bytes(&st->by_blocks), size = td_dtype_size(st->dtype);
    for (int64_t i = 0; i < st->blocks; i++) {
        const char *from = at(x, i * KEYS * ld, st->dtype);
        int64_t n = td__min64(KEYS, st->s - i * KEYS), from_ld = ld;
        if (n < KEYS) {
            char *tail = w->scratch + st->tail;
            memset(tail, 0, KEYS * (size_t)st->d * size);
            for (int64_t r = 0; r < n; r++)
                memcpy(tail + (size_t)(r * st->d) * size, from + (size_t)(r * ld) * size,
                       (size_t)st->d * size);
            from = tail;
            from_ld = st->d;
        }
        td__gemm_pack(&st->by_blocks, w->scratch + where + (size_t)i * nbytes, from, st->dtype,
                      from_ld, false);
    }
}

/* c (n, seen) = x (n, D) * packed transposed keys or values. */
static void times_keys(const head *w, const void *x, int64_t ld, int64_t n, size_t packed,
                       int64_t seen, float *c)
{
    const state *st = w->st;
    td__gemm g = td__gemm_plan_kind(ROWS, seen, st->d, 1, st->dtype, st->by_keys.kind);
    td__gemm_run(&g,
                 &(td__gemm_args){.m = n,
                                  .a = x,
                                  .lda = ld,
                                  .a_dtype = st->dtype,
                                  .b = w->scratch + packed,
                                  .c = c,
                                  .ldc = st->width,
                                  .c_dtype = TD_F32},
                 w->scratch + st->gemm);
}

/* y (n, D) = p (n, seen) * blocks of keys or values. */
static void times_blocks(const head *w, const void *p, int64_t n, size_t packed, int64_t seen,
                         void *y, int64_t ld)
{
    const state *st = w->st;
    td__gemm_run(&st->by_blocks,
                 &(td__gemm_args){.m = n,
                                  .a = p,
                                  .a_off = (const int64_t *)(void *)(w->scratch + st->offsets),
                                  .reduce = (seen + KEYS - 1) / KEYS,
                                  .lda = st->width,
                                  .a_dtype = st->dtype,
                                  .b = w->scratch + packed,
                                  .c = y,
                                  .ldc = ld,
                                  .c_dtype = st->dtype},
                 w->scratch + st->gemm);
}

/* sums (seen, D) += p (n, seen)' * x (n, D). */
static void add_transposed(const head *w, const void *p, int64_t n, int64_t seen, const void *x,
                           int64_t ld, float *sums)
{
    const state *st = w->st;
    td__gemm g = td__gemm_plan_kind(st->s, st->d, n, 1, st->dtype, st->by_rows.kind);
    void *packed = w->scratch + st->rows_packed;
    td__gemm_pack(&g, packed, x, st->dtype, ld, false);
    td__gemm_run(&g,
                 &(td__gemm_args){.m = seen,
                                  .a = p,
                                  .lda = st->width,
                                  .a_trans = true,
                                  .a_dtype = st->dtype,
                                  .b = packed,
                                  .c = sums,
                                  .ldc = st->d,
                                  .c_dtype = TD_F32,
                                  .accumulate = true},
                 w->scratch + st->gemm);
}

static td__attention_row row_of(const head *w, int64_t query, int64_t i, int64_t seen)
{
    const state *st = w->st;
    int64_t own = seen_by(st, query, 1);
    return (td__attention_row){
        .scores = (float *)(void *)(w->scratch + st->scores) + i * st->width,
        .seen = own,
        .width = (seen + KEYS - 1) / KEYS * KEYS,
        .scale = st->scale,
        .mask = w->mask ? w->mask + query * st->s : NULL,
        .dtype = st->dtype,
    };
}

static void fill_offsets(const state *st, char *scratch)
{
    int64_t *offsets = (int64_t *)(void *)(scratch + st->offsets);
    for (int64_t i = 0; i < st->blocks; i++)
        offsets[i] = i * KEYS;
}

/* ---- Forward --------------------------------------------------------------------------------- */

static void forward_rows(const head *w, int64_t first, int64_t n, const void *q, void *o,
                         float *lse)
{
    const state *st = w->st;
    int64_t ld = st->h * st->d, seen = seen_by(st, first, n);
    char *probs = w->scratch + st->probs;
    times_keys(w, q, ld, n, st->keys_t, seen, (float *)(void *)(w->scratch + st->scores));
    for (int64_t i = 0; i < n; i++) {
        td__attention_row row = row_of(w, first + i, i, seen);
        lse[i] = st->softmax(&row, at_out(probs, i * st->width, st->dtype));
    }
    times_blocks(w, probs, n, st->values, seen, o, ld);
}

static void run_forward(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    fill_offsets(st, c->scratch);
    for (int64_t b = 0; b < st->b; b++)
        for (int64_t h = 0; h < st->h; h++) {
            head w = {st, c->scratch, NULL};
            if (st->has_mask)
                w.mask = (const float *)c->in[3] + b * st->mask_stride;
            int64_t group = st->h / st->hkv, kv_ld = st->hkv * st->d;
            int64_t kv = (b * st->s * st->hkv + h / group) * st->d;
            if (h % group == 0) {
                td__gemm_pack(&st->by_keys, w.scratch + st->keys_t, at(c->in[1], kv, st->dtype),
                              st->dtype, kv_ld, true);
                pack_blocks(&w, st->values, at(c->in[2], kv, st->dtype), kv_ld);
            }
            for (int64_t first = 0; first < st->t; first += ROWS) {
                int64_t q = ((b * st->t + first) * st->h + h) * st->d;
                forward_rows(&w, first, td__min64(ROWS, st->t - first), at(c->in[0], q, st->dtype),
                             at_out(c->out[0], q, st->dtype),
                             (float *)c->out[1] + (b * st->h + h) * st->t + first);
            }
        }
}

/* ---- Backward -------------------------------------------------------------------------------- */

typedef struct back_rows {
    const void *d_out, *q, *out; /* (n, D), rows H D apart */
    const float *lse;
    void *dq;
} back_rows;

static void backward_rows(const head *w, int64_t first, int64_t n, const back_rows *r)
{
    const state *st = w->st;
    int64_t ld = st->h * st->d, seen = seen_by(st, first, n);
    char *probs = w->scratch + st->probs, *d_scores = w->scratch + st->d_scores;
    float *d_probs = (float *)(void *)(w->scratch + st->d_probs);
    times_keys(w, r->q, ld, n, st->keys_t, seen, (float *)(void *)(w->scratch + st->scores));
    times_keys(w, r->d_out, ld, n, st->values_t, seen, d_probs);
    for (int64_t i = 0; i < n; i++) {
        td__attention_row row = row_of(w, first + i, i, seen);
        float delta = st->delta(at(r->d_out, i * ld, st->dtype), at(r->out, i * ld, st->dtype),
                                st->dtype, st->d);
        st->back(&row, r->lse[i], delta, d_probs + i * st->width,
                 at_out(probs, i * st->width, st->dtype),
                 at_out(d_scores, i * st->width, st->dtype));
    }
    times_blocks(w, d_scores, n, st->keys, seen, r->dq, ld);
    add_transposed(w, probs, n, seen, r->d_out, ld, (float *)(void *)(w->scratch + st->d_values));
    add_transposed(w, d_scores, n, seen, r->q, ld, (float *)(void *)(w->scratch + st->d_keys));
}

/* All heads that read key/value head `hk` of batch entry b. */
static void backward_group(const td_kernel_call *c, int64_t b, int64_t hk)
{
    const state *st = c->kernel->state;
    td_dtype t = st->dtype;
    head w = {st, c->scratch, NULL};
    if (st->has_mask)
        w.mask = (const float *)c->in[6] + b * st->mask_stride;
    int64_t group = st->h / st->hkv, kv_ld = st->hkv * st->d;
    int64_t kv = (b * st->s * st->hkv + hk) * st->d;
    td__gemm_pack(&st->by_keys, w.scratch + st->keys_t, at(c->in[2], kv, t), t, kv_ld, true);
    td__gemm_pack(&st->by_keys, w.scratch + st->values_t, at(c->in[3], kv, t), t, kv_ld, true);
    pack_blocks(&w, st->keys, at(c->in[2], kv, t), kv_ld);
    memset(w.scratch + st->d_keys, 0, (size_t)(st->s * st->d) * sizeof(float));
    memset(w.scratch + st->d_values, 0, (size_t)(st->s * st->d) * sizeof(float));
    for (int64_t h = hk * group; h < (hk + 1) * group; h++)
        for (int64_t first = 0; first < st->t; first += ROWS) {
            int64_t q = ((b * st->t + first) * st->h + h) * st->d;
            backward_rows(
                &w, first, td__min64(ROWS, st->t - first),
                &(back_rows){.d_out = at(c->in[0], q, t),
                             .q = at(c->in[1], q, t),
                             .out = at(c->in[4], q, t),
                             .lse = (const float *)c->in[5] + (b * st->h + h) * st->t + first,
                             .dq = at_out(c->out[0], q, t)});
        }
    st->store(at_out(c->out[1], kv, t), kv_ld, t, (float *)(void *)(w.scratch + st->d_keys), st->s,
              st->d);
    st->store(at_out(c->out[2], kv, t), kv_ld, t, (float *)(void *)(w.scratch + st->d_values),
              st->s, st->d);
}

static void run_backward(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    fill_offsets(st, c->scratch);
    for (int64_t b = 0; b < st->b; b++)
        for (int64_t hk = 0; hk < st->hkv; hk++)
            backward_group(c, b, hk);
}

/* ---- Planning -------------------------------------------------------------------------------- */

static size_t lay_out_scratch(state *st, bool backward)
{
    size_t used = 0, size = td_dtype_size(st->dtype);
    size_t by_keys = td__gemm_packed_bytes(&st->by_keys);
    size_t by_blocks = (size_t)st->blocks * td__gemm_packed_bytes(&st->by_blocks);
    size_t rows = ROWS * (size_t)st->width;
    st->offsets = td__take(&used, (size_t)st->blocks * sizeof(int64_t));
    st->tail = td__take(&used, KEYS * (size_t)st->d * size);
    st->keys_t = td__take(&used, by_keys);
    st->scores = td__take(&used, rows * sizeof(float));
    /* f32 probabilities are made in place of the scores, their gradients in place of dP. */
    st->probs = st->dtype == TD_F32 ? st->scores : td__take(&used, rows * size);
    size_t gemm =
        td__max_size(td__gemm_scratch_bytes(&st->by_keys), td__gemm_scratch_bytes(&st->by_blocks));
    if (backward) {
        st->values_t = td__take(&used, by_keys);
        st->keys = td__take(&used, by_blocks);
        st->d_probs = td__take(&used, rows * sizeof(float));
        st->d_scores = st->dtype == TD_F32 ? st->d_probs : td__take(&used, rows * size);
        st->d_keys = td__take(&used, (size_t)(st->s * st->d) * sizeof(float));
        st->d_values = td__take(&used, (size_t)(st->s * st->d) * sizeof(float));
        st->rows_packed = td__take(&used, td__gemm_packed_bytes(&st->by_rows));
        gemm = td__max_size(gemm, td__gemm_scratch_bytes(&st->by_rows));
    } else {
        st->values = td__take(&used, by_blocks);
    }
    st->gemm = td__take(&used, gemm);
    return used;
}

td_status td__cpu_plan_attention(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                 td_kernel *k)
{
    bool backward = n->op == TD_OP_ATTENTION_BACK;
    const td_attr_attention *a = n->attr;
    const td_desc *q = td__in_desc(n, backward ? 1 : 0), *key = td__in_desc(n, backward ? 2 : 1);
    const td_desc *mask = a->has_mask ? td__in_desc(n, backward ? 6 : 3) : NULL;
    (void)is_param;
    if (!td__is_f32_or_bf16(q->dtype) || (mask && mask->dtype != TD_F32) ||
        td__desc_count(q) == 0 || td__desc_count(key) == 0)
        return TD_ENOTSUP;
    state *st = td__calloc(1, sizeof *st);
    if (!st)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    *st = (state){.b = q->shape.dim[0],
                  .t = q->shape.dim[1],
                  .h = q->shape.dim[2],
                  .d = q->shape.dim[3],
                  .s = key->shape.dim[1],
                  .hkv = key->shape.dim[2],
                  .causal = a->causal,
                  .has_mask = a->has_mask,
                  .scale = (float)a->scale,
                  .dtype = q->dtype,
                  .softmax = TD_ISA_PICK(cpu->isa, td__attention_softmax),
                  .back = TD_ISA_PICK(cpu->isa, td__attention_back),
                  .delta = TD_ISA_PICK(cpu->isa, td__attention_delta),
                  .store = TD_ISA_PICK(cpu->isa, td__attention_store)};
    st->mask_stride = mask && mask->shape.ndim == 3 ? st->t * st->s : 0;
    st->blocks = (st->s + KEYS - 1) / KEYS;
    st->width = st->blocks * KEYS;
    st->by_keys = td__gemm_plan(ROWS, st->s, st->d, 1, st->dtype, cpu->isa);
    st->by_blocks = td__gemm_plan(ROWS, st->d, KEYS, st->blocks, st->dtype, cpu->isa);
    st->by_rows = td__gemm_plan(st->s, st->d, ROWS, 1, st->dtype, cpu->isa);
    k->scratch = lay_out_scratch(st, backward);
    k->run = backward ? run_backward : run_forward;
    k->impl = "blocks of queries";
    k->state = st;
    k->fini = td__free;
    return TD_OK;
}
