/* op_gelu.c -- GELU by the error function, and its backward.
 *
 *     y     = x Phi(x)                    Phi(x) = erfc(-x / sqrt 2) / 2
 *     dy/dx = Phi(x) + x phi(x)           phi(x) = e^(-x^2 / 2) / sqrt(2 pi)
 *
 * erfc rather than 1 + erf keeps the digits of the left tail. The backward is an operator of its
 * own: one pass over memory instead of six, and Phi is cheap to work out again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static double gelu_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] * normal_cdf(x[0]);
}

static double gelu_back_scalar(const double *x, const double *num)
{
    (void)num;
    const double dy = x[1];
    const double density = exp(-0.5 * x[0] * x[0]) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
    return dy * (normal_cdf(x[0]) + x[0] * density);
}

static void gelu_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_GELU_BACK, NULL, a->y->in[0], a->dy[0]);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-3, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -12, .hi = 12, .no_grad = 1u}, /* saturated */
};

static const td_op_sample BACK_SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, -3, 3),
    TD_SAMPLE_2(TD_SAMPLE_F(64), TD_SAMPLE_F(64), NULL, -12, 12), /* saturated */
};

const td_op_def td__op_gelu = {
    .name = "gelu",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = gelu_scalar,
    .grad = gelu_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_gelu_back = {
    .name = "gelu_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_same,
    .scalar = gelu_back_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_gelu(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_GELU, NULL, x);
}
