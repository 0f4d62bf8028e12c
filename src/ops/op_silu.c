/* op_silu.c -- x sigmoid(x), also called swish, and its backward.
 *
 *     y     = x s               s = 1 / (1 + e^-x)
 *     dy/dx = s (1 + x (1 - s)) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double silu_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] * td__logistic(x[0]);
}

static double silu_back_scalar(const double *x, const double *num)
{
    (void)num;
    const double dy = x[1], s = td__logistic(x[0]);
    return dy * s * (1 + x[0] * (1 - s));
}

static void silu_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_SILU_BACK, NULL, a->y->in[0], a->dy[0]);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-3, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -60, .hi = 60, .no_grad = 1u}, /* saturated */
};

static const td_op_sample BACK_SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, -3, 3),
    TD_SAMPLE_2(TD_SAMPLE_F(64), TD_SAMPLE_F(64), NULL, -60, 60), /* saturated */
};

const td_op_def td__op_silu = {
    .name = "silu",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = silu_scalar,
    .grad = silu_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_silu_back = {
    .name = "silu_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_same,
    .scalar = silu_back_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_silu(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SILU, NULL, x);
}
