/* op_erf.c -- the error function.
 *
 *     y = erf x     dx = 2/sqrt(pi) e^(-x^2) dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double erf_scalar(const double *x, const double *num)
{
    (void)num;
    return erf(x[0]);
}

static void erf_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *x = a->y->in[0];
    td_node *bell = td_exp(a->g, td_neg(a->g, td_square(a->g, x)));
    a->dx[0] = td_mul(a->g, a->dy[0], td_affine(a->g, bell, M_2_SQRTPI, 0));
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-2, 2),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -8, .hi = 8, .no_grad = 1u}, /* saturated */
};

const td_op_def td__op_erf = {
    .name = "erf",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = erf_scalar,
    .grad = erf_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_erf(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_ERF, NULL, x);
}
