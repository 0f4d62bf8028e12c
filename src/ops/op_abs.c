/* op_abs.c -- the absolute value of x.
 *
 *     y = |x|       dx = sign(x) dy      (0 at 0) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double abs_scalar(const double *x, const double *num)
{
    (void)num;
    return fabs(x[0]);
}

static void abs_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *x = a->y->in[0];
    a->dx[0] = td_mul(a->g, a->dy[0], td_sign(a->g, x));
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.1, 2),
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = -2, .hi = -0.1}, /* the other side of the kink */
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = -2, .hi = 2, .no_grad = 1u}, /* both */
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I64, 5, 3)}, .ilo = -9, .ihi = 9},
};

const td_op_def td__op_abs = {
    .name = "abs",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_number,
    .scalar = abs_scalar,
    .grad = abs_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_abs(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_ABS, NULL, x);
}
