/* op_pad.c -- a border of one value around a tensor: before[i] and after[i] elements along axis i.
 *
 *    dx = dy without the border */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_util.h"

static td_status pad_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_pad *p = a->attr;
    td_shape y = a->in_desc[0]->shape;
    if (isnan(p->value))
        return TD_FAIL(TD_EINVAL, "the border's value is not a number");
    for (int i = 0; i < y.ndim; i++) {
        if (p->before[i] < 0 || p->after[i] < 0)
            return TD_FAIL(TD_EINVAL, "axis %d is padded with %lld before and %lld after", i,
                           (long long)p->before[i], (long long)p->after[i]);
        if (__builtin_add_overflow(y.dim[i], p->before[i], &y.dim[i]) ||
            __builtin_add_overflow(y.dim[i], p->after[i], &y.dim[i]))
            return TD_FAIL(TD_EINVAL, "axis %d becomes too long", i);
    }
    TD_TRY(td__need_valid_shape(&y));
    out[0] = td__desc(a->in_desc[0]->dtype, y);
    *n_out = 1;
    return TD_OK;
}

static void pad_ref(const td_op_args *a)
{
    const td_attr_pad *p = a->attr;
    const td_shape *x = &a->in_desc[0]->shape, *y = &a->out_desc[0].shape;
    td_dtype type = a->out_desc[0].dtype;
    size_t e = td__ref_size(type);
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0}, n = td__count(x), n_out = td__count(y);
    for (int64_t i = 0; i < n_out; i++)
        td__ref_set(type, a->out[0], i, p->value);
    td__strides(y, stride);
    int64_t first = td__offset(y->ndim, p->before, stride);
    for (int64_t i = 0; i < n; i++, td__next_index(x, index)) {
        size_t to = (size_t)(first + td__offset(x->ndim, index, stride));
        memcpy((char *)a->out[0] + to * e, (const char *)a->in[0] + (size_t)i * e, e);
    }
}

static void pad_grad(const td_grad_args *a)
{
    const td_attr_pad *p = a->y->attr;
    const td_shape *x = &a->y->in[0]->out[0].shape;
    if (!a->need[0])
        return;
    td_node *dx = a->dy[0];
    for (int i = 0; i < x->ndim; i++)
        if (p->before[i] || p->after[i])
            dx = td_slice(a->g, dx, i, p->before[i], p->before[i] + x->dim[i], 1);
    a->dx[0] = dx;
}

static const td_attr_pad NONE = {.value = 3}, ENDS = {.before = {2}, .after = {3}, .value = -1};
static const td_attr_pad SIDES = {.before = {0, 1}, .after = {2, 0}, .value = 0.5};
static const td_attr_pad IMAGE = {.before = {0, 0, 1, 2}, .after = {0, 0, 1, 1}};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &NONE},
    {.n_in = 1, .in = {TD_SAMPLE_F(7)}, .attr = &ENDS},
    {.n_in = 1, .in = {TD_SAMPLE_F(0)}, .attr = &ENDS},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &SIDES},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &SIDES},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &IMAGE},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I32, 7)}, .attr = &ENDS, .ilo = 0, .ihi = 99},
};

const td_op_def td__op_pad = {
    .name = "pad",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_pad),
    .infer = pad_infer,
    .ref = pad_ref,
    .grad = pad_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_pad(td_graph *g, td_node *x, const int64_t *before, const int64_t *after, double value)
{
    td_attr_pad attr;
    memset(&attr, 0, sizeof attr);
    attr.value = value;
    if (!before || !after)
        return td__graph_fail(g, TD_EINVAL, "td_pad", "no sizes of the border given");
    if (x)
        for (int i = 0; i < x->out[0].shape.ndim; i++) {
            attr.before[i] = before[i];
            attr.after[i] = after[i];
        }
    return TD__NODE(g, TD_OP_PAD, &attr, x);
}
