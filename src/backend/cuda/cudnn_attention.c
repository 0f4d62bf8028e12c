/* cudnn_attention.c -- attention as a graph that cuDNN has one fused kernel for (ops/op_attention.c
 * has the formulas).
 *
 * cuDNN knows attention by the shape of its graph: which operations, in which order, with which
 * types between them. They are those of NVIDIA's own front end.
 *
 * The graph of a backward has no sum of dq of its own in f32: blocks would add to it with atomics,
 * with other bits in every run. Without it cuDNN keeps the gradient of all scores in its workspace
 * and multiplies once more, which has the same bits in every run and takes little longer (0.67
 * against 0.62 ms for 32 x 12 heads of 1024 x 64 on an H200). Programs that may be nondeterministic
 * have the sum. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn.h"

#if TD_CUDNN
#include <math.h>

#include "base/check.h"
#include "base/fail.h"

/* Sizes that occur: the names are of (B, H, T, S, D). */
typedef struct sizes {
    td__dnn_size q, o, k_turned, k, scores, scores_turned, row, heads; /* heads: (B, H, S, D) */
} sizes;

static sizes sizes_of(const td__attention_args *a)
{
    int64_t b = a->b, h = a->h, g = a->hkv, t = a->t, s = a->s, d = a->d;
    return (sizes){
        .q = {{b, h, t, d}, {t * a->q_step, d, a->q_step, 1}},
        .o = {{b, h, t, d}, {t * h * d, d, h * d, 1}},
        .k = {{b, g, s, d}, {s * a->kv_step, d, a->kv_step, 1}},
        .k_turned = {{b, g, d, s}, {s * a->kv_step, d, 1, a->kv_step}},
        .scores = {{b, h, t, s}, {h * t * s, t * s, s, 1}},
        .scores_turned = {{b, h, s, t}, {h * t * s, t * s, 1, s}},
        .row = {{b, h, t, 1}, {h * t, t, 1, 1}},
        .heads = {{b, h, s, d}, {h * s * d, s * d, d, 1}},
    };
}

/* scores, and what is masked at -inf */
static int masked(td__dnn *d, const sizes *z, bool causal, int scores)
{
    if (!causal)
        return scores;
    int row = td__dnn_inner(d, TD_I32, z->scores), col = td__dnn_inner(d, TD_I32, z->scores);
    int keep = td__dnn_inner(d, TD_BOOL, z->scores), to = td__dnn_inner(d, TD_F32, z->scores);
    td__dnn_index(d, 2, scores, row);
    td__dnn_index(d, 3, scores, col);
    td__dnn_pointwise(d, CUDNN_POINTWISE_CMP_GE, row, col, -1, keep);
    td__dnn_pointwise(d, CUDNN_POINTWISE_BINARY_SELECT, scores, td__dnn_value(d, -INFINITY), keep,
                      to);
    return to;
}

/* mode(x, y) or mode(x) as a new tensor of size s in f32 */
static int apply(td__dnn *d, cudnnPointwiseMode_t mode, int x, int y, td__dnn_size s)
{
    int to = td__dnn_inner(d, TD_F32, s);
    td__dnn_pointwise(d, mode, x, y, -1, to);
    return to;
}

static void forward(td__dnn *d, const td__attention_args *a, const td__cuda_bind *at)
{
    sizes z = sizes_of(a);
    int q = td__dnn_at(d, TD_BF16, z.q, at->in[0]);
    int k = td__dnn_at(d, TD_BF16, z.k_turned, at->in[1]);
    int v = td__dnn_at(d, TD_BF16, z.k, at->in[2]);
    int o = td__dnn_at(d, TD_BF16, z.o, at->out[0]);
    int lse = td__dnn_at(d, TD_F32, z.row, at->out[1]);
    int s = td__dnn_inner(d, TD_F32, z.scores);
    td__dnn_product(d, q, k, s);
    s = apply(d, CUDNN_POINTWISE_MUL, s, td__dnn_value(d, a->scale), z.scores);
    s = masked(d, &z, a->causal, s);
    int top = td__dnn_inner(d, TD_F32, z.row), sum = td__dnn_inner(d, TD_F32, z.row);
    td__dnn_reduce(d, CUDNN_REDUCE_TENSOR_MAX, s, top);
    int e = apply(d, CUDNN_POINTWISE_SUB, s, top, z.scores);
    e = apply(d, CUDNN_POINTWISE_EXP, e, -1, z.scores);
    td__dnn_reduce(d, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    int log = apply(d, CUDNN_POINTWISE_LOG, sum, -1, z.row);
    td__dnn_pointwise(d, CUDNN_POINTWISE_ADD, top, log, -1, lse);
    int p = td__dnn_inner(d, TD_BF16, z.scores);
    td__dnn_pointwise(d, CUDNN_POINTWISE_DIV, e, sum, -1, p);
    td__dnn_product(d, p, v, o);
}

/* to (B, Hkv, S, D) = x y, summed over the heads that share keys */
static void to_keys(td__dnn *d, const td__attention_args *a, const sizes *z, int x, int y, int to)
{
    if (a->h == a->hkv) {
        td__dnn_product(d, x, y, to);
        return;
    }
    int each = td__dnn_inner(d, TD_BF16, z->heads);
    td__dnn_product(d, x, y, each);
    td__dnn_reduce(d, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

/* Scratch: delta (B, H, T) in f32; then, if blocks are to add to it, the sum of dq (B, H, T, D). */
static size_t delta_bytes(const td__attention_args *a)
{
    return (size_t)(a->b * a->h * a->t) * sizeof(float);
}

static void backward(td__dnn *d, const td__attention_args *a, const td__cuda_bind *at, bool summed)
{
    sizes z = sizes_of(a);
    int dout = td__dnn_at(d, TD_BF16, z.o, at->in[0]), q = td__dnn_at(d, TD_BF16, z.q, at->in[1]);
    int k = td__dnn_at(d, TD_BF16, z.k_turned, at->in[2]);
    int v = td__dnn_at(d, TD_BF16, z.k_turned, at->in[3]);
    int o = td__dnn_at(d, TD_BF16, z.o, at->in[4]), lse = td__dnn_at(d, TD_F32, z.row, at->in[5]);
    int dq = td__dnn_at(d, TD_BF16, z.q, at->out[0]), dk = td__dnn_at(d, TD_BF16, z.k, at->out[1]);
    int dv = td__dnn_at(d, TD_BF16, z.k, at->out[2]);
    int scale = td__dnn_value(d, a->scale), one = td__dnn_value(d, 1);
    int64_t h = a->h, t = a->t, n = a->d;
    td__dnn_size wide = {{a->b, h, t, n}, {h * t * n, t * n, h * n, 1}};
    int x = apply(d, CUDNN_POINTWISE_MUL, dout, o, wide), row = td__dnn_inner(d, TD_F32, z.row);
    td__dnn_reduce(d, CUDNN_REDUCE_TENSOR_ADD, x, row);
    int delta = td__dnn_at(d, TD_F32, z.row, TD__SCRATCH(0));
    td__dnn_pointwise(d, CUDNN_POINTWISE_MUL, row, one, -1, delta);
    int s = td__dnn_inner(d, TD_F32, z.scores);
    td__dnn_product(d, q, k, s);
    s = apply(d, CUDNN_POINTWISE_MUL, s, scale, z.scores);
    s = apply(d, CUDNN_POINTWISE_SUB, s, lse, z.scores);
    s = masked(d, &z, a->causal, s);
    int p = apply(d, CUDNN_POINTWISE_EXP, s, -1, z.scores);
    int p_turned = td__dnn_inner(d, TD_BF16, z.scores_turned);
    td__dnn_view(d, p, p_turned);
    to_keys(d, a, &z, p_turned, dout, dv);
    int g = td__dnn_inner(d, TD_F32, z.scores);
    td__dnn_product(d, dout, v, g);
    g = apply(d, CUDNN_POINTWISE_SUB, g, delta, z.scores);
    g = apply(d, CUDNN_POINTWISE_MUL, g, p, z.scores);
    g = apply(d, CUDNN_POINTWISE_MUL, g, scale, z.scores);
    int g_turned = td__dnn_inner(d, TD_BF16, z.scores_turned);
    td__dnn_view(d, g, g_turned);
    to_keys(d, a, &z, g_turned, q, dk);
    int plain = td__dnn_inner(d, TD_F32, z.k);
    td__dnn_view(d, k, plain);
    if (!summed) {
        td__dnn_product(d, g, plain, dq);
        return;
    }
    td__dnn_size packed = {{a->b, h, t, n}, {h * t * n, t * n, n, 1}};
    int sum = td__dnn_summed(d, packed, TD__SCRATCH(td__align_up(delta_bytes(a), 256)));
    td__dnn_product(d, g, plain, sum);
    td__dnn_pointwise(d, CUDNN_POINTWISE_IDENTITY, sum, -1, -1, dq);
}

/* By sums that blocks add to, or by the workspace. */
static td_status add_backward(td__cuda *b, td_kernel *k, const td__attention_args *a,
                              const td__cuda_bind *at, bool summed)
{
    td__dnn *d;
    size_t scratch = delta_bytes(a);
    if (summed) {
        size_t begin = td__align_up(scratch, 256), nbytes = delta_bytes(a) * (size_t)a->d;
        TD_TRY(td__cuda_add_zero(k, TD__SCRATCH(begin), nbytes));
        scratch = begin + nbytes;
    }
    td_status st = td__dnn_create(b, &d);
    if (st)
        return st;
    backward(d, a, at, summed);
    td__cuda_want_scratch(k, scratch);
    return td__dnn_add_take(d, b, k, scratch);
}

td_status td__cudnn_add_attention(td__cuda *b, td_kernel *k, const td__attention_args *a,
                                  const td__cuda_bind *at, bool back)
{
    td__dnn *d;
    if (a->mask >= 0 || a->d % 8 != 0 || a->d > 128 || a->t < 2 || a->s < 2 || !a->b || !a->h)
        return TD_ENOTSUP;
    if (back) {
        bool summed = b->base.nondeterministic && a->t % 64 == 0;
        td_status st = add_backward(b, k, a, at, summed);
        if (st != TD_ENOTSUP || !summed)
            return st;
        TD_TRY(td__cuda_begin_again(k));
        return add_backward(b, k, a, at, false);
    }
    td_status st = td__dnn_create(b, &d);
    if (st)
        return st;
    forward(d, a, at);
    return td__dnn_add_take(d, b, k, 0);
}
#endif
