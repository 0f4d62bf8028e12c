/* op_layer_norm.c -- layer normalisation over the last axis, and its backward.
 *
 * For each row x of D elements:
 *
 *     mean = sum x / D,   rstd = 1 / sqrt(sum (x - mean)^2 / D + eps),   n = (x - mean) rstd
 *     y = gamma n + beta
 *
 * With h = gamma dy:
 *
 *     dx = rstd (h - sum h / D - n sum(h n) / D)
 *     dgamma = sum over rows of dy n,   dbeta = sum over rows of dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

static td_status check_attr(const td_attr_norm *at)
{
    if (!(at->eps >= 0) || !isfinite(at->eps))
        return TD_FAIL(TD_EINVAL, "eps is %g; it must be a number of at least 0", at->eps);
    return TD_OK;
}

static td_status layer_norm_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *x = &a->in_desc[0]->shape;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(check_attr(a->attr));
    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_min_ndim(a, 0, "x", 1));
    TD_TRY(td__want_weight(a, 1, "gamma", t));
    TD_TRY(td__want_vector(a, 1, "gamma", td__last_dim(x)));
    TD_TRY(td__want_weight(a, 2, "beta", t));
    TD_TRY(td__want_vector(a, 2, "beta", td__last_dim(x)));
    out[0] = td__desc(t, *x);
    out[1] = out[2] = td__desc(td__acc_dtype(t), td__shape_rows(x));
    *n_out = 3;
    return TD_OK;
}

static void layer_norm_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const double *x = a->in[0], *gamma = a->in[1], *beta = a->in[2]; /* (R, D), (D), (D) */
    double *y = a->out[0], *mean = a->out[1], *rstd = a->out[2];     /* (R, D), (R), (R) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);
    double width = d > 0 ? (double)d : 1;

    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < d; i++)
            sum += x[i];
        mean[r] = sum / width;
        for (int64_t i = 0; i < d; i++)
            squares += (x[i] - mean[r]) * (x[i] - mean[r]);
        rstd[r] = 1 / sqrt(squares / width + at->eps);
        for (int64_t i = 0; i < d; i++)
            y[i] = gamma[i] * (x[i] - mean[r]) * rstd[r] + beta[i];
    }
}

static void layer_norm_grad(const td_grad_args *ga)
{
    td_graph *g = ga->g;
    td_node *const *in = ga->y->in;

    if (!ga->dy[0])
        return; /* the statistics carry no gradient */
    td_node *dx = TD__NODE(g, TD_OP_LAYER_NORM_BACK, ga->y->attr, ga->dy[0], in[0], in[1],
                           td__part(g, ga->y, 1), td__part(g, ga->y, 2));
    for (int i = 0; i < 3; i++)
        if (ga->need[i])
            ga->dx[i] = td__part(g, dx, i);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *dy = &a->in_desc[0]->shape;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(check_attr(a->attr));
    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_min_ndim(a, 0, "dy", 1));
    TD_TRY(td__want_same_dtype(a, 1, "x"));
    TD_TRY(td__want_shape(a, 1, "x", dy));
    TD_TRY(td__want_weight(a, 2, "gamma", t));
    TD_TRY(td__want_vector(a, 2, "gamma", td__last_dim(dy)));
    td_shape rows = td__shape_rows(dy);
    TD_TRY(td__want_weight(a, 3, "mean", t));
    TD_TRY(td__want_shape(a, 3, "mean", &rows));
    TD_TRY(td__want_weight(a, 4, "rstd", t));
    TD_TRY(td__want_shape(a, 4, "rstd", &rows));
    out[0] = td__desc(t, *dy);
    out[1] = out[2] = td__desc(a->in_desc[2]->dtype, a->in_desc[2]->shape);
    *n_out = 3;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const double *dy = a->in[0], *x = a->in[1], *gamma = a->in[2]; /* (R, D), (R, D), (D) */
    const double *mean = a->in[3], *rstd = a->in[4];               /* (R), (R) */
    double *dx = a->out[0], *dgamma = a->out[1], *dbeta = a->out[2];
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);
    double width = (double)d;

    for (int64_t i = 0; i < d; i++)
        dgamma[i] = dbeta[i] = 0;
    for (int64_t r = 0; r < rows; r++, x += d, dy += d, dx += d) {
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < d; i++) {
            double h = gamma[i] * dy[i], n = (x[i] - mean[r]) * rstd[r];
            sum += h;
            dot += h * n;
            dgamma[i] += dy[i] * n;
            dbeta[i] += dy[i];
        }
        for (int64_t i = 0; i < d; i++) {
            double n = (x[i] - mean[r]) * rstd[r];
            dx[i] = rstd[r] * (gamma[i] * dy[i] - sum / width - n * dot / width);
        }
    }
}

TD_API td_node *td_layer_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta, double eps)
{
    td_attr_norm at;

    memset(&at, 0, sizeof at);
    at.eps = eps;
    return TD__NODE(g, TD_OP_LAYER_NORM, &at, x, gamma, beta);
}

static const td_attr_norm EPS = {.eps = 1e-5}, LARGE_EPS = {.eps = 0.1};

static const td_op_sample SAMPLES[] = {
    {.n_in = 3, .in = {TD__FLOATS(3, 7), TD__FLOATS(7), TD__FLOATS(7)}, .attr = &EPS},
    {.n_in = 3, .in = {TD__FLOATS(2, 3, 5), TD__FLOATS(5), TD__FLOATS(5)}, .attr = &LARGE_EPS},
    {.n_in = 3, .in = {TD__FLOATS(9), TD__FLOATS(9), TD__FLOATS(9)}, .attr = &EPS},
    {.n_in = 3, .in = {TD__FLOATS(4, 1), TD__FLOATS(1), TD__FLOATS(1)}, .attr = &LARGE_EPS},
    {.n_in = 3, .in = {TD__FLOATS(0, 7), TD__FLOATS(7), TD__FLOATS(7)}, .attr = &EPS},
    {.n_in = 3, .in = {TD__FLOATS(3, 0), TD__FLOATS(0), TD__FLOATS(0)}, .attr = &EPS},
    {.n_in = 3, .in = {TD__FLOATS(9, 67), TD__FLOATS(67), TD__FLOATS(67)}, .attr = &EPS},
    {.n_in = 3,
     .in = {TD__FLOATS(5, 384), TD__FLOATS(384), TD__FLOATS(384)},
     .attr = &EPS,
     .no_grad = TD__ALL_INPUTS},
};

#define BACK(attribute, r, d)                                                                    \
    {                                                                                            \
        .n_in = 5,                                                                               \
        .in = {TD__FLOATS(r, d), TD__FLOATS(r, d), TD__FLOATS(d), TD__FLOATS(r), TD__FLOATS(r)}, \
        .attr = &attribute, .positive = TD__BIT(4)                                               \
    }
static const td_op_sample BACK_SAMPLES[] = {
    BACK(EPS, 3, 7),
    BACK(EPS, 1, 1),
    BACK(EPS, 0, 7),
    BACK(EPS, 3, 0),
    BACK(EPS, 9, 67),
    BACK(EPS, 5, 384),
    BACK(EPS, 70, 16),
    {.n_in = 5,
     .in = {TD__FLOATS(2, 3, 5), TD__FLOATS(2, 3, 5), TD__FLOATS(5), TD__FLOATS(2, 3),
            TD__FLOATS(2, 3)},
     .attr = &LARGE_EPS,
     .positive = TD__BIT(4)},
};

const td_op_def td__op_layer_norm = {
    .name = "layer_norm",
    .n_in_min = 3,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_norm),
    .infer = layer_norm_infer,
    .ref = layer_norm_ref,
    .grad = layer_norm_grad,
    .weights = TD__BIT(1) | TD__BIT(2),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_layer_norm_back = {
    .name = "layer_norm_back",
    .n_in_min = 5,
    .n_in_max = 5,
    .attr_size = sizeof(td_attr_norm),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(2) | TD__BIT(3) | TD__BIT(4),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
