/* op_gelu_tanh.c -- GELU in its tanh form, as GPT-2 has it, and its backward.
 *
 *     y     = x/2 (1 + t)                 t = tanh(k (x + c x^3)),  k = sqrt(2/pi),  c = 0.044715
 *     dy/dx = (1 + t)/2 + x/2 (1 - t^2) k (1 + 3 c x^2)
 *
 * The backward is an operator of its own: it saves four passes over memory, and t is cheap to work
 * out again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

#define K 0.7978845608028654
#define C 0.044715

static double gelu_tanh_scalar(const double *x, const double *num)
{
    (void)num;
    const double t = tanh(K * (x[0] + C * x[0] * x[0] * x[0]));
    return 0.5 * x[0] * (1 + t);
}

static double gelu_tanh_back_scalar(const double *x, const double *num)
{
    (void)num;
    const double dy = x[1];
    const double t = tanh(K * (x[0] + C * x[0] * x[0] * x[0]));
    return dy * (0.5 * (1 + t) + 0.5 * x[0] * (1 - t * t) * K * (1 + 3 * C * x[0] * x[0]));
}

static void gelu_tanh_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_GELU_TANH_BACK, NULL, a->y->in[0], a->dy[0]);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(-3, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = -12, .hi = 12, .no_grad = 1u}, /* saturated */
};

static const td_op_sample BACK_SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, -3, 3),
    TD_SAMPLE_2(TD_SAMPLE_F(64), TD_SAMPLE_F(64), NULL, -12, 12), /* saturated */
};

const td_op_def td__op_gelu_tanh = {
    .name = "gelu_tanh",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = gelu_tanh_scalar,
    .grad = gelu_tanh_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_gelu_tanh_back = {
    .name = "gelu_tanh_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_same,
    .scalar = gelu_tanh_back_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_gelu_tanh(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_GELU_TANH, NULL, x);
}
