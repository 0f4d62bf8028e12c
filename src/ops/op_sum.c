/* op_sum.c -- sums over axes. Sums of bf16 and f16 are f32, f64 stays f64. The sum of nothing is 0.
 *
 *    y = sum over the axes of x     dx = dy at every element of the sum */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_reduce.h"

static td_status sum_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    *n_out = 1;
    return td__reduce_infer_sum(a, "sum", out);
}

static void sum_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = td__reduce_spread(a->g, a->dy[0], a->y->in[0], a->y->attr);
}

static const td_attr_reduce NONE = {.axes = 0}, FIRST = {.axes = 1};
static const td_attr_reduce LAST = {.axes = 2, .keep = true};
static const td_attr_reduce MIDDLE = {.axes = 2}, ENDS = {.axes = 5, .keep = true};
static const td_attr_reduce ALL2 = {.axes = 3}, IMAGE = {.axes = 13}, ALL3 = {.axes = 7};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &NONE},
    {.n_in = 1, .in = {TD_SAMPLE_F(13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &LAST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &ALL2},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 5, 4)}, .attr = &MIDDLE},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 5, 4)}, .attr = &ENDS},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &IMAGE},
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .attr = &MIDDLE},
    {.n_in = 1, .in = {TD_SAMPLE_F(0, 5)}, .attr = &LAST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &ALL3},
    {.n_in = 1, .in = {TD_SAMPLE_F(65, 130)}, .attr = &LAST},
};

const td_op_def td__op_sum = {
    .name = "sum",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_reduce),
    .infer = sum_infer,
    .ref = td__reduce_sum_ref,
    .grad = sum_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_sum(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep)
{
    return td__reduce_node(g, TD_OP_SUM, "td_sum", x, axes, n_axes, keep, true);
}
