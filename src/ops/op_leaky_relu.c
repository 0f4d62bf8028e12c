/* op_leaky_relu.c -- relu with a slope on its negative side, and its backward.
 *
 *     y = x where x > 0, else slope x     dx = dy where x > 0, else slope dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static td_status check_slope(const td_op_args *a)
{
    double slope = ((const td_attr_slope *)a->attr)->slope;
    if (!isfinite(slope))
        return TD_FAIL(TD_EINVAL, "slope %g is not a number to multiply with", slope);
    return TD_OK;
}

static td_status leaky_relu_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(check_slope(a));
    return td__infer_unary(a, out, n_out);
}

static td_status leaky_relu_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(check_slope(a));
    return td__infer_same(a, out, n_out);
}

static double leaky_relu_scalar(const double *x, const double *num)
{
    return x[0] > 0 ? x[0] : num[0] * x[0];
}

static double leaky_relu_back_scalar(const double *x, const double *num)
{
    const double dy = x[1];
    return x[0] > 0 ? dy : num[0] * dy;
}

static void leaky_relu_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_LEAKY_RELU_BACK, a->y->attr, a->y->in[0], a->dy[0]);
}

static const td_attr_slope HUNDREDTH = {0.01}, FIFTH = {0.2};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &HUNDREDTH, .lo = 0.1, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &HUNDREDTH, .lo = 0.1, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .attr = &HUNDREDTH, .lo = 0.1, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &HUNDREDTH, .lo = 0.1, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &FIFTH, .lo = -2, .hi = -0.1},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &FIFTH, .lo = -2, .hi = 2, .no_grad = 1u},
};

static const td_op_sample BACK_SAMPLES[] = {
    TD_PAIR_SAMPLES(&FIFTH, -1, 1),
};

const td_op_def td__op_leaky_relu = {
    .name = "leaky_relu",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_slope),
    .infer = leaky_relu_infer,
    .scalar = leaky_relu_scalar,
    .grad = leaky_relu_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_leaky_relu_back = {
    .name = "leaky_relu_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_slope),
    .infer = leaky_relu_back_infer,
    .scalar = leaky_relu_back_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_leaky_relu(td_graph *g, td_node *x, double slope)
{
    td_attr_slope attr = {slope};
    return TD__NODE(g, TD_OP_LEAKY_RELU, &attr, x);
}
