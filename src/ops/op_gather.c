/* op_gather.c -- elements picked along one axis by an index tensor, as torch.gather; the backward.
 *
 *    y[i][j][k] = x[index[i][j][k]][j][k]       (axis 0; other axes alike)
 *    dx = dy added up at the places it was read from     (gather_back, in order of the elements)
 *
 * Along the other axes the index may be smaller than x. An index outside x gives NaN (0 for
 * integers), so that a bad index ends as an error of the run, not as a wrong number; its gradient
 * goes nowhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_util.h"

/* Does an index of shape `ix` fit x? */
static td_status check_fit(const td_attr_axis *at, const td_shape *x, const td_shape *ix)
{
    if (at->axis < 0 || at->axis >= x->ndim)
        return TD_FAIL(TD_EINVAL, "axis %d of %d", at->axis, x->ndim);
    if (ix->ndim != x->ndim)
        return TD_FAIL(TD_EINVAL, "the index has %d axes, x has %d", ix->ndim, x->ndim);
    for (int i = 0; i < x->ndim; i++)
        if (i != at->axis && ix->dim[i] > x->dim[i])
            return TD_FAIL(TD_EINVAL, "the index has size %lld in axis %d, x has %lld",
                           (long long)ix->dim[i], i, (long long)x->dim[i]);
    return TD_OK;
}

static td_status gather_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__need_index(a, 1));
    TD_TRY(check_fit(a->attr, &a->in_desc[0]->shape, &a->in_desc[1]->shape));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[1]->shape);
    *n_out = 1;
    return TD_OK;
}

static td_status gather_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_axis *at = a->attr;
    TD_TRY(td__need_index(a, 0));
    TD_TRY(td__need_float(a, 1));
    TD_TRY(td__need_valid_shape(&at->input));
    TD_TRY(check_fit(at, &at->input, &a->in_desc[0]->shape));
    TD_TRY(td__need_shape(a, 1, &a->in_desc[0]->shape));
    out[0] = td__desc(a->in_desc[1]->dtype, at->input);
    *n_out = 1;
    return TD_OK;
}

/* Where in x the element lies that index element i, at `index`, names; -1 if outside. */
static int64_t place(const td_attr_axis *at, const td_shape *x, const int64_t *stride,
                     const td_desc *ix, const void *ids, int64_t i, const int64_t *index)
{
    int64_t id = td__ref_index(ix->dtype, ids, i);
    if (id < 0 || id >= x->dim[at->axis])
        return -1;
    return td__offset(x->ndim, index, stride) + (id - index[at->axis]) * stride[at->axis];
}

static void gather_ref(const td_op_args *a)
{
    const td_shape *x = &a->in_desc[0]->shape, *ix = &a->in_desc[1]->shape;
    td_dtype type = a->out_desc[0].dtype;
    size_t e = td__ref_size(type);
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0}, n = td__count(ix);
    td__strides(x, stride);
    for (int64_t i = 0; i < n; i++, td__next_index(ix, index)) {
        int64_t at = place(a->attr, x, stride, a->in_desc[1], a->in[1], i, index);
        if (at < 0)
            td__ref_set(type, a->out[0], i, td_dtype_is_float(type) ? (double)NAN : 0.0);
        else
            memcpy((char *)a->out[0] + (size_t)i * e, (const char *)a->in[0] + (size_t)at * e, e);
    }
}

static void gather_back_ref(const td_op_args *a)
{
    const td_attr_axis *attr = a->attr;
    const td_shape *ix = &a->in_desc[0]->shape;
    const double *dy = a->in[1];
    double *dx = a->out[0];
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0}, n = td__count(ix);
    td__strides(&attr->input, stride);
    memset(dx, 0, (size_t)td__count(&attr->input) * sizeof *dx);
    for (int64_t i = 0; i < n; i++, td__next_index(ix, index)) {
        int64_t at = place(attr, &attr->input, stride, a->in_desc[0], a->in[0], i, index);
        if (at >= 0)
            dx[at] += dy[i];
    }
}

static void gather_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_attr_axis attr;
    memcpy(&attr, a->y->attr, sizeof attr);
    attr.input = a->y->in[0]->out[0].shape;
    a->dx[0] = TD__NODE(a->g, TD_OP_GATHER_BACK, &attr, a->y->in[1], a->dy[0]);
}

static const td_attr_axis FIRST = {.axis = 0}, SECOND = {.axis = 1};

/* clang-format off */
#define CASE(X, IX, AT, HI) {.n_in = 2, .in = {X, IX}, .attr = &(AT), .ilo = 0, .ihi = (HI)}
/* clang-format on */
static const td_op_sample SAMPLES[] = {
    CASE(TD_SAMPLE_F(7), TD_SAMPLE_D(TD_I32, 11), FIRST, 7),
    CASE(TD_SAMPLE_F(7, 13), TD_SAMPLE_D(TD_I64, 7, 1), SECOND, 13),
    CASE(TD_SAMPLE_F(7, 13), TD_SAMPLE_D(TD_I32, 20, 13), FIRST, 7),
    CASE(TD_SAMPLE_F(3, 5, 4), TD_SAMPLE_D(TD_I32, 2, 6, 3), SECOND, 5),
    CASE(TD_SAMPLE_F(7, 13), TD_SAMPLE_D(TD_I32, 7, 0), SECOND, 13),
    CASE(TD_SAMPLE_F(7, 33, 65), TD_SAMPLE_D(TD_I32, 7, 9, 65), SECOND, 33),
};

static const td_attr_axis BACK_FIRST = {.axis = 0, .input = TD__DIMS(7, 13)};
static const td_attr_axis BACK_SECOND = {.axis = 1, .input = TD__DIMS(3, 5, 4)};

static const td_op_sample BACK_SAMPLES[] = {
    CASE(TD_SAMPLE_D(TD_I32, 20, 13), TD_SAMPLE_F(20, 13), BACK_FIRST, 7),
    CASE(TD_SAMPLE_D(TD_I64, 2, 6, 3), TD_SAMPLE_F(2, 6, 3), BACK_SECOND, 5),
    CASE(TD_SAMPLE_D(TD_I64, 0, 13), TD_SAMPLE_F(0, 13), BACK_FIRST, 7),
};

const td_op_def td__op_gather = {
    .name = "gather",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_axis),
    .infer = gather_infer,
    .ref = gather_ref,
    .grad = gather_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_gather_back = {
    .name = "gather_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_axis),
    .infer = gather_back_infer,
    .ref = gather_back_ref,
    .bf16 = TD_BF16_FOLLOW,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_gather(td_graph *g, td_node *x, td_node *index, int axis)
{
    td_attr_axis attr;
    memset(&attr, 0, sizeof attr);
    if (x && !td__norm_axis(g, "td_gather", x, axis, &attr.axis))
        return NULL;
    return TD__NODE(g, TD_OP_GATHER, &attr, x, index);
}
