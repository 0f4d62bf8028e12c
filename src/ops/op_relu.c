/* op_relu.c -- max(x, 0), and its backward.
 *
 *     y = max(x, 0)     dx = dy where y > 0, else 0
 *
 * The backward reads y, not x, so that x need not be kept. NaN stays NaN. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double relu_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] < 0 ? 0.0 : x[0];
}

static double relu_back_scalar(const double *x, const double *num)
{
    (void)num;
    const double y = x[0], dy = x[1];
    return y > 0 ? dy : 0.0;
}

static void relu_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_RELU_BACK, NULL, a->y, a->dy[0]);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.1, 2),
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = -2, .hi = -0.1},                 /* all cut */
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .lo = -2, .hi = 2, .no_grad = 1u}, /* mixed */
};

static const td_op_sample BACK_SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, -1, 1),
};

const td_op_def td__op_relu = {
    .name = "relu",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = relu_scalar,
    .grad = relu_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_relu_back = {
    .name = "relu_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_same,
    .scalar = relu_back_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_relu(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_RELU, NULL, x);
}
