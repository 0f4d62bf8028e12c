/* op_linear.c -- the linear layer with bias and activation, and its two backward products.
 *
 *     pre = x w' + b          x (R, K), w (N, K), b (N); R is the product of all leading sizes
 *     y   = act(pre)          or pre + residual (made by rewriting only)
 *
 *     dpre = act'(.) dy       relu: mask by y; gelu: from pre, kept as a second output
 *     dx   = dpre w           linear_back_data; made by rewriting: times gelu'(pre of the layer
 *                             below), which gives the dpre of that layer
 *     dw   = dpre' x          linear_back_weight, with db = column sums of dpre in the same pass
 *
 * dw and db are sums over many rows: they have the dtype of the weight (f32 in bf16 programs). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

static double act_value(td_act act, double x)
{
    switch (act) {
    case TD_ACT_RELU: return x > 0 ? x : 0;
    case TD_ACT_GELU: return 0.5 * x * (1 + erf(x * 0.7071067811865476)); /* 1/sqrt(2) */
    case TD_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case TD_ACT_NONE:
    case TD_ACT_COUNT: break;
    }
    return x;
}

static bool keeps_pre(td_act act)
{
    return act == TD_ACT_GELU || act == TD_ACT_GELU_TANH;
}

static td_status linear_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_linear *at = a->attr;
    const td_shape *x = &a->in_desc[0]->shape, *w = &a->in_desc[1]->shape;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_weight(a, 1, "w"));
    TD_TRY(td__want_min_ndim(a, 0, "x", 1));
    TD_TRY(td__want_ndim(a, 1, "w", 2));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    if ((unsigned)at->act >= TD_ACT_COUNT)
        return TD_FAIL(TD_EINVAL, "unknown activation %d", (int)at->act);
    if (at->has_residual && (!at->has_bias || at->act != TD_ACT_NONE))
        return TD_FAIL(TD_EINVAL, "a residual is added where there is a bias and no activation");
    int n_in = 2 + at->has_bias + at->has_residual;
    if (a->n_in != n_in)
        return TD_FAIL(TD_EINVAL, "%d inputs given; %s bias there are %d", a->n_in,
                       at->has_bias ? "with" : "without", n_in);
    if (w->dim[1] != td__last_dim(x))
        return TD_FAIL(TD_EINVAL, "w takes %lld features, x has %lld", (long long)w->dim[1],
                       (long long)td__last_dim(x));
    if (at->has_bias) {
        TD_TRY(td__want_weight_vector(a, 2, "b", w->dim[0]));
    }
    out[0] = (td_desc){.dtype = td__out_dtype(t, at->out_dtype), .shape = *x};
    out[0].shape.dim[x->ndim - 1] = w->dim[0];
    TD_TRY(td__want_count(&out[0].shape, "y"));
    if (at->has_residual)
        TD_TRY(td__want_activation(a, 3, "the residual", &out[0].shape));
    out[1] = out[0];
    *n_out = keeps_pre(at->act) ? 2 : 1;
    return TD_OK;
}

static void linear_ref(const td_op_args *a)
{
    const td_attr_linear *at = a->attr;
    const double *x = a->in[0], *w = a->in[1];               /* (R, K), (N, K) */
    const double *b = at->has_bias ? a->in[2] : NULL;        /* (N) */
    const double *more = at->has_residual ? a->in[3] : NULL; /* (R, N) */
    double *y = a->out[0];                                   /* (R, N) */
    double *pre = a->n_out > 1 ? a->out[1] : NULL;           /* (R, N) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape), k_dim = a->in_desc[1]->shape.dim[1];
    int64_t n_dim = a->in_desc[1]->shape.dim[0];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < n_dim; n++) {
            double sum = b ? b[n] : 0;
            for (int64_t k = 0; k < k_dim; k++)
                sum += x[r * k_dim + k] * w[n * k_dim + k];
            y[r * n_dim + n] = act_value(at->act, sum) + (more ? more[r * n_dim + n] : 0);
            if (pre)
                pre[r * n_dim + n] = sum;
        }
}

static td_node *linear_node(td_graph *g, td_opcode op, td_node *a, td_node *b, td_dtype out_dtype,
                            bool has_bias)
{
    td_attr_linear at;

    memset(&at, 0, sizeof at);
    at.act = TD_ACT_NONE;
    at.out_dtype = out_dtype;
    at.has_bias = has_bias;
    return TD__NODE(g, op, &at, a, b);
}

static void linear_grad(const td_grad_args *ga)
{
    const td_attr_linear *at = ga->y->attr;
    td_graph *g = ga->g;
    td_node *x = ga->y->in[0], *w = ga->y->in[1];
    td_node *dpre = ga->dy[0];

    if (!dpre)
        return; /* `pre` serves this rule only; no gradient flows into it */
    if (at->act == TD_ACT_RELU)
        dpre = TD__NODE(g, TD_OP_RELU_BACK, NULL, ga->y, dpre);
    else if (at->act == TD_ACT_GELU)
        dpre = TD__NODE(g, TD_OP_GELU_BACK, NULL, td__part(g, ga->y, 1), dpre);
    else if (at->act == TD_ACT_GELU_TANH)
        dpre = TD__NODE(g, TD_OP_GELU_TANH_BACK, NULL, td__part(g, ga->y, 1), dpre);
    dpre = td__cast_to(g, dpre, x->out[0].dtype);

    if (at->has_residual && ga->need[3])
        ga->dx[3] = ga->dy[0];
    bool need_bias = at->has_bias && ga->need[2];
    if (ga->need[0])
        ga->dx[0] = linear_node(g, TD_OP_LINEAR_BACK_DATA, dpre, w, x->out[0].dtype, false);
    if (ga->need[1] || need_bias) {
        td_node *dw = linear_node(g, TD_OP_LINEAR_BACK_WEIGHT, dpre, x, w->out[0].dtype, need_bias);
        if (ga->need[1])
            ga->dx[1] = dw;
        if (need_bias)
            ga->dx[2] = td__part(g, dw, 1);
    }
}

/* Backward to the data: dx = dy w, and the activation of the layer that made x. */

static double gelu_tanh_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

static td_status back_data_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_linear *at = a->attr;
    const td_shape *dy = &a->in_desc[0]->shape, *w = &a->in_desc[1]->shape;

    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_weight(a, 1, "w"));
    TD_TRY(td__want_min_ndim(a, 0, "dy", 1));
    TD_TRY(td__want_ndim(a, 1, "w", 2));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    if (w->dim[0] != td__last_dim(dy))
        return TD_FAIL(TD_EINVAL, "w gives %lld features, dy has %lld", (long long)w->dim[0],
                       (long long)td__last_dim(dy));
    out[0] = (td_desc){.dtype = td__out_dtype(a->in_desc[0]->dtype, at->out_dtype), .shape = *dy};
    out[0].shape.dim[dy->ndim - 1] = w->dim[1];
    TD_TRY(td__want_count(&out[0].shape, "dx"));
    if (at->act != TD_ACT_NONE && at->act != TD_ACT_GELU_TANH)
        return TD_FAIL(TD_EINVAL, "activation %d; none or gelu_tanh is possible", (int)at->act);
    if (a->n_in != (at->act == TD_ACT_NONE ? 2 : 3))
        return TD_FAIL(TD_EINVAL, "%d inputs given", a->n_in);
    if (at->act != TD_ACT_NONE)
        TD_TRY(td__want_activation(a, 2, "pre", &out[0].shape));
    *n_out = 1;
    return TD_OK;
}

static void back_data_ref(const td_op_args *a)
{
    const double *dy = a->in[0], *w = a->in[1];        /* (R, N), (N, K) */
    const double *pre = a->n_in > 2 ? a->in[2] : NULL; /* (R, K) */
    double *dx = a->out[0];                            /* (R, K) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape);
    int64_t n_dim = a->in_desc[1]->shape.dim[0], k_dim = a->in_desc[1]->shape.dim[1];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < k_dim; k++) {
            double sum = 0;
            for (int64_t n = 0; n < n_dim; n++)
                sum += dy[r * n_dim + n] * w[n * k_dim + k];
            dx[r * k_dim + k] = pre ? sum * gelu_tanh_slope(pre[r * k_dim + k]) : sum;
        }
}

/* Backward to the weight: dw = dy' x, db = sum of the rows of dy. */

static td_status back_weight_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_linear *at = a->attr;
    const td_shape *dy = &a->in_desc[0]->shape, *x = &a->in_desc[1]->shape;

    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_same_dtype(a, 1, "x"));
    TD_TRY(td__want_min_ndim(a, 0, "dy", 1));
    TD_TRY(td__want_min_ndim(a, 1, "x", 1));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    if (td__row_count(dy) != td__row_count(x))
        return TD_FAIL(TD_EINVAL, "dy has %lld rows, x has %lld", (long long)td__row_count(dy),
                       (long long)td__row_count(x));
    td_dtype t = td__out_dtype(a->in_desc[0]->dtype, at->out_dtype);
    out[0] = (td_desc){.dtype = t, .shape = TD_SHAPE(td__last_dim(dy), td__last_dim(x))};
    TD_TRY(td__want_count(&out[0].shape, "dw"));
    out[1] = (td_desc){.dtype = t, .shape = TD_SHAPE(td__last_dim(dy))};
    *n_out = at->has_bias ? 2 : 1;
    return TD_OK;
}

static void back_weight_ref(const td_op_args *a)
{
    const double *dy = a->in[0], *x = a->in[1];   /* (R, N), (R, K) */
    double *dw = a->out[0];                       /* (N, K) */
    double *db = a->n_out > 1 ? a->out[1] : NULL; /* (N) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape);
    int64_t n_dim = td__last_dim(&a->in_desc[0]->shape);
    int64_t k_dim = td__last_dim(&a->in_desc[1]->shape);

    for (int64_t n = 0; n < n_dim; n++) {
        double *row = dw + n * k_dim, bias = 0;
        for (int64_t k = 0; k < k_dim; k++)
            row[k] = 0;
        for (int64_t r = 0; r < rows; r++) {
            double d = dy[r * n_dim + n];
            bias += d;
            for (int64_t k = 0; k < k_dim; k++)
                row[k] += d * x[r * k_dim + k];
        }
        if (db)
            db[n] = bias;
    }
}

TD_API td_node *td_linear(td_graph *g, td_node *x, td_node *w, td_node *b, td_act act)
{
    td_attr_linear at;

    memset(&at, 0, sizeof at);
    at.act = act;
    at.out_dtype = x ? x->out[0].dtype : TD_F32;
    at.has_bias = b != NULL;
    return td__node(g, TD_OP_LINEAR, &at, (td_node *[]){x, w, b}, b ? 3 : 2);
}

#define BIG .no_grad = TD__ALL_INPUTS
static const td_attr_linear PLAIN = {.act = TD_ACT_NONE}, BIAS = {.has_bias = true},
                            RELU = {.act = TD_ACT_RELU, .has_bias = true},
                            RELU_NO_BIAS = {.act = TD_ACT_RELU},
                            GELU = {.act = TD_ACT_GELU, .has_bias = true},
                            GELU_TANH = {.act = TD_ACT_GELU_TANH, .has_bias = true},
                            GELU_TANH_NO_BIAS = {.act = TD_ACT_GELU_TANH},
                            RESIDUAL = {.has_bias = true, .has_residual = true},
                            PARTS = {.rows = 4};

#define FORWARD(attribute, r, k, n) \
    .n_in = 3, .in = {TD__FLOATS(r, k), TD__FLOATS(n, k), TD__FLOATS(n)}, .attr = &attribute
#define ADDED(r, k, n)                                                                      \
    .n_in = 4, .in = {TD__FLOATS(r, k), TD__FLOATS(n, k), TD__FLOATS(n), TD__FLOATS(r, n)}, \
    .attr = &RESIDUAL
#define FORWARD_NO_BIAS(attribute, r, k, n) \
    .n_in = 2, .in = {TD__FLOATS(r, k), TD__FLOATS(n, k)}, .attr = &attribute
static const td_op_sample SAMPLES[] = {
    {FORWARD_NO_BIAS(PLAIN, 3, 5, 4)},
    {FORWARD(BIAS, 3, 5, 4)},
    {FORWARD(RELU, 7, 6, 5)},
    {FORWARD_NO_BIAS(RELU_NO_BIAS, 7, 6, 5)},
    {FORWARD(GELU, 4, 9, 6)},
    {FORWARD(GELU_TANH, 4, 9, 6)},
    {FORWARD_NO_BIAS(GELU_TANH_NO_BIAS, 4, 9, 6)},
    {FORWARD(BIAS, 1, 1, 1)},
    {FORWARD(RELU, 1, 17, 33)},
    {FORWARD(BIAS, 0, 5, 4)}, /* no rows */
    {FORWARD(BIAS, 3, 0, 4)}, /* only the bias */
    {.n_in = 3, .in = {TD__FLOATS(2, 3, 5), TD__FLOATS(4, 5), TD__FLOATS(4)}, .attr = &GELU_TANH},
    {.n_in = 3, .in = {TD__FLOATS(5), TD__FLOATS(4, 5), TD__FLOATS(4)}, .attr = &BIAS},
    {FORWARD(BIAS, 65, 130, 70), BIG},
    {FORWARD(RELU, 65, 130, 70), BIG},
    {FORWARD(GELU, 65, 130, 70), BIG},
    {FORWARD(GELU_TANH, 65, 130, 70), BIG},
    {FORWARD_NO_BIAS(PLAIN, 65, 130, 70), BIG},
    {FORWARD(RELU, 64, 256, 10), BIG}, /* a narrow last layer */
    {FORWARD(BIAS, 128, 128, 128), BIG},
    {FORWARD(BIAS, 1, 784, 100), BIG},
    {FORWARD_NO_BIAS(PARTS, 10, 7, 6)},
    {ADDED(3, 5, 4)},
    {ADDED(65, 130, 72), BIG},
};

#undef FORWARD
#undef ADDED
#undef FORWARD_NO_BIAS

#define PAIR(attribute, r, c, r2, c2) \
    .n_in = 2, .in = {TD__FLOATS(r, c), TD__FLOATS(r2, c2)}, .attr = &attribute
#define SLOPE(r, n, k)                                                       \
    .n_in = 3, .in = {TD__FLOATS(r, n), TD__FLOATS(n, k), TD__FLOATS(r, k)}, \
    .attr = &GELU_TANH_NO_BIAS
static const td_op_sample BACK_DATA_SAMPLES[] = {
    /* dy (R, N), w (N, K) */
    {PAIR(PLAIN, 3, 4, 4, 5)},
    {PAIR(PLAIN, 1, 1, 1, 1)},
    {PAIR(PLAIN, 0, 4, 4, 5)},
    {PAIR(PLAIN, 3, 0, 0, 5)},
    {PAIR(PLAIN, 65, 70, 70, 130)},
    {PAIR(PLAIN, 64, 10, 10, 256)},
    {PAIR(PLAIN, 128, 128, 128, 128)},
    {.n_in = 2, .in = {TD__FLOATS(2, 3, 17), TD__FLOATS(17, 33)}, .attr = &PLAIN},
    {PAIR(PARTS, 10, 6, 6, 7)},
    {SLOPE(3, 4, 5)},
    {SLOPE(65, 72, 136)},
};
static const td_op_sample BACK_WEIGHT_SAMPLES[] = {
    /* dy (R, N), x (R, K) */
    {PAIR(PLAIN, 3, 4, 3, 5)},
    {PAIR(BIAS, 3, 4, 3, 5)},
    {PAIR(BIAS, 1, 1, 1, 1)},
    {PAIR(BIAS, 0, 4, 0, 5)}, /* sums of nothing: zeros */
    {PAIR(BIAS, 65, 70, 65, 130)},
    {PAIR(PLAIN, 65, 70, 65, 130)},
    {PAIR(BIAS, 64, 10, 64, 256)},
    {PAIR(PARTS, 10, 6, 10, 7)},
    {PAIR(BIAS, 128, 128, 128, 128)},
    {.n_in = 2, .in = {TD__FLOATS(5, 7, 17), TD__FLOATS(5, 7, 33)}, .attr = &BIAS},
};
#undef PAIR
#undef SLOPE

const td_op_def td__op_linear = {
    .name = "linear",
    .n_in_min = 2,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_linear),
    .infer = linear_infer,
    .ref = linear_ref,
    .grad = linear_grad,
    .weights = TD__BIT(1) | TD__BIT(2),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_linear_back_data = {
    .name = "linear_back_data",
    .n_in_min = 2,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_linear),
    .infer = back_data_infer,
    .ref = back_data_ref,
    .grad = NULL,
    .weights = TD__BIT(1),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_DATA_SAMPLES,
    .n_samples = TD_LEN(BACK_DATA_SAMPLES),
};

const td_op_def td__op_linear_back_weight = {
    .name = "linear_back_weight",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_linear),
    .infer = back_weight_infer,
    .ref = back_weight_ref,
    .grad = NULL,
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_WEIGHT_SAMPLES,
    .n_samples = TD_LEN(BACK_WEIGHT_SAMPLES),
};
