/* op_sin.c -- sine and cosine: each is the other's gradient.
 *
 *    sin: dx = cos(x) dy        cos: dx = -sin(x) dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double sin_scalar(const double *x, const double *num)
{
    (void)num;
    return sin(x[0]);
}

static double cos_scalar(const double *x, const double *num)
{
    (void)num;
    return cos(x[0]);
}

static void sin_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = td_mul(a->g, a->dy[0], td_cos(a->g, a->y->in[0]));
}

static void cos_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = td_mul(a->g, a->dy[0], td_neg(a->g, td_sin(a->g, a->y->in[0])));
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-4, 4),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -100, .hi = 100, .no_grad = 1u},
};

const td_op_def td__op_sin = {
    .name = "sin",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = sin_scalar,
    .grad = sin_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_cos = {
    .name = "cos",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = cos_scalar,
    .grad = cos_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_sin(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_SIN, NULL, x);
}

td_node *td_cos(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_COS, NULL, x);
}
