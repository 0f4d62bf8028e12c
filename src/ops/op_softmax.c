/* op_softmax.c -- softmax and log-softmax over the last axis, and their backwards.
 *
 *     softmax      y_i = exp(x_i - m) / sum_j exp(x_j - m),   m = max x
 *                  dx_i = y_i (dy_i - sum_j y_j dy_j)
 *     log_softmax  y_i = x_i - m - log sum_j exp(x_j - m)
 *                  dx_i = dy_i - exp(y_i) sum_j dy_j */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_check.h"

static td_status softmax_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_min_ndim(a, 0, "x", 1));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 1;
    return TD_OK;
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__want_float(a, 0, "y"));
    TD_TRY(td__want_min_ndim(a, 0, "y", 1));
    TD_TRY(td__want_activation(a, 1, "dy", &a->in_desc[0]->shape));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 1;
    return TD_OK;
}

/* The maximum of a row, and the sum of exp(x - max). */
static double row_max(const double *x, int64_t n, double *sum)
{
    double top = -INFINITY;

    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    *sum = 0;
    for (int64_t i = 0; i < n; i++)
        *sum += exp(x[i] - top);
    return top;
}

static void softmax_ref(const td_op_args *a)
{
    const double *x = a->in[0]; /* (R, D) */
    double *y = a->out[0];
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);

    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        double sum, top = row_max(x, d, &sum);
        for (int64_t i = 0; i < d; i++)
            y[i] = exp(x[i] - top) / sum;
    }
}

static void log_softmax_ref(const td_op_args *a)
{
    const double *x = a->in[0]; /* (R, D) */
    double *y = a->out[0];
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);

    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        double sum, top = row_max(x, d, &sum);
        for (int64_t i = 0; i < d; i++)
            y[i] = x[i] - top - log(sum);
    }
}

static void softmax_back_ref(const td_op_args *a)
{
    const double *y = a->in[0], *dy = a->in[1]; /* (R, D) */
    double *dx = a->out[0];
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);

    for (int64_t r = 0; r < rows; r++, y += d, dy += d, dx += d) {
        double dot = 0;
        for (int64_t i = 0; i < d; i++)
            dot += y[i] * dy[i];
        for (int64_t i = 0; i < d; i++)
            dx[i] = y[i] * (dy[i] - dot);
    }
}

static void log_softmax_back_ref(const td_op_args *a)
{
    const double *y = a->in[0], *dy = a->in[1]; /* (R, D) */
    double *dx = a->out[0];
    int64_t rows = td__row_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[0]->shape);

    for (int64_t r = 0; r < rows; r++, y += d, dy += d, dx += d) {
        double sum = 0;
        for (int64_t i = 0; i < d; i++)
            sum += dy[i];
        for (int64_t i = 0; i < d; i++)
            dx[i] = dy[i] - exp(y[i]) * sum;
    }
}

static void softmax_grad(const td_grad_args *ga)
{
    if (ga->need[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_SOFTMAX_BACK, NULL, ga->y, ga->dy[0]);
}

static void log_softmax_grad(const td_grad_args *ga)
{
    if (ga->need[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_LOG_SOFTMAX_BACK, NULL, ga->y, ga->dy[0]);
}

TD_API td_node *td_softmax(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SOFTMAX, NULL, x);
}

TD_API td_node *td_log_softmax(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_LOG_SOFTMAX, NULL, x);
}

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD__FLOATS(3, 7)}},
    {.n_in = 1, .in = {TD__FLOATS(2, 3, 5)}, .lo = -30, .hi = 30},
    {.n_in = 1, .in = {TD__FLOATS(9)}},
    {.n_in = 1, .in = {TD__FLOATS(4, 1)}},
    {.n_in = 1, .in = {TD__FLOATS(0, 7)}},
    {.n_in = 1, .in = {TD__FLOATS(3, 0)}},
    {.n_in = 1, .in = {TD__FLOATS(5, 67)}},
    {.n_in = 1, .in = {TD__FLOATS(3, 1029)}, .lo = -20, .hi = 20, .no_grad = TD__ALL_INPUTS},
};

#define PAIR(r, d)                                              \
    {                                                           \
        .n_in = 2, .in = { TD__FLOATS(r, d), TD__FLOATS(r, d) } \
    }
static const td_op_sample BACK_SAMPLES[] = {
    PAIR(3, 7),
    PAIR(1, 1),
    PAIR(0, 7),
    PAIR(3, 0),
    PAIR(5, 67),
    PAIR(3, 1029),
    {.n_in = 2, .in = {TD__FLOATS(2, 3, 5), TD__FLOATS(2, 3, 5)}},
};

const td_op_def td__op_softmax = {
    .name = "softmax",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = softmax_infer,
    .ref = softmax_ref,
    .grad = softmax_grad,
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_softmax_back = {
    .name = "softmax_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = back_infer,
    .ref = softmax_back_ref,
    .grad = NULL,
    .inplace = TD__BIT(0) | TD__BIT(1),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

const td_op_def td__op_log_softmax = {
    .name = "log_softmax",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = softmax_infer,
    .ref = log_softmax_ref,
    .grad = log_softmax_grad,
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_log_softmax_back = {
    .name = "log_softmax_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = back_infer,
    .ref = log_softmax_back_ref,
    .grad = NULL,
    .inplace = TD__BIT(0) | TD__BIT(1),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
