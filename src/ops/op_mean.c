/* op_mean.c -- means over axes. Means of bf16 and f16 are f32, f64 stays f64; a mean of nothing is
 * refused.
 *
 *    y = 1/n sum over the axes of x     dx = dy / n at every element of the mean */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_reduce.h"

static td_status mean_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_reduce *r = a->attr;
    TD_TRY(td__reduce_infer_sum(a, "mean", out));
    if (td__reduce_count(&a->in_desc[0]->shape, r->axes) == 0)
        return TD_FAIL(TD_EINVAL, "the mean of 0 elements");
    *n_out = 1;
    return TD_OK;
}

static void mean_ref(const td_op_args *a)
{
    unsigned axes = ((const td_attr_reduce *)a->attr)->axes;
    double *y = a->out[0], per_result = (double)td__reduce_count(&a->in_desc[0]->shape, axes);
    int64_t n_out = td__count(&a->out_desc[0].shape);
    td__reduce_sum_ref(a);
    for (int64_t i = 0; i < n_out; i++)
        y[i] /= per_result;
}

static void mean_grad(const td_grad_args *a)
{
    const td_attr_reduce *r = a->y->attr;
    td_node *x = a->y->in[0];
    if (!a->need[0])
        return;
    /* Scaled before it is spread: fewer elements. */
    double n = (double)td__reduce_count(&x->out[0].shape, r->axes);
    a->dx[0] = td__reduce_spread(a->g, td_affine(a->g, a->dy[0], 1 / n, 0), x, r);
}

static const td_attr_reduce NONE = {.axes = 0}, FIRST = {.axes = 1};
static const td_attr_reduce LAST = {.axes = 2, .keep = true};
static const td_attr_reduce MIDDLE = {.axes = 2}, ENDS = {.axes = 5, .keep = true};
static const td_attr_reduce ALL2 = {.axes = 3}, IMAGE = {.axes = 12, .keep = true};
static const td_attr_reduce ALL3 = {.axes = 7};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &NONE},
    {.n_in = 1, .in = {TD_SAMPLE_F(13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &LAST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &ALL2},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 5, 4)}, .attr = &MIDDLE},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 5, 4)}, .attr = &ENDS},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &IMAGE},
    {.n_in = 1, .in = {TD_SAMPLE_F(0, 5)}, .attr = &LAST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &ALL3},
};

const td_op_def td__op_mean = {
    .name = "mean",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_reduce),
    .infer = mean_infer,
    .ref = mean_ref,
    .grad = mean_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_mean(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep)
{
    return td__reduce_node(g, TD_OP_MEAN, "td_mean", x, axes, n_axes, keep, true);
}
