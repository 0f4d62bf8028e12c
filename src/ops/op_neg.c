/* op_neg.c -- the negative of x.
 *
 *     y = -x        dx = -dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double neg_scalar(const double *x, const double *num)
{
    (void)num;
    return -x[0];
}

static void neg_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    a->dx[0] = td_neg(a->g, a->dy[0]);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-2, 2),
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I32, 5, 3)}, .ilo = -9, .ihi = 9},
};

const td_op_def td__op_neg = {
    .name = "neg",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_number,
    .scalar = neg_scalar,
    .grad = neg_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_neg(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_NEG, NULL, x);
}
