/* op_huber.c -- the Huber loss of every element: quadratic near the target, linear away from it.
 *
 *     d = x - target
 *     y = d^2 / 2                    where |d| <= delta
 *     y = delta (|d| - delta / 2)    elsewhere
 *     dx = clamp(d, -delta, delta) dy,  dtarget = -dx
 *
 * As a loss it stays in f32 in bf16 programs. delta is the attribute's `slope`: the slope of the
 * linear parts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static td_status huber_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    double delta = ((const td_attr_slope *)a->attr)->slope;
    if (!(delta > 0) || !isfinite(delta))
        return TD_FAIL(TD_EINVAL, "delta %g must be positive and finite", delta);
    return td__infer_float(a, out, n_out);
}

static double huber_scalar(const double *x, const double *num)
{
    const double d = fabs(x[0] - x[1]), delta = num[0];
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}

static void huber_grad(const td_grad_args *a)
{
    td_graph *g = a->g;
    double delta = ((const td_attr_slope *)a->y->attr)->slope;
    td_node *d = td_sub(g, a->y->in[0], a->y->in[1]);
    td_node *dx = td_mul(g, a->dy[0], td_clamp(g, d, -delta, delta));
    if (a->need[0])
        a->dx[0] = td__sum_to(g, dx, a->y->in[0]);
    if (a->need[1])
        a->dx[1] = td__sum_to(g, td_neg(g, dx), a->y->in[1]);
}

/* Differences lie within +-4 for WIDE (quadratic) and beyond 0.05 for NARROW (linear). */
static const td_attr_slope WIDE = {4}, NARROW = {0.05}, ONE = {1};

static const td_op_sample SAMPLES[] = {
    TD_PAIR_SAMPLES(&WIDE, -1, 1),
    TD_BROADCAST_SAMPLES(&WIDE, -1, 1),
    {.n_in = 2,
     .in = {TD_SAMPLE_F(7, 13), TD_SAMPLE_F(7, 13)},
     .attr = &NARROW,
     .lo = -1,
     .hi = 0.4,
     .positive = 2u},
    {.n_in = 2,
     .in = {TD_SAMPLE_F(7, 13), TD_SAMPLE_F(7, 13)},
     .attr = &ONE,
     .lo = -2,
     .hi = 2,
     .no_grad = 3u},
};

const td_op_def td__op_huber = {
    .name = "huber",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_slope),
    .infer = huber_infer,
    .scalar = huber_scalar,
    .grad = huber_grad,
    .inplace = 3u,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
