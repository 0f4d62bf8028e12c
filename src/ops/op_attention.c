/* op_attention.c -- scaled dot-product attention with grouped heads, and its backward.
 *
 * For batch b, head h (which reads key/value head h Hkv / H), query t and key s:
 *
 *     a_s = scale q_t . k_s + mask[t, s]        keys s > t are left out if causal
 *     lse = log sum_s exp(a_s),   p_s = exp(a_s - lse),   o_t = sum_s p_s v_s
 *
 * A query that may see no key gives zeros and lse = -inf. Backward, from lse instead of stored
 * probabilities, with delta = do_t . o_t:
 *
 *     dv_s += p_s do_t,   g_s = p_s (do_t . v_s - delta) scale,   dq_t = sum_s g_s k_s,
 *     dk_s += g_s q_t
 *
 * q, o (B, T, H, D); k, v (B, S, Hkv, D); lse (B, H, T); mask (T, S) or (B, T, S), which has no
 * gradient. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_attention.h"

#include <math.h>
#include <string.h>

typedef td__attention problem;

/* `first` is the index of q among the inputs, `mask` that of the mask. */
static problem problem_of(const td_op_args *a, int first, int mask)
{
    const td_shape *q = &a->in_desc[first]->shape, *k = &a->in_desc[first + 1]->shape;
    problem p = {.b = q->dim[0],
                 .t = q->dim[1],
                 .h = q->dim[2],
                 .d = q->dim[3],
                 .s = k->dim[1],
                 .hkv = k->dim[2],
                 .q = a->in[first],
                 .k = a->in[first + 1],
                 .v = a->in[first + 2],
                 .at = a->attr};

    p.q_step = p.h * p.d;
    p.kv_step = p.hkv * p.d;
    if (p.at->has_mask) {
        p.mask = a->in[mask];
        p.mask_stride = a->in_desc[mask]->shape.ndim == 3 ? p.t * p.s : 0;
    }
    return p;
}

static const double *query_at(const problem *p, int64_t b, int64_t t, int64_t h)
{
    return p->q + (b * p->t + t) * p->q_step + h * p->d;
}

/* Offset of a query's row of o or do. */
static int64_t row_at(const problem *p, int64_t b, int64_t t, int64_t h)
{
    return ((b * p->t + t) * p->h + h) * p->d;
}

/* Offset of key or value s for head h. */
static int64_t key_at(const problem *p, int64_t b, int64_t s, int64_t h)
{
    return (b * p->s + s) * p->kv_step + h / (p->h / p->hkv) * p->d;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* The score of query t and key s: -inf where it may not look. */
static double score(const problem *p, int64_t b, int64_t t, int64_t h, int64_t s)
{
    if (p->at->causal && s > t)
        return -INFINITY;
    double a = p->at->scale * dot(query_at(p, b, t, h), p->k + key_at(p, b, s, h), p->d);
    return p->mask ? a + p->mask[b * p->mask_stride + t * p->s + s] : a;
}

/* Check q, k, v at inputs first, first + 1, first + 2, and the mask. */
static td_status check(const td_op_args *a, int first, int mask)
{
    const td_attr_attention *at = a->attr;
    const td_shape *q = &a->in_desc[first]->shape, *k = &a->in_desc[first + 1]->shape;

    TD_TRY(td__want_float(a, 0, "the first input"));
    TD_TRY(td__want_same_dtype(a, first, "q"));
    TD_TRY(td__want_same_dtype(a, first + 1, "k"));
    TD_TRY(td__want_same_dtype(a, first + 2, "v"));
    TD_TRY(td__want_ndim(a, first, "q", 4));
    TD_TRY(td__want_ndim(a, first + 1, "k", 4));
    TD_TRY(td__want_shape(a, first + 2, "v", k));
    if (q->dim[0] != k->dim[0] || q->dim[3] != k->dim[3])
        return TD_FAIL(TD_EINVAL, "q has batch %lld and width %lld, k has %lld and %lld",
                       (long long)q->dim[0], (long long)q->dim[3], (long long)k->dim[0],
                       (long long)k->dim[3]);
    if (k->dim[2] < 1 || q->dim[2] % k->dim[2] != 0)
        return TD_FAIL(TD_EINVAL, "%lld heads of k do not divide %lld heads of q",
                       (long long)k->dim[2], (long long)q->dim[2]);
    if (!isfinite(at->scale) || at->scale == 0)
        return TD_FAIL(TD_EINVAL, "the scale is %g", at->scale);
    if (a->n_in != mask + (at->has_mask ? 1 : 0))
        return TD_FAIL(TD_EINVAL, "%d inputs given; there must be %d", a->n_in,
                       mask + (at->has_mask ? 1 : 0));
    if (!at->has_mask)
        return TD_OK;
    TD_TRY(td__want_weight(a, mask, "the mask"));
    td_shape shared = TD_SHAPE(q->dim[1], k->dim[1]);
    td_shape batched = TD_SHAPE(q->dim[0], q->dim[1], k->dim[1]);
    return td__want_shape(a, mask, "the mask",
                          a->in_desc[mask]->shape.ndim == 3 ? &batched : &shared);
}

static td_shape lse_shape(const td_shape *q)
{
    return TD_SHAPE(q->dim[0], q->dim[2], q->dim[1]);
}

static td_status attention_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(check(a, 0, 3));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    out[1] = td__desc(td__acc_dtype(a->in_desc[0]->dtype), lse_shape(&a->in_desc[0]->shape));
    *n_out = 2;
    return TD_OK;
}

/* One query of one head: o (D), returns lse. */
static double attend(const problem *p, int64_t b, int64_t t, int64_t h, double *o)
{
    double top = -INFINITY, sum = 0;

    for (int64_t i = 0; i < p->d; i++)
        o[i] = 0;
    for (int64_t s = 0; s < p->s; s++)
        top = fmax(top, score(p, b, t, h, s));
    if (top <= -(double)INFINITY)
        return -INFINITY;
    for (int64_t s = 0; s < p->s; s++) {
        double weight = exp(score(p, b, t, h, s) - top);
        const double *v = p->v + key_at(p, b, s, h);
        sum += weight;
        for (int64_t i = 0; i < p->d; i++)
            o[i] += weight * v[i];
    }
    for (int64_t i = 0; i < p->d; i++)
        o[i] /= sum;
    return top + log(sum);
}

void td__attention_forward(const td__attention *p, double *o, double *lse)
{
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t h = 0; h < p->h; h++)
            for (int64_t t = 0; t < p->t; t++)
                lse[(b * p->h + h) * p->t + t] = attend(p, b, t, h, o + row_at(p, b, t, h));
}

static void attention_ref(const td_op_args *a)
{
    const problem p = problem_of(a, 0, 3);

    td__attention_forward(&p, a->out[0], a->out[1]);
}

static void attention_grad(const td_grad_args *ga)
{
    const td_attr_attention *at = ga->y->attr;
    td_graph *g = ga->g;
    td_node *const *in = ga->y->in;

    if (!ga->dy[0] || !(ga->need[0] || ga->need[1] || ga->need[2]))
        return; /* lse carries no gradient */
    td_node *args[] = {
        ga->dy[0], in[0], in[1], in[2], ga->y, td__part(g, ga->y, 1), at->has_mask ? in[3] : NULL};
    td_node *dq = td__node(g, TD_OP_ATTENTION_BACK, at, args, at->has_mask ? 7 : 6);
    for (int i = 0; i < 3; i++)
        if (ga->need[i])
            ga->dx[i] = td__part(g, dq, i);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(check(a, 1, 6));
    td_shape lse = lse_shape(&a->in_desc[1]->shape);
    TD_TRY(td__want_shape(a, 0, "do", &a->in_desc[1]->shape));
    TD_TRY(td__want_activation(a, 4, "o", &a->in_desc[1]->shape));
    TD_TRY(td__want_weight_shape(a, 5, "lse", &lse));
    for (int i = 0; i < 3; i++)
        out[i] = td__desc(t, a->in_desc[1 + i]->shape);
    *n_out = 3;
    return TD_OK;
}

/* One query of one head: dq, and its share of dk and dv. */
static void attend_back(const problem *p, int64_t b, int64_t t, int64_t h, const double *dout,
                        double delta, double lse, const td__attention_grads *g)
{
    const double *q = query_at(p, b, t, h);
    double *dq = g->dq + (q - p->q);

    for (int64_t s = 0; s < p->s; s++) {
        double a = score(p, b, t, h, s);
        if (a <= -(double)INFINITY)
            continue;
        int64_t at = key_at(p, b, s, h);
        double prob = exp(a - lse);
        double ds = prob * (dot(dout, p->v + at, p->d) - delta) * p->at->scale;
        for (int64_t i = 0; i < p->d; i++) {
            g->dv[at + i] += prob * dout[i];
            g->dk[at + i] += ds * q[i];
            dq[i] += ds * p->k[at + i];
        }
    }
}

void td__attention_backward(const td__attention *p, const double *dout, const double *o,
                            const double *lse, const td__attention_grads *g)
{
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t h = 0; h < p->h; h++)
            for (int64_t t = 0; t < p->t; t++) {
                int64_t at = row_at(p, b, t, h);
                double delta = dot(dout + at, o + at, p->d);
                attend_back(p, b, t, h, dout + at, delta, lse[(b * p->h + h) * p->t + t], g);
            }
}

static void back_ref(const td_op_args *a)
{
    const problem p = problem_of(a, 1, 6);
    const td__attention_grads g = {.dq = a->out[0], .dk = a->out[1], .dv = a->out[2]};

    for (int64_t i = 0; i < p.b * p.t * p.h * p.d; i++)
        g.dq[i] = 0;
    for (int64_t i = 0; i < p.b * p.s * p.hkv * p.d; i++)
        g.dk[i] = g.dv[i] = 0;
    td__attention_backward(&p, a->in[0], a->in[4], a->in[5], &g);
}

TD_API td_node *td_attention(td_graph *g, td_node *q, td_node *k, td_node *v, td_node *mask,
                             const td_attention_opts *o)
{
    td_attr_attention at;

    memset(&at, 0, sizeof at);
    at.causal = o && o->causal;
    at.has_mask = mask != NULL;
    at.scale = o ? o->scale : 0;
    if (q && at.scale == 0) {
        double width = (double)td__last_dim(&q->out[0].shape);
        at.scale = width > 0 ? 1 / sqrt(width) : 1;
    }
    return td__node(g, TD_OP_ATTENTION, &at, (td_node *[]){q, k, v, mask}, mask ? 4 : 3);
}

static const td_attr_attention FULL = {.scale = 0.5}, CAUSAL = {.scale = 0.5, .causal = true},
                               MASKED = {.scale = 0.5, .has_mask = true},
                               BOTH = {.scale = 0.125, .has_mask = true, .causal = true};

/* The cases: attributes, B, T, S, H, Hkv, D, the mask's sizes, gradients checked. */
#define BIG TD__ALL_INPUTS
#define CASES(X, M)                                              \
    X(FULL, 2, 5, 5, 2, 2, 4, 0)                                 \
    X(CAUSAL, 2, 5, 5, 2, 2, 4, 0)                               \
    X(FULL, 1, 3, 7, 2, 1, 3, 0)                                 \
    X(CAUSAL, 1, 6, 6, 4, 2, 3, 0) /* grouped heads */           \
    X(CAUSAL, 1, 3, 5, 1, 1, 2, 0) /* more keys than queries */  \
    X(CAUSAL, 1, 5, 3, 1, 1, 2, 0)                               \
    X(FULL, 1, 1, 1, 1, 1, 1, 0)                                 \
    X(FULL, 0, 3, 3, 2, 2, 4, 0)                                 \
    X(FULL, 1, 3, 0, 2, 2, 4, 0) /* nothing to look at: zeros */ \
    X(CAUSAL, 2, 33, 33, 3, 3, 16, BIG)                          \
    X(CAUSAL, 1, 70, 70, 2, 1, 64, BIG)                          \
    X(FULL, 1, 65, 37, 2, 2, 24, BIG)                            \
    X(FULL, 2, 65, 70, 2, 2, 32, BIG)                            \
    M(MASKED, 2, 4, 5, 2, 2, 3, 0, 4, 5)                         \
    M(MASKED, 2, 4, 5, 2, 1, 3, 0, 2, 4, 5)                      \
    M(BOTH, 2, 5, 5, 2, 2, 3, 0, 5, 5)                           \
    M(BOTH, 2, 37, 37, 2, 2, 16, BIG, 37, 37)                    \
    M(MASKED, 2, 19, 66, 2, 2, 32, BIG, 2, 19, 66)

#define QKV(b, t, s, h, hkv, d) \
    TD__FLOATS(b, t, h, d), TD__FLOATS(b, s, hkv, d), TD__FLOATS(b, s, hkv, d)

static const td_op_sample SAMPLES[] = {
#define X(attribute, b, t, s, h, hkv, d, skip) \
    {.n_in = 3, .in = {QKV(b, t, s, h, hkv, d)}, .attr = &attribute, .no_grad = skip},
#define M(attribute, b, t, s, h, hkv, d, skip, ...)            \
    {.n_in = 4,                                                \
     .in = {QKV(b, t, s, h, hkv, d), TD__FLOATS(__VA_ARGS__)}, \
     .attr = &attribute,                                       \
     .no_grad = (skip) | TD__BIT(3)},
    CASES(X, M)
#undef X
#undef M
};

/* lse drawn from [0.5, 1.5): probabilities that need not sum to one. */
static const td_op_sample BACK_SAMPLES[] = {
#define X(attribute, b, t, s, h, hkv, d, skip)                                       \
    {.n_in = 6,                                                                      \
     .in = {TD__FLOATS(b, t, h, d), QKV(b, t, s, h, hkv, d), TD__FLOATS(b, t, h, d), \
            TD__FLOATS(b, h, t)},                                                    \
     .attr = &attribute,                                                             \
     .positive = TD__BIT(5)},
#define M(attribute, b, t, s, h, hkv, d, skip, ...)                                  \
    {.n_in = 7,                                                                      \
     .in = {TD__FLOATS(b, t, h, d), QKV(b, t, s, h, hkv, d), TD__FLOATS(b, t, h, d), \
            TD__FLOATS(b, h, t), TD__FLOATS(__VA_ARGS__)},                           \
     .attr = &attribute,                                                             \
     .positive = TD__BIT(5)},
    CASES(X, M)
#undef X
#undef M
};

const td_op_def td__op_attention = {
    .name = "attention",
    .n_in_min = 3,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_attention),
    .infer = attention_infer,
    .ref = attention_ref,
    .grad = attention_grad,
    .weights = TD__BIT(3),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_attention_back = {
    .name = "attention_back",
    .n_in_min = 6,
    .n_in_max = 7,
    .attr_size = sizeof(td_attr_attention),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(5) | TD__BIT(6),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
