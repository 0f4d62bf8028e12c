/* op_layer_norm.c -- layer normalisation over the last axis, and its backward.
 *
 * Every row of D elements is normalised by itself, as op_normalise.h says, with a gamma and a beta
 * for each element of a row. dgamma and dbeta are sums over the rows. The backward may add a
 * residual to dx: the gradient that reaches x beside the norm (made by rewriting only). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_normalise.h"

static td_status layer_norm_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *x = &a->in_desc[0]->shape;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(td__norm_check_rows(a, "x"));
    TD_TRY(td__want_weight_vector(a, 1, "gamma", td__last_dim(x)));
    TD_TRY(td__want_weight_vector(a, 2, "beta", td__last_dim(x)));
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

    for (int64_t r = 0; r < rows; r++) {
        td__norm_row row = {.m = d, .repeat = 1, .x = x + r * d, .gamma = gamma};
        td__norm_row_ref(&row, beta, at->eps, y + r * d, &mean[r], &rstd[r]);
    }
}

static void layer_norm_grad(const td_grad_args *ga)
{
    td__norm_grad(ga, TD_OP_LAYER_NORM_BACK, 2);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *dy = &a->in_desc[0]->shape;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(td__norm_check_rows(a, "dy"));
    TD_TRY(td__want_activation(a, 1, "x", dy));
    TD_TRY(td__want_weight_vector(a, 2, "gamma", td__last_dim(dy)));
    td_shape rows = td__shape_rows(dy);
    TD_TRY(td__want_weight_shape(a, 3, "mean", &rows));
    TD_TRY(td__want_weight_shape(a, 4, "rstd", &rows));
    const td_attr_norm *at = a->attr;
    if (a->n_in != (at->has_residual ? 6 : 5))
        return TD_FAIL(TD_EINVAL, "%d inputs given", a->n_in);
    if (at->has_residual)
        TD_TRY(td__want_activation(a, 5, "the residual", dy));
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

    for (int64_t i = 0; i < d; i++)
        dgamma[i] = dbeta[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        td__norm_row row = {.m = d, .repeat = 1, .x = x + r * d, .gamma = gamma};
        td__norm_row_back_ref(&row, mean[r], rstd[r], dy + r * d, dx + r * d, dgamma, dbeta);
    }
    for (int64_t i = 0; a->n_in > 5 && i < rows * d; i++)
        dx[i] += ((const double *)a->in[5])[i];
}

TD_API td_node *td_layer_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta, double eps)
{
    td_attr_norm at;

    memset(&at, 0, sizeof at);
    at.eps = eps;
    return TD__NODE(g, TD_OP_LAYER_NORM, &at, x, gamma, beta);
}

static const td_attr_norm EPS = {.eps = 1e-5}, LARGE_EPS = {.eps = 0.1},
                          ADDED = {.eps = 1e-5, .has_residual = true};

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
#define BACK_ADDED(r, d)                                                         \
    {                                                                            \
        .n_in = 6, .in = {TD__FLOATS(r, d), TD__FLOATS(r, d), TD__FLOATS(d),     \
                          TD__FLOATS(r),    TD__FLOATS(r),    TD__FLOATS(r, d)}, \
        .attr = &ADDED, .positive = TD__BIT(4)                                   \
    }
static const td_op_sample BACK_SAMPLES[] = {
    BACK(EPS, 3, 7),
    BACK(EPS, 1, 1),
    BACK(EPS, 0, 7),
    BACK(EPS, 3, 0),
    BACK(EPS, 9, 67),
    BACK(EPS, 5, 384),
    BACK(EPS, 70, 16),
    BACK_ADDED(3, 7),
    BACK_ADDED(0, 7),
    BACK_ADDED(9, 67),
    BACK_ADDED(21, 384),
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
    .n_in_max = 6,
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
