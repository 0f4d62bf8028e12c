/* op_attention_joined.c -- attention whose queries, keys and values lie side by side, as one
 * product makes them, and its backward, whose gradients lie so too: nothing is copied apart and
 * together.
 *
 * qkv (B, T, (H + 2 Hkv) D): the H queries of a token, its Hkv keys, its Hkv values. o (B, T, H, D)
 * and lse (B, H, T) as in op_attention.c, which has the formulas. Made by rewriting only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_attention.h"

/* `qkv` is its index among the inputs. */
static td__attention joined(const td_op_args *a, int qkv)
{
    const td_attr_attention *at = a->attr;
    const int64_t *dim = a->in_desc[qkv]->shape.dim;
    td__attention p = {.b = dim[0],
                       .t = dim[1],
                       .s = dim[1],
                       .h = at->heads,
                       .hkv = at->kv_heads,
                       .d = dim[2] / (at->heads + 2 * at->kv_heads),
                       .q = a->in[qkv],
                       .q_step = dim[2],
                       .kv_step = dim[2],
                       .at = at};

    p.k = p.q + p.h * p.d;
    p.v = p.k + p.hkv * p.d;
    return p;
}

static td_status check(const td_op_args *a, int qkv)
{
    const td_attr_attention *at = a->attr;
    const td_shape *s = &a->in_desc[qkv]->shape;

    TD_TRY(td__want_float(a, 0, "the first input"));
    TD_TRY(td__want_same_dtype(a, qkv, "qkv"));
    TD_TRY(td__want_ndim(a, qkv, "qkv", 3));
    if (at->heads < 1 || at->kv_heads < 1 || at->heads % at->kv_heads != 0)
        return TD_FAIL(TD_EINVAL, "%d heads of k do not divide %d heads of q", at->kv_heads,
                       at->heads);
    if (s->dim[2] % (at->heads + 2 * at->kv_heads) != 0)
        return TD_FAIL(TD_EINVAL, "%d + 2 x %d heads do not divide %lld elements", at->heads,
                       at->kv_heads, (long long)s->dim[2]);
    if (at->has_mask || !isfinite(at->scale) || at->scale == 0)
        return TD_FAIL(TD_EINVAL, "%s, the scale is %g", at->has_mask ? "a mask" : "no mask",
                       at->scale);
    return TD_OK;
}

static void shapes(const td_op_args *a, int qkv, td_shape *o, td_shape *lse)
{
    const td_attr_attention *at = a->attr;
    const int64_t *dim = a->in_desc[qkv]->shape.dim;

    *o = TD_SHAPE(dim[0], dim[1], at->heads, dim[2] / (at->heads + 2 * at->kv_heads));
    *lse = TD_SHAPE(dim[0], at->heads, dim[1]);
}

static td_status joined_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype t = a->in_desc[0]->dtype;
    td_shape o, lse;

    TD_TRY(check(a, 0));
    shapes(a, 0, &o, &lse);
    out[0] = td__desc(t, o);
    out[1] = td__desc(td__acc_dtype(t), lse);
    *n_out = 2;
    return TD_OK;
}

static void joined_ref(const td_op_args *a)
{
    const td__attention p = joined(a, 0);

    td__attention_forward(&p, a->out[0], a->out[1]);
}

static void joined_grad(const td_grad_args *ga)
{
    if (ga->dy[0] && ga->need[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_ATTENTION_JOINED_BACK, ga->y->attr, ga->dy[0],
                             ga->y->in[0], ga->y, td__part(ga->g, ga->y, 1));
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_shape o, lse;

    TD_TRY(check(a, 1));
    shapes(a, 1, &o, &lse);
    TD_TRY(td__want_shape(a, 0, "do", &o));
    TD_TRY(td__want_activation(a, 2, "o", &o));
    TD_TRY(td__want_weight_shape(a, 3, "lse", &lse));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[1]->shape);
    *n_out = 1;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const td__attention p = joined(a, 1);
    td__attention_grads g = {.dq = a->out[0]};

    g.dk = g.dq + (p.k - p.q);
    g.dv = g.dq + (p.v - p.q);
    for (int64_t i = 0; i < p.b * p.t * p.q_step; i++)
        g.dq[i] = 0;
    td__attention_backward(&p, a->in[0], a->in[2], a->in[3], &g);
}

static const td_attr_attention FULL = {.scale = 0.5, .heads = 2, .kv_heads = 2},
                               CAUSAL = {.scale = 0.5, .causal = true, .heads = 2, .kv_heads = 2},
                               GROUPED = {.scale = 0.5, .causal = true, .heads = 4, .kv_heads = 2};

/* The cases: attributes, B, T, H, Hkv, D, gradients checked. */
#define CASES(X)                               \
    X(FULL, 2, 5, 2, 2, 4, 0)                  \
    X(CAUSAL, 2, 5, 2, 2, 4, 0)                \
    X(GROUPED, 1, 6, 4, 2, 3, 0)               \
    X(FULL, 0, 3, 2, 2, 4, 0)                  \
    X(CAUSAL, 2, 33, 2, 2, 16, TD__ALL_INPUTS) \
    X(FULL, 1, 65, 2, 2, 32, TD__ALL_INPUTS)   \
    X(GROUPED, 1, 70, 4, 2, 64, TD__ALL_INPUTS)

static const td_op_sample SAMPLES[] = {
#define X(attribute, b, t, h, hkv, d, skip) \
    {.n_in = 1, .in = {TD__FLOATS(b, t, (h + 2 * hkv) * d)}, .attr = &attribute, .no_grad = skip},
    CASES(X)
#undef X
};

/* lse drawn from [0.5, 1.5): probabilities that need not sum to one. */
static const td_op_sample BACK_SAMPLES[] = {
#define X(attribute, b, t, h, hkv, d, skip)                                                      \
    {.n_in = 4,                                                                                  \
     .in = {TD__FLOATS(b, t, h, d), TD__FLOATS(b, t, (h + 2 * hkv) * d), TD__FLOATS(b, t, h, d), \
            TD__FLOATS(b, h, t)},                                                                \
     .attr = &attribute,                                                                         \
     .positive = TD__BIT(3)},
    CASES(X)
#undef X
};

const td_op_def td__op_attention_joined = {
    .name = "attention_joined",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_attention),
    .infer = joined_infer,
    .ref = joined_ref,
    .grad = joined_grad,
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_attention_joined_back = {
    .name = "attention_joined_back",
    .n_in_min = 4,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_attention),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(3),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
