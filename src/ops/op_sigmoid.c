/* op_sigmoid.c -- the logistic function, and its backward.
 *
 *     y = 1 / (1 + e^-x)        dx = y (1 - y) dy
 *
 * The backward reads y, not x. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double sigmoid_scalar(const double *x, const double *num)
{
    (void)num;
    return td__logistic(x[0]);
}

static double sigmoid_back_scalar(const double *x, const double *num)
{
    (void)num;
    const double y = x[0], dy = x[1];
    return dy * y * (1 - y);
}

static void sigmoid_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_SIGMOID_BACK, NULL, a->y, a->dy[0]);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-3, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -60, .hi = 60, .no_grad = 1u}, /* saturated */
};

static const td_op_sample BACK_SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, 0, 1),
};

const td_op_def td__op_sigmoid = {
    .name = "sigmoid",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = sigmoid_scalar,
    .grad = sigmoid_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_sigmoid_back = {
    .name = "sigmoid_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_same,
    .scalar = sigmoid_back_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_sigmoid(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SIGMOID, NULL, x);
}
