/* op_log.c -- the natural logarithm.
 *
 *     y = ln x      dx = dy / x */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double log_scalar(const double *x, const double *num)
{
    (void)num;
    return log(x[0]);
}

static void log_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *x = a->y->in[0];
    a->dx[0] = td_div(a->g, a->dy[0], x);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.2, 3),
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = 1e-20, .hi = 1e-3, .no_grad = 1u}, /* tiny */
    {.n_in = 1, .in = {TD_SAMPLE_F(64)}, .lo = 1e3, .hi = 1e20, .no_grad = 1u},   /* huge */
};

const td_op_def td__op_log = {
    .name = "log",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = log_scalar,
    .grad = log_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_log(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_LOG, NULL, x);
}
