/* op_clamp.c -- x held within [lo, hi], and its backward.
 *
 *     y = min(max(x, lo), hi)     dx = dy where lo <= x <= hi, else 0
 *
 * lo and hi may be infinite. NaN stays NaN. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static td_status check_range(const td_op_args *a)
{
    const td_attr_clamp *c = a->attr;
    if (!(c->lo <= c->hi))
        return TD_FAIL(TD_EINVAL, "lo %g and hi %g do not make a range", c->lo, c->hi);
    return TD_OK;
}

static td_status clamp_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(check_range(a));
    return td__infer_unary(a, out, n_out);
}

static td_status clamp_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(check_range(a));
    return td__infer_same(a, out, n_out);
}

static double clamp_scalar(const double *x, const double *num)
{
    return x[0] < num[0] ? num[0] : x[0] > num[1] ? num[1] : x[0];
}

static double clamp_back_scalar(const double *x, const double *num)
{
    const double dy = x[1];
    return x[0] >= num[0] && x[0] <= num[1] ? dy : 0.0;
}

static void clamp_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_CLAMP_BACK, a->y->attr, a->y->in[0], a->dy[0]);
}

static const td_attr_clamp HALF = {-0.5, 0.5}, WIDE = {-8, 8}, ABOVE = {0, __builtin_inf()};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &WIDE, .lo = -2, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &WIDE, .lo = -2, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .attr = &WIDE, .lo = -2, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &WIDE, .lo = -2, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &HALF, .lo = 0.6, .hi = 2},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &HALF, .lo = -2, .hi = 2, .no_grad = 1u},
    {.n_in = 1, .in = {TD_SAMPLE_F(33)}, .attr = &ABOVE, .lo = 0.1, .hi = 9},
};

static const td_op_sample BACK_SAMPLES[] = {
    TD_PAIR_SAMPLES(&HALF, -1, 1),
};

const td_op_def td__op_clamp = {
    .name = "clamp",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_clamp),
    .infer = clamp_infer,
    .scalar = clamp_scalar,
    .grad = clamp_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_clamp_back = {
    .name = "clamp_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_clamp),
    .infer = clamp_back_infer,
    .scalar = clamp_back_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_clamp(td_graph *g, td_node *x, double lo, double hi)
{
    td_attr_clamp attr = {lo, hi};
    return TD__NODE(g, TD_OP_CLAMP, &attr, x);
}
