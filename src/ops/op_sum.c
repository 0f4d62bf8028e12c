/* op_sum.c -- sums over axes. Sums of bf16 and f16 are f32, f64 stays f64. The sum of nothing is 0.
 *
 *    y = sum over the axes of x     dx = dy at every element of the sum */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_reduce.h"

static td_status sum_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_reduce *r = a->attr;
    td_shape shape;
    TD_TRY(td__need_float(a, 0));
    TD_TRY(td__reduce_shape(&a->in_desc[0]->shape, r, &shape));
    if (!td_dtype_is_float(r->out_dtype))
        return TD_FAIL(TD_EINVAL, "a sum of %s cannot be %s", td_dtype_name(a->in_desc[0]->dtype),
                       td_dtype_name(r->out_dtype));
    out[0] = td__desc(td__out_dtype(a->in_desc[0]->dtype, r->out_dtype), shape);
    *n_out = 1;
    return TD_OK;
}

static void sum_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    const double *x = a->in[0];
    double *y = a->out[0];
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0};
    int64_t n = td__count(s), n_out = td__count(&a->out_desc[0].shape);
    td__reduce_strides(s, ((const td_attr_reduce *)a->attr)->axes, stride);
    for (int64_t i = 0; i < n_out; i++)
        y[i] = 0;
    for (int64_t i = 0; i < n; i++, td__next_index(s, index))
        y[td__offset(s->ndim, index, stride)] += x[i];
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
    .ref = sum_ref,
    .grad = sum_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_sum(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep)
{
    return td__reduce_node(g, TD_OP_SUM, "td_sum", x, axes, n_axes, keep, true);
}
