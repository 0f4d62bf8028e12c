/* op_floor.c -- the largest whole number not above x. The gradient is 0.
 *
 *     y = floor x   dx = 0 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double floor_scalar(const double *x, const double *num)
{
    (void)num;
    return floor(x[0]);
}

static void floor_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_node *x = a->y->in[0];
    a->dx[0] = td__zeros_like(a->g, x);
}

static const td_op_sample SAMPLES[] = {
    TD_UNARY_SAMPLES(0.1, 0.9),
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = -4.8, .hi = 4.8, .no_grad = 1u}, /* steps */
};

const td_op_def td__op_floor = {
    .name = "floor",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = td__infer_unary,
    .scalar = floor_scalar,
    .grad = floor_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_floor(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_FLOOR, NULL, x);
}
