/* op_expand.c -- x broadcast to a shape, by copying.
 *
 *    dx = dy summed over the axes along which x was repeated */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status expand_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *from = &a->in_desc[0]->shape, *to = &((const td_attr_shape *)a->attr)->shape;
    td_shape both;
    TD_TRY(td__need_valid_shape(to));
    TD_TRY(td__broadcast(from, to, &both));
    if (!td_shape_equal(&both, to)) {
        char x[128], y[128];
        return TD_FAIL(TD_EINVAL, "shape %s does not expand to %s",
                       td_shape_text(from, x, sizeof x), td_shape_text(to, y, sizeof y));
    }
    out[0] = td__desc(a->in_desc[0]->dtype, *to);
    *n_out = 1;
    return TD_OK;
}

static void expand_ref(const td_op_args *a)
{
    const td_shape *y = &a->out_desc[0].shape;
    size_t e = td__ref_size(a->out_desc[0].dtype);
    const char *from = a->in[0];
    char *to = a->out[0];
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0}, n = td__count(y);
    td__broadcast_strides(&a->in_desc[0]->shape, y, stride);
    for (int64_t i = 0; i < n; i++, td__next_index(y, index))
        memcpy(to + (size_t)i * e, from + (size_t)td__offset(y->ndim, index, stride) * e, e);
}

static void expand_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = td__sum_to(a->g, a->dy[0], a->y->in[0]);
}

static const td_attr_shape SCALAR = {.shape = {.ndim = 0}}, ROWS = {.shape = TD__DIMS(5, 7)};
static const td_attr_shape EMPTY = {.shape = TD__DIMS(0, 7)}, CUBE = {.shape = TD__DIMS(7, 33, 65)};
static const td_attr_shape IMAGE = {.shape = TD__DIMS(2, 3, 5, 4)};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &SCALAR},
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &ROWS},
    {.n_in = 1, .in = {TD_SAMPLE_F(7)}, .attr = &ROWS},
    {.n_in = 1, .in = {TD_SAMPLE_F(5, 1)}, .attr = &ROWS},
    {.n_in = 1, .in = {TD_SAMPLE_F(5, 7)}, .attr = &ROWS},
    {.n_in = 1, .in = {TD_SAMPLE_F(1, 7)}, .attr = &EMPTY},
    {.n_in = 1, .in = {TD_SAMPLE_F(1, 3, 1, 1)}, .attr = &IMAGE},
    {.n_in = 1, .in = {TD_SAMPLE_F(33, 1)}, .attr = &CUBE},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I32, 7)}, .attr = &ROWS, .ilo = 0, .ihi = 99},
};

const td_op_def td__op_expand = {
    .name = "expand",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_shape),
    .infer = expand_infer,
    .ref = expand_ref,
    .grad = expand_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_expand(td_graph *g, td_node *x, td_shape shape)
{
    td_attr_shape attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.ndim = shape.ndim;
    for (int i = 0; i < shape.ndim && i < TD_MAX_DIMS; i++)
        attr.shape.dim[i] = shape.dim[i];
    return TD__NODE(g, TD_OP_EXPAND, &attr, x);
}
