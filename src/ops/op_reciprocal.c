/* op_reciprocal.c -- one over x.
 *
 *     y = 1 / x     dx = -y^2 dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double reciprocal_scalar(const double *x, const double *num)
{
    (void)num;
    return 1.0 / x[0];
}

static void reciprocal_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    a->dx[0] = td_mul(a->g, a->dy[0], td_neg(a->g, td_square(a->g, a->y)));
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.3, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = -3, .hi = -0.3},
};

const td_op_def td__op_reciprocal = {
    .name = "reciprocal",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = reciprocal_scalar,
    .grad = reciprocal_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_reciprocal(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_RECIPROCAL, NULL, x);
}
