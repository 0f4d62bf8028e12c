/* plan_conv.c -- convolutions (kernels/conv.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/conv.h"
#include "base/fail.h"

enum { FEW_PIXELS = 8192 };

static td__conv_args args_of(const td_node *n, const td_desc *x, const td_shape *w,
                             const td_desc *y)
{
    const td_attr_conv2d *at = n->attr;
    td__conv_args a = {.groups = at->groups,
                       .has_bias = at->has_bias,
                       .relu = at->act == TD_ACT_RELU,
                       .n = td__desc_count(&n->out[0])};
    td__cuda_image_of(x, &a.x);
    td__cuda_image_of(y, &a.y);
    a.out_dtype = (int)n->out[0].dtype;
    for (int i = 0; i < 4; i++)
        a.w[i] = w->dim[i];
    for (int i = 0; i < 2; i++) {
        a.stride[i] = at->stride[i];
        a.pad[i] = at->pad[i];
        a.dilation[i] = at->dilation[i];
    }
    return a;
}

static bool takes(const td_node *n, unsigned f32)
{
    for (int i = 0; i < n->n_in; i++) {
        td_dtype t = td__in_desc_of(n, i)->dtype;
        if (!td__cuda_takes(t) || (f32 >> i & 1u && t != TD_F32))
            return false;
    }
    for (int i = 0; i < n->n_out; i++)
        if (!td__cuda_takes(n->out[i].dtype))
            return false;
    return true;
}

td_status td__cuda_plan_conv(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    bool back = n->op == TD_OP_CONV2D_BACK_DATA;
    const td_desc *in = td__in_desc_of(n, 0), *out = &n->out[0];
    (void)is_param;
    if (!takes(n, 6u))
        return TD_ENOTSUP;
    td__conv_args a = args_of(n, back ? out : in, &td__in_desc_of(n, 1)->shape, back ? in : out);
    return td__cuda_add(b, k, back ? "conv_back_data" : "conv", in->dtype,
                        td__cuda_grid_for(b, a.n), &a, sizeof a);
}

td_status td__cuda_plan_conv_weight(td__cuda *b, const td_node *n, const bool *is_param,
                                    td_kernel *k)
{
    const td_desc *dy = td__in_desc_of(n, 0), *x = td__in_desc_of(n, 1);
    td__conv_args a = args_of(n, x, &n->out[0].shape, dy);
    (void)is_param;
    if (!takes(n, 0) || dy->dtype != x->dtype)
        return TD_ENOTSUP;
    TD_TRY(
        td__cuda_add(b, k, "conv_back_weight", dy->dtype, td__cuda_grid_each(a.n), &a, sizeof a));
    if (n->n_out > 1)
        TD_TRY(td__cuda_add(b, k, "conv_back_bias", dy->dtype, td__cuda_grid_each(a.w[0]), &a,
                            sizeof a));
    return TD_OK;
}
