/* op_square.c -- x times x.
 *
 *     y = x^2       dx = 2 x dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double square_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] * x[0];
}

static void square_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *x = a->y->in[0];
    a->dx[0] = td_mul(a->g, a->dy[0], td_affine(a->g, x, 2, 0));
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-2, 2),
};

const td_op_def td__op_square = {
    .name = "square",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = square_scalar,
    .grad = square_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_square(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SQUARE, NULL, x);
}
