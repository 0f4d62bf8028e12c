/* op_sqrt.c -- the square root.
 *
 *     y = sqrt x    dx = dy / (2 y) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double sqrt_scalar(const double *x, const double *num)
{
    (void)num;
    return sqrt(x[0]);
}

static void sqrt_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    a->dx[0] = td_affine(a->g, td_div(a->g, a->dy[0], a->y), 0.5, 0);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.2, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = 0, .hi = 1e6, .no_grad = 1u},
};

const td_op_def td__op_sqrt = {
    .name = "sqrt",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = sqrt_scalar,
    .grad = sqrt_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_sqrt(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SQRT, NULL, x);
}
