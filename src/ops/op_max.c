/* op_max.c -- largest values over axes, and the backward.
 *
 *    y = max over the axes of x     dx = dy / (number of equal maxima) where x = y, else 0
 *
 * NaN among the values gives NaN. The result has x's type: nothing is rounded. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_reduce.h"

static td_status max_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_reduce *r = a->attr;
    const td_shape *x = &a->in_desc[0]->shape;
    td_shape shape;
    TD_TRY(td__need_float(a, 0));
    TD_TRY(td__reduce_shape(x, r, &shape));
    if (td__reduce_count(x, r->axes) == 0)
        return TD_FAIL(TD_EINVAL, "the maximum of 0 elements");
    out[0] = td__desc(a->in_desc[0]->dtype, shape);
    *n_out = 1;
    return TD_OK;
}

static void max_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    const double *x = a->in[0];
    double *y = a->out[0];
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0};
    int64_t n = td__count(s), n_out = td__count(&a->out_desc[0].shape);
    td__reduce_strides(s, ((const td_attr_reduce *)a->attr)->axes, stride);
    for (int64_t i = 0; i < n_out; i++)
        y[i] = -INFINITY;
    for (int64_t i = 0; i < n; i++, td__next_index(s, index)) {
        double *best = &y[td__offset(s->ndim, index, stride)];
        if (x[i] > *best || isnan(x[i]))
            *best = x[i];
    }
}

static void max_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_MAX_BACK, a->y->attr, a->y->in[0], a->y, a->dy[0]);
}

static td_status max_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_desc y;
    TD_TRY(max_infer(a, &y, n_out));
    TD_TRY(td__need_same_dtype(a, 0, 1));
    TD_TRY(td__need_same_dtype(a, 0, 2));
    TD_TRY(td__need_shape(a, 1, &y.shape));
    TD_TRY(td__need_shape(a, 2, &y.shape));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    return TD_OK;
}

static void max_back_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    const double *x = a->in[0], *y = a->in[1], *dy = a->in[2];
    double *dx = a->out[0];
    unsigned axes = ((const td_attr_reduce *)a->attr)->axes;

    /* x's indices are taken apart into those of the result and those within one result. */
    td_shape results = *s, within = *s;
    for (int i = 0; i < s->ndim; i++)
        *(axes >> i & 1u ? &results.dim[i] : &within.dim[i]) = 1;
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0}, at[TD_MAX_DIMS] = {0};
    int64_t n_results = td__count(&results), n_within = td__count(&within);
    td__strides(s, stride);
    for (int64_t r = 0; r < n_results; r++, td__next_index(&results, index)) {
        int64_t first = td__offset(s->ndim, index, stride), equal = 0;
        for (int64_t k = 0; k < n_within; k++, td__next_index(&within, at))
            equal += x[first + td__offset(s->ndim, at, stride)] == y[r];
        for (int64_t k = 0; k < n_within; k++, td__next_index(&within, at)) {
            int64_t i = first + td__offset(s->ndim, at, stride);
            dx[i] = x[i] == y[r] ? dy[r] / (double)equal : 0;
        }
    }
}

static const td_attr_reduce NONE = {.axes = 0}, FIRST = {.axes = 1};
static const td_attr_reduce LAST = {.axes = 2, .keep = true};
static const td_attr_reduce ENDS = {.axes = 5}, IMAGE = {.axes = 12, .keep = true};
static const td_attr_reduce ALL3 = {.axes = 7};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &NONE},
    {.n_in = 1, .in = {TD_SAMPLE_F(13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &LAST},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 5, 4)}, .attr = &ENDS},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &IMAGE},
    {.n_in = 1, .in = {TD_SAMPLE_F(0, 5)}, .attr = &LAST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &ALL3, .no_grad = 1u},
};

/* At random y equals no x; from the empty range [1, 1) all are equal. */
static const td_op_sample BACK_SAMPLES[] = {
    {.n_in = 3, .in = {TD_SAMPLE_F(7, 13), TD_SAMPLE_F(7, 1), TD_SAMPLE_F(7, 1)}, .attr = &LAST},
    {.n_in = 3,
     .in = {TD_SAMPLE_F(7, 13), TD_SAMPLE_F(7, 1), TD_SAMPLE_F(7, 1)},
     .attr = &LAST,
     .lo = 1,
     .hi = 1},
    {.n_in = 3,
     .in = {TD_SAMPLE_F(3, 5, 4), TD_SAMPLE_F(5), TD_SAMPLE_F(5)},
     .attr = &ENDS,
     .lo = 1,
     .hi = 1},
    {.n_in = 3,
     .in = {TD_SAMPLE_F(2, 0, 3), TD_SAMPLE_F(2, 0, 3), TD_SAMPLE_F(2, 0, 3)},
     .attr = &NONE},
};

const td_op_def td__op_max = {
    .name = "max",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_reduce),
    .infer = max_infer,
    .ref = max_ref,
    .grad = max_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_max_back = {
    .name = "max_back",
    .n_in_min = 3,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_reduce),
    .infer = max_back_infer,
    .ref = max_back_ref,
    .bf16 = TD_BF16_FOLLOW,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_max(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep)
{
    return td__reduce_node(g, TD_OP_MAX, "td_max", x, axes, n_axes, keep, false);
}
