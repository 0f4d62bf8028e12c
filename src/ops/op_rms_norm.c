/* op_rms_norm.c -- normalisation by the root mean square of the last axis, and its backward.
 *
 * For each row x of D elements:
 *
 *     rstd = 1 / sqrt(sum x^2 / D + eps),   y = gamma x rstd
 *
 * With h = gamma dy:
 *
 *     dx = rstd (h - x rstd^2 sum(h x) / D),   dgamma = sum over rows of dy x rstd */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_normalise.h"

static td_status rms_norm_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *x = &a->in_desc[0]->shape;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(td__norm_check_rows(a, "x"));
    TD_TRY(td__want_weight_vector(a, 1, "gamma", td__last_dim(x)));
    out[0] = td__desc(t, *x);
    out[1] = td__desc(td__acc_dtype(t), td__shape_rows(x));
    *n_out = 2;
    return TD_OK;
}

static void rms_norm_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const double *x = a->in[0], *gamma = a->in[1]; /* (R, D), (D) */
    double *y = a->out[0], *rstd = a->out[1];      /* (R, D), (R) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);
    double width = d > 0 ? (double)d : 1;

    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        double squares = 0;
        for (int64_t i = 0; i < d; i++)
            squares += x[i] * x[i];
        rstd[r] = 1 / sqrt(squares / width + at->eps);
        for (int64_t i = 0; i < d; i++)
            y[i] = gamma[i] * x[i] * rstd[r];
    }
}

static void rms_norm_grad(const td_grad_args *ga)
{
    td__norm_grad(ga, TD_OP_RMS_NORM_BACK, 1);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *dy = &a->in_desc[0]->shape;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(td__norm_check_rows(a, "dy"));
    TD_TRY(td__want_activation(a, 1, "x", dy));
    TD_TRY(td__want_weight_vector(a, 2, "gamma", td__last_dim(dy)));
    td_shape rows = td__shape_rows(dy);
    TD_TRY(td__want_weight_shape(a, 3, "rstd", &rows));
    out[0] = td__desc(t, *dy);
    out[1] = td__desc(a->in_desc[2]->dtype, a->in_desc[2]->shape);
    *n_out = 2;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const double *dy = a->in[0], *x = a->in[1], *gamma = a->in[2]; /* (R, D), (R, D), (D) */
    const double *rstd = a->in[3];                                 /* (R) */
    double *dx = a->out[0], *dgamma = a->out[1];
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);

    for (int64_t i = 0; i < d; i++)
        dgamma[i] = 0;
    for (int64_t r = 0; r < rows; r++, x += d, dy += d, dx += d) {
        double dot = 0;
        for (int64_t i = 0; i < d; i++) {
            dot += gamma[i] * dy[i] * x[i];
            dgamma[i] += dy[i] * x[i] * rstd[r];
        }
        double pull = rstd[r] * rstd[r] * dot / (double)d;
        for (int64_t i = 0; i < d; i++)
            dx[i] = rstd[r] * (gamma[i] * dy[i] - x[i] * pull);
    }
}

TD_API td_node *td_rms_norm(td_graph *g, td_node *x, td_node *gamma, double eps)
{
    td_attr_norm at;

    memset(&at, 0, sizeof at);
    at.eps = eps;
    return TD__NODE(g, TD_OP_RMS_NORM, &at, x, gamma);
}

static const td_attr_norm EPS = {.eps = 1e-6}, LARGE_EPS = {.eps = 0.1};

static const td_op_sample SAMPLES[] = {
    {.n_in = 2, .in = {TD__FLOATS(3, 7), TD__FLOATS(7)}, .attr = &EPS},
    {.n_in = 2, .in = {TD__FLOATS(2, 3, 5), TD__FLOATS(5)}, .attr = &LARGE_EPS},
    {.n_in = 2, .in = {TD__FLOATS(9), TD__FLOATS(9)}, .attr = &EPS},
    {.n_in = 2, .in = {TD__FLOATS(4, 1), TD__FLOATS(1)}, .attr = &LARGE_EPS},
    {.n_in = 2, .in = {TD__FLOATS(0, 7), TD__FLOATS(7)}, .attr = &EPS},
    {.n_in = 2, .in = {TD__FLOATS(3, 0), TD__FLOATS(0)}, .attr = &EPS},
    {.n_in = 2, .in = {TD__FLOATS(9, 67), TD__FLOATS(67)}, .attr = &EPS},
    {.n_in = 2,
     .in = {TD__FLOATS(5, 384), TD__FLOATS(384)},
     .attr = &EPS,
     .no_grad = TD__ALL_INPUTS},
};

#define BACK(r, d)                                                                           \
    {                                                                                        \
        .n_in = 4, .in = {TD__FLOATS(r, d), TD__FLOATS(r, d), TD__FLOATS(d), TD__FLOATS(r)}, \
        .attr = &EPS, .positive = TD__BIT(3)                                                 \
    }
static const td_op_sample BACK_SAMPLES[] = {
    BACK(3, 7),
    BACK(1, 1),
    BACK(0, 7),
    BACK(3, 0),
    BACK(9, 67),
    BACK(5, 384),
    BACK(70, 16),
    {.n_in = 4,
     .in = {TD__FLOATS(2, 3, 5), TD__FLOATS(2, 3, 5), TD__FLOATS(5), TD__FLOATS(2, 3)},
     .attr = &LARGE_EPS,
     .positive = TD__BIT(3)},
};

const td_op_def td__op_rms_norm = {
    .name = "rms_norm",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_norm),
    .infer = rms_norm_infer,
    .ref = rms_norm_ref,
    .grad = rms_norm_grad,
    .weights = TD__BIT(1),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_rms_norm_back = {
    .name = "rms_norm_back",
    .n_in_min = 4,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_norm),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(2) | TD__BIT(3),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
