/* op_softplus.c -- a smooth relu.
 *
 *     y = ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)     dx = sigmoid(x) dy
 *
 * The second form cannot overflow. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double softplus_scalar(const double *x, const double *num)
{
    (void)num;
    return (x[0] > 0 ? x[0] : 0.0) + log1p(exp(-fabs(x[0])));
}

static void softplus_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *x = a->y->in[0];
    a->dx[0] = td_mul(a->g, a->dy[0], td_sigmoid(a->g, x));
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-3, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -60, .hi = 60, .no_grad = 1u}, /* saturated */
};

const td_op_def td__op_softplus = {
    .name = "softplus",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = softplus_scalar,
    .grad = softplus_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_softplus(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SOFTPLUS, NULL, x);
}
