/* op_permute.c -- axes in another order: axis i of y is axis axes[i] of x.
 *
 *    dx = dy permuted by the inverse order */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status permute_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *x = &a->in_desc[0]->shape;
    const int *axes = ((const td_attr_permute *)a->attr)->axes;
    td_shape y = {.ndim = x->ndim};
    unsigned seen = 0;
    for (int i = 0; i < x->ndim; i++) {
        TD_TRY(td__need_axis(a, 0, axes[i]));
        if (seen >> axes[i] & 1u)
            return TD_FAIL(TD_EINVAL, "axis %d is given twice", axes[i]);
        seen |= 1u << axes[i];
        y.dim[i] = x->dim[axes[i]];
    }
    out[0] = td__desc(a->in_desc[0]->dtype, y);
    *n_out = 1;
    return TD_OK;
}

static void permute_ref(const td_op_args *a)
{
    const td_shape *y = &a->out_desc[0].shape;
    const int *axes = ((const td_attr_permute *)a->attr)->axes;
    size_t e = td__ref_size(a->out_desc[0].dtype);
    const char *from = a->in[0];
    char *to = a->out[0];
    int64_t own[TD_MAX_DIMS], stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0}, n = td__count(y);
    td__strides(&a->in_desc[0]->shape, own);
    for (int i = 0; i < y->ndim; i++)
        stride[i] = own[axes[i]];
    for (int64_t i = 0; i < n; i++, td__next_index(y, index))
        memcpy(to + (size_t)i * e, from + (size_t)td__offset(y->ndim, index, stride) * e, e);
}

static void permute_grad(const td_grad_args *a)
{
    const int *axes = ((const td_attr_permute *)a->y->attr)->axes;
    int inverse[TD_MAX_DIMS] = {0};
    if (!a->need[0])
        return;
    for (int i = 0; i < a->y->out[0].shape.ndim; i++)
        inverse[axes[i]] = i;
    a->dx[0] = td_permute(a->g, a->dy[0], inverse);
}

static const td_attr_permute SWAP = {{1, 0}}, SAME = {{0, 1, 2}}, TURN = {{2, 0, 1}};
static const td_attr_permute HEADS = {{0, 2, 1, 3}}, LAST = {{0, 2, 3, 1}};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &SAME},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &SWAP},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 5, 4)}, .attr = &SAME},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 5, 4)}, .attr = &TURN},
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .attr = &TURN},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &HEADS},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &LAST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &TURN},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I32, 7, 13)}, .attr = &SWAP, .ilo = 0, .ihi = 99},
};

const td_op_def td__op_permute = {
    .name = "permute",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_permute),
    .infer = permute_infer,
    .ref = permute_ref,
    .grad = permute_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_permute(td_graph *g, td_node *x, const int *axes)
{
    td_attr_permute attr;
    memset(&attr, 0, sizeof attr);
    if (!axes)
        return td__graph_fail(g, TD_EINVAL, "td_permute", "no axes given");
    if (x)
        for (int i = 0; i < x->out[0].shape.ndim; i++)
            if (!td__norm_axis(g, "td_permute", x, axes[i], &attr.axes[i]))
                return NULL;
    return TD__NODE(g, TD_OP_PERMUTE, &attr, x);
}
