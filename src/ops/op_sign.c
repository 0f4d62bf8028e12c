/* op_sign.c -- -1, 0 or 1; NaN stays NaN. The gradient is 0.
 *
 *     y = sign x    dx = 0 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double sign_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] > 0 ? 1.0 : x[0] < 0 ? -1.0 : x[0];
}

static void sign_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *x = a->y->in[0];
    a->dx[0] = td__zeros_like(a->g, x);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.1, 2),
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = -2, .hi = -0.1},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = -2, .hi = 2, .no_grad = 1u}, /* both sides */
};

const td_op_def td__op_sign = {
    .name = "sign",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = sign_scalar,
    .grad = sign_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_sign(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SIGN, NULL, x);
}
