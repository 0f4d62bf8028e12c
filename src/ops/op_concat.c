/* op_concat.c -- tensors one after another along an axis.
 *
 *    dx of each input is its slice of dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status concat_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    int axis = ((const td_attr_axis *)a->attr)->axis;
    TD_TRY(td__need_axis(a, 0, axis));
    td_shape y = a->in_desc[0]->shape;
    for (int i = 1; i < a->n_in; i++) {
        const td_shape *x = &a->in_desc[i]->shape;
        TD_TRY(td__need_same_dtype(a, 0, i));
        TD_TRY(td__need_ndim(a, i, y.ndim));
        for (int k = 0; k < y.ndim; k++)
            if (k != axis && x->dim[k] != y.dim[k])
                return TD_FAIL(TD_EINVAL, "input %d has size %lld in axis %d, input 0 has %lld", i,
                               (long long)x->dim[k], k, (long long)y.dim[k]);
        if (__builtin_add_overflow(y.dim[axis], x->dim[axis], &y.dim[axis]))
            return TD_FAIL(TD_EINVAL, "axis %d becomes too long", axis);
    }
    TD_TRY(td__need_valid_shape(&y));
    out[0] = td__desc(a->in_desc[0]->dtype, y);
    *n_out = 1;
    return TD_OK;
}

static void concat_ref(const td_op_args *a)
{
    int axis = ((const td_attr_axis *)a->attr)->axis;
    const td_shape *y = &a->out_desc[0].shape;
    int64_t outer = td__count_range(y, 0, axis), inner = td__count_range(y, axis + 1, y->ndim);
    size_t e = (size_t)inner * td__ref_size(a->out_desc[0].dtype);
    char *to = a->out[0];
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < a->n_in; i++) {
            size_t row = (size_t)a->in_desc[i]->shape.dim[axis] * e;
            memcpy(to, (const char *)a->in[i] + (size_t)o * row, row);
            to += row;
        }
}

static void concat_grad(const td_grad_args *a)
{
    int axis = ((const td_attr_axis *)a->y->attr)->axis;
    int64_t at = 0;
    for (int i = 0; i < a->y->n_in; i++) {
        int64_t size = a->y->in[i]->out[0].shape.dim[axis];
        if (a->need[i])
            a->dx[i] = td_slice(a->g, a->dy[0], axis, at, at + size, 1);
        at += size;
    }
}

static const td_attr_axis FIRST = {.axis = 0}, SECOND = {.axis = 1}, THIRD = {.axis = 2};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(7)}, .attr = &FIRST},
    {.n_in = 2, .in = {TD_SAMPLE_F(3, 5), TD_SAMPLE_F(4, 5)}, .attr = &FIRST},
    {.n_in = 3, .in = {TD_SAMPLE_F(3, 1), TD_SAMPLE_F(3, 7), TD_SAMPLE_F(3, 2)}, .attr = &SECOND},
    {.n_in = 3, .in = {TD_SAMPLE_F(3, 0), TD_SAMPLE_F(3, 7), TD_SAMPLE_F(3, 0)}, .attr = &SECOND},
    {.n_in = 2, .in = {TD_SAMPLE_F(0, 2), TD_SAMPLE_F(0, 3)}, .attr = &SECOND},
    {.n_in = 2, .in = {TD_SAMPLE_F(2, 3, 5, 4), TD_SAMPLE_F(2, 2, 5, 4)}, .attr = &SECOND},
    {.n_in = 2, .in = {TD_SAMPLE_F(7, 33, 65), TD_SAMPLE_F(7, 33, 3)}, .attr = &THIRD},
    {.n_in = 2, .in = {TD_SAMPLE_D(TD_I32, 3), TD_SAMPLE_D(TD_I32, 4)}, .attr = &FIRST, .ihi = 99},
};

const td_op_def td__op_concat = {
    .name = "concat",
    .n_in_min = 1,
    .n_in_max = TD_MAX_IN,
    .attr_size = sizeof(td_attr_axis),
    .infer = concat_infer,
    .ref = concat_ref,
    .grad = concat_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_concat(td_graph *g, td_node *const *xs, int n, int axis)
{
    td_attr_axis attr;
    memset(&attr, 0, sizeof attr);
    if (n < 1 || !xs)
        return td__graph_fail(g, TD_EINVAL, "td_concat", "%d inputs: at least 1 is needed", n);
    if (xs[0] && !td__norm_axis(g, "td_concat", xs[0], axis, &attr.axis))
        return NULL;
    /* Nodes have at most TD_MAX_IN inputs: join in rounds of that many. */
    td_node *part[TD_MAX_IN], *joined = xs[0];
    int used = 1;
    do {
        int k = 0;
        part[k++] = joined;
        while (used < n && k < TD_MAX_IN)
            part[k++] = xs[used++];
        joined = td__node(g, TD_OP_CONCAT, &attr, part, k);
    } while (joined && used < n);
    return joined;
}
