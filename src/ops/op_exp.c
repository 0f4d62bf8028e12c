/* op_exp.c -- the exponential function.
 *
 *     y = e^x       dx = y dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double exp_scalar(const double *x, const double *num)
{
    (void)num;
    return exp(x[0]);
}

static void exp_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    a->dx[0] = td_mul(a->g, a->dy[0], a->y);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-2, 2),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -80, .hi = 80, .no_grad = 1u}, /* all of f32 */
};

const td_op_def td__op_exp = {
    .name = "exp",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = exp_scalar,
    .grad = exp_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_exp(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_EXP, NULL, x);
}
