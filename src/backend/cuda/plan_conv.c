/* plan_conv.c -- convolutions: of images that lie as NHWC by cuDNN, others straight from the
 * definition (cudnn_conv.c, kernels/conv.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/fold.h"
#include "backend/cuda/kernels/conv.h"
#include "base/check.h"
#include "base/fail.h"

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

/* ---- By cuDNN -------------------------------------------------------------------------------- */

/* `there`: channels of the NHWC side. */
static td_status add_filter(td__cuda *b, td_kernel *k, const td_shape *w, bool to_nhwc,
                            int64_t there, td__cuda_at from, td_dtype in, td__cuda_at to,
                            td_dtype out)
{
    td__filter_args a = {.o = w->dim[0],
                         .c = w->dim[1],
                         .c_there = there,
                         .p = w->dim[2] * w->dim[3],
                         .to_nhwc = to_nhwc,
                         .in_dtype = (int)in,
                         .out_dtype = (int)out};
    return td__cuda_add_bound(b, k, "conv_filter", TD_DTYPE_COUNT,
                              td__cuda_grid_for(b, a.o * (to_nhwc ? there : a.c)), &a, sizeof a,
                              &(td__cuda_bind){.in = {from}, .out = {to}});
}

/* Weights as cuDNN takes them, of shape `there`: prepared once after each change where they are
 * params. */
static td_status add_weights(td__cuda *b, td_kernel *k, const td_shape *w, const td_shape *there,
                             const td__conv_fold *fold, bool is_param, td_dtype t, td__cuda_at *at,
                             size_t *scratch)
{
    size_t nbytes = td__align_up((size_t)td_shape_count(there) * td_dtype_size(t), 256);
    if (is_param) {
        *at = TD__PACKED(k->packed);
        k->packed += nbytes;
        k->packs |= 2u;
        if (!fold && there->dim[1] == w->dim[1])
            k->packing = t == TD_BF16 ? "bf16 nhwc" : "nhwc";
        td__cuda_preparing(k, true);
    } else {
        *at = TD__SCRATCH(*scratch);
        *scratch += nbytes;
        td__cuda_want_scratch(k, *scratch);
    }
    td_status st = fold ? td__conv_fold_filter(b, k, fold, false, TD__IN(1), *at)
                        : add_filter(b, k, w, true, there->dim[1], TD__IN(1), TD_F32, *at, t);
    if (is_param)
        td__cuda_preparing(k, false);
    return st;
}

/* Bias and activation, as a pass of its own. */
static td_status add_finish(td__cuda *b, const td_node *n, td_kernel *k)
{
    const td_attr_conv2d *at = n->attr;
    const td_shape *w = &td__in_desc_of(n, 1)->shape;
    if (!at->has_bias && at->act == TD_ACT_NONE)
        return TD_OK;
    td__conv_args a = args_of(n, td__in_desc_of(n, 0), w, &n->out[0]);
    td__cuda_at bias = at->has_bias ? TD__IN(2) : (td__cuda_at){0};
    return td__cuda_add_bound(b, k, "conv_finish", n->out[0].dtype, td__cuda_grid_for(b, a.n), &a,
                              sizeof a,
                              &(td__cuda_bind){.in = {TD__IN(0), bias}, .out = {TD__OUT(0)}});
}

/* Its kernels for bf16 want whole lots of channels: the few of a first layer become 8. */
static td_status add_wider(td__cuda *b, td_kernel *k, td__cudnn_conv *c, td_desc *x,
                           size_t *scratch)
{
    td__cuda_at from = c->at_x;
    int64_t lot = 8, *channels = &x->shape.dim[1];
    if (x->dtype != TD_BF16 || *channels % lot == 0 || c->at->groups != 1)
        return TD_OK;
    td__widen_args a = {.rows = x->shape.dim[0] * x->shape.dim[2] * x->shape.dim[3],
                        .c = *channels,
                        .c_out = (*channels + lot - 1) / lot * lot};
    *channels = c->w.dim[1] = a.c_out;
    c->at_x = TD__SCRATCH(*scratch);
    *scratch += td__align_up((size_t)(a.rows * a.c_out) * 2, 256);
    td__cuda_want_scratch(k, *scratch);
    return td__cuda_add_bound(b, k, "conv_widen", TD_DTYPE_COUNT,
                              td__cuda_grid_for(b, a.rows * a.c_out / lot), &a, sizeof a,
                              &(td__cuda_bind){.in = {from}, .out = {c->at_x}});
}

static td_status add_by_cudnn(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    bool back = n->op == TD_OP_CONV2D_BACK_DATA;
    const td_desc *in = td__in_desc_of(n, 0), *out = &n->out[0];
    const td_shape *w = &td__in_desc_of(n, 1)->shape;
    td_desc x = back ? *out : *in;
    size_t scratch = 0;
    td__cudnn_conv c = {.kind = back ? TD__DNN_CONV_DATA : TD__DNN_CONV,
                        .at = n->attr,
                        .x = &x,
                        .y = back ? in : out,
                        .w = *w,
                        .w_type = in->dtype,
                        .at_x = back ? TD__OUT(0) : TD__IN(0),
                        .at_y = back ? TD__IN(0) : TD__OUT(0)};
    if (in->layout != TD_LAYOUT_NHWC || in->dtype != out->dtype)
        return TD_ENOTSUP;
    td__conv_fold fold;
    bool folds = td__conv_folds(&c, &fold) && td__in_desc_of(n, 1)->dtype == TD_F32;
    if (folds)
        TD_TRY(td__conv_fold_image(b, k, &fold, &c, &x, &scratch));
    else if (!back)
        TD_TRY(add_wider(b, k, &c, &x, &scratch));
    TD_TRY(add_weights(b, k, w, &c.w, folds ? &fold : NULL, is_param[1], in->dtype, &c.at_w,
                       &scratch));
    TD_TRY(td__cudnn_add_conv(b, k, &c, scratch));
    return back ? TD_OK : add_finish(b, n, k);
}

static td_status add_weight_by_cudnn(td__cuda *b, const td_node *n, td_kernel *k)
{
    const td_desc *dy = td__in_desc_of(n, 0);
    const td_shape *w = &n->out[0].shape;
    td_desc x = *td__in_desc_of(n, 1);
    td__cudnn_conv c = {.kind = TD__DNN_CONV_WEIGHT,
                        .at = n->attr,
                        .x = &x,
                        .y = dy,
                        .w = *w,
                        .w_type = dy->dtype, /* as PyTorch's; in f32 cuDNN is six times slower */
                        .at_x = TD__IN(1),
                        .at_y = TD__IN(0)};
    size_t scratch = 0;
    if (dy->layout != TD_LAYOUT_NHWC || x.layout != TD_LAYOUT_NHWC)
        return TD_ENOTSUP;
    td__conv_fold fold;
    bool folds = n->out[0].dtype == TD_F32 && td__conv_folds(&c, &fold);
    TD_TRY(folds ? td__conv_fold_image(b, k, &fold, &c, &x, &scratch)
                 : add_wider(b, k, &c, &x, &scratch));
    c.at_w = TD__SCRATCH(scratch);
    scratch += td__align_up((size_t)td_shape_count(&c.w) * td_dtype_size(c.w_type), 256);
    td__cuda_want_scratch(k, scratch);
    TD_TRY(td__cudnn_add_conv(b, k, &c, scratch));
    if (folds)
        return td__conv_fold_filter(b, k, &fold, true, c.at_w, TD__OUT(0));
    return add_filter(b, k, w, false, c.w.dim[1], c.at_w, dy->dtype, TD__OUT(0), n->out[0].dtype);
}

/* ---- The operators --------------------------------------------------------------------------- */

td_status td__cuda_plan_conv(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    bool back = n->op == TD_OP_CONV2D_BACK_DATA;
    const td_desc *in = td__in_desc_of(n, 0), *out = &n->out[0];
    if (!takes(n, 6u))
        return TD_ENOTSUP;
    td_status st = add_by_cudnn(b, n, is_param, k);
    if (st != TD_ENOTSUP)
        return st;
    TD_TRY(td__cuda_begin_again(k));
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
    td_status st = add_weight_by_cudnn(b, n, k);
    if (st && st != TD_ENOTSUP)
        return st;
    if (st) {
        TD_TRY(td__cuda_begin_again(k));
        TD_TRY(td__cuda_add(b, k, "conv_back_weight", dy->dtype, td__cuda_grid_each(a.n), &a,
                            sizeof a));
    }
    if (n->n_out > 1)
        TD_TRY(td__cuda_add(b, k, "conv_back_bias", dy->dtype, td__cuda_grid_each(a.w[0]), &a,
                            sizeof a));
    return TD_OK;
}
