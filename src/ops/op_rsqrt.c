/* op_rsqrt.c -- one over the square root.
 *
 *     y = x^(-1/2)  dx = -1/2 y^3 dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double rsqrt_scalar(const double *x, const double *num)
{
    (void)num;
    return 1.0 / sqrt(x[0]);
}

static void rsqrt_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *cube = td_mul(a->g, a->y, td_square(a->g, a->y));
    a->dx[0] = td_mul(a->g, a->dy[0], td_affine(a->g, cube, -0.5, 0));
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.2, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = 1e-6, .hi = 1e6, .no_grad = 1u},
};

const td_op_def td__op_rsqrt = {
    .name = "rsqrt",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = rsqrt_scalar,
    .grad = rsqrt_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_rsqrt(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_RSQRT, NULL, x);
}
