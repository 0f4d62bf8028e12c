/* plan_channels.c -- batch norm and group norm (kernels/channels.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/channels.h"
#include "base/fail.h"

/* Any (N, C, ...) as an image: what is behind C is one row. */
static void image_of(const td_desc *d, td__image *out)
{
    td_desc as = *d;
    if (d->shape.ndim != 4) {
        as.shape.ndim = 4;
        as.shape.dim[3] = td__cuda_extent(&d->shape, 2, d->shape.ndim);
        as.shape.dim[2] = 1;
    }
    td__cuda_image_of(&as, out);
}

static bool takes(const td_node *n, unsigned f32)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    if (!td__cuda_takes(t))
        return false;
    for (int i = 1; i < n->n_in; i++)
        if (td__in_desc_of(n, i)->dtype != (f32 >> i & 1u ? TD_F32 : t))
            return false;
    return true;
}

static td__channels_args args_of(const td_node *n)
{
    const td_attr_norm *at = n->attr;
    td__channels_args a = {.eps = (float)at->eps,
                           .relu = at->act == TD_ACT_RELU,
                           .groups = at->groups,
                           .residual = -1,
                           .y = -1,
                           .d_residual = -1};
    image_of(td__in_desc_of(n, 0), &a.x);
    return a;
}

td_status td__cuda_plan_batch_norm(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    const td_attr_norm *at = n->attr;
    td__channels_args a = args_of(n);
    unsigned f32 = n->op == TD_OP_BATCH_NORM_BACK ? 0x1cu : at->has_running ? 0x1eu : 0x6u;
    (void)is_param;
    if (n->op == TD_OP_BATCH_NORM_EVAL)
        f32 = 0x1eu;
    if (!takes(n, f32))
        return TD_ENOTSUP;
    if (n->op == TD_OP_BATCH_NORM_BACK) {
        a.y = a.relu ? 5 : -1;
        a.d_residual = at->has_residual ? 3 : -1;
    } else {
        a.residual = at->has_residual ? 5 : -1;
    }
    return td__cuda_add(b, k, td__op(n->op)->name, td__in_desc_of(n, 0)->dtype,
                        td__cuda_grid_each(a.x.dim[1]), &a, sizeof a);
}

td_status td__cuda_plan_group_norm(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    td__channels_args a = args_of(n);
    bool back = n->op == TD_OP_GROUP_NORM_BACK;
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    (void)is_param;
    if (!takes(n, back ? 0x1cu : 0x6u))
        return TD_ENOTSUP;
    if (back)
        TD_TRY(
            td__cuda_add(b, k, "group_norm_sums", t, td__cuda_grid_each(a.x.dim[1]), &a, sizeof a));
    return td__cuda_add(b, k, td__op(n->op)->name, t, td__cuda_grid_each(a.x.dim[0] * a.groups), &a,
                        sizeof a);
}
