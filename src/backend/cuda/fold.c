/* fold.c -- see fold.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/fold.h"

#include "base/check.h"
#include "base/fail.h"

bool td__conv_folds(const td__cudnn_conv *c, td__conv_fold *out)
{
    enum { FEW = 4, LOT = 8 };
    const td_attr_conv2d *at = c->at;
    const int64_t *x = c->x->shape.dim, *y = c->y->shape.dim, *w = c->w.dim;
    if (c->x->dtype != TD_BF16 || c->kind == TD__DNN_CONV_DATA || at->groups != 1 || x[1] > FEW)
        return false;
    *out =
        (td__conv_fold){.at = *at, .args = {.n = x[0], .c = x[1], .h = x[2], .w = x[3], .o = w[0]}};
    td__fold_args *a = &out->args;
    a->c2 = (int64_t)td__align_up((size_t)(4 * x[1]), LOT);
    for (int i = 0; i < 2; i++) {
        if (at->stride[i] != 2 || at->dilation[i] != 1)
            return false;
        a->pad[i] = (int)td__align_up((size_t)at->pad[i], 2);
        a->shift[i] = a->pad[i] - at->pad[i];
        a->k[i] = w[2 + i];
        a->folded[i] = (w[2 + i] + a->shift[i] + 1) / 2;
        out->at.stride[i] = 1;
        out->at.pad[i] = 0;
    }
    a->h2 = y[2] + a->folded[0] - 1;
    a->w2 = y[3] + a->folded[1] - 1;
    return true;
}

td_status td__conv_fold_image(td__cuda *b, td_kernel *k, const td__conv_fold *f, td__cudnn_conv *c,
                              td_desc *x, size_t *scratch)
{
    const td__fold_args *a = &f->args;
    int64_t count = a->n * a->h2 * a->w2 * a->c2;
    td__cuda_at from = c->at_x;
    c->at = &f->at;
    c->at_x = TD__SCRATCH(*scratch);
    c->w.dim[1] = x->shape.dim[1] = a->c2;
    c->w.dim[2] = a->folded[0];
    c->w.dim[3] = a->folded[1];
    x->shape.dim[2] = a->h2;
    x->shape.dim[3] = a->w2;
    *scratch += td__align_up((size_t)count * 2, 256);
    td__cuda_want_scratch(k, *scratch);
    return td__cuda_add_bound(b, k, "conv_fold", TD_DTYPE_COUNT, td__cuda_grid_for(b, count / 8), a,
                              sizeof *a, &(td__cuda_bind){.in = {from}, .out = {c->at_x}});
}

td_status td__conv_fold_filter(td__cuda *b, td_kernel *k, const td__conv_fold *f, bool back,
                               td__cuda_at from, td__cuda_at to)
{
    const td__fold_args *a = &f->args;
    int64_t count =
        back ? a->o * a->c * a->k[0] * a->k[1] : a->o * a->c2 * a->folded[0] * a->folded[1];
    return td__cuda_add_bound(b, k, back ? "conv_unfold_filter" : "conv_fold_filter",
                              TD_DTYPE_COUNT, td__cuda_grid_for(b, count), a, sizeof *a,
                              &(td__cuda_bind){.in = {from}, .out = {to}});
}
