/* plan_channels.c -- batch norm and group norm (kernels/channels.cu, kernels/batch_norm.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/sums.h"
#include "base/check.h"
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
                           .beta = -1,
                           .more = -1,
                           .d_residual = -1};
    image_of(td__in_desc_of(n, 0), &a.x);
    return a;
}

/* ---- NHWC ------------------------------------------------------------------------------------ */

static bool in_lots(const td__channels_args *a, td_dtype t)
{
    return a->x.step[1] == 1 && a->x.dim[1] % td__cuda_lot(t) == 0 && a->x.dim[0] * a->x.dim[2] > 0;
}

static int64_t pixels(const td__channels_args *a)
{
    return a->x.dim[0] * a->x.dim[2] * a->x.dim[3];
}

/* Sums in two arrays of parts: they begin at 0 and at the answer, in scratch. */
static size_t split(td_kernel *k, td__channels_args *a, td_dtype t)
{
    int64_t lots = a->x.dim[1] / td__cuda_lot(t);
    a->lanes = lots < 32 && 32 % lots == 0 ? (int)lots : 32;
    a->splits = td__cuda_splits(pixels(a), a->x.dim[1]);
    if (a->splits == 256 && pixels(a) >= 512 * 64) /* few channels, many pixels */
        a->splits = 512;
    a->per_split = (pixels(a) + a->splits - 1) / a->splits;
    size_t part = td__align_up((size_t)(a->splits * a->x.dim[1]) * sizeof(float), 64);
    td__cuda_want_scratch(k, 2 * part);
    return part;
}

/* Threads that move by whole pixels from one lot of theirs to the next, and have several each: what
 * they know of their channels takes longer to load than a lot does. */
static td__cuda_grid grid_lots(const td__cuda *b, const td__channels_args *a, td_dtype t)
{
    int64_t channels = a->x.dim[1], block = (int64_t)TD__CUDA_THREADS * td__cuda_lot(t);
    int64_t need = pixels(a) * channels / block / 8,
            few = td__cuda_kind_of(b->base.device)->processors;
    need = need < few ? few : need > 8 * few ? 8 * few : need;
    td__cuda_grid g = td__cuda_grid_each(need);
    int64_t x = channels, y = block;
    while (y) { /* their common divisor */
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    unsigned each = (unsigned)(channels / x);
    g.x = g.x < each ? each : g.x / each * each;
    return g;
}

static td_status add_nhwc(td__cuda *b, td_kernel *k, td__channels_args *a, td_dtype t)
{
    size_t part = split(k, a, t);
    td__cuda_grid columns = td__cuda_grid_columns(a->x.dim[1], td__cuda_lot(t), a->splits);
    td__cuda_bind sums = {.in = {TD__IN(0)}, .out = {TD__SCRATCH(0), TD__SCRATCH(part)}};
    td__cuda_bind stats = {.in = {TD__SCRATCH(0), TD__SCRATCH(part), TD__IN(0)},
                           .out = {TD__OUT(1), TD__OUT(2), TD__OUT(3)}};
    td__cuda_bind apply = {.in = {TD__IN(0), TD__IN(1), TD__IN(2), TD__OUT(1), TD__OUT(2)},
                           .out = {TD__OUT(0)}};
    if (a->residual >= 0)
        apply.in[5] = TD__IN(a->residual);
    TD_TRY(td__cuda_add_bound(b, k, "nhwc_sums", t, columns, a, sizeof *a, &sums));
    TD_TRY(td__cuda_add_bound(b, k, "nhwc_stats", t, td__cuda_grid_each((a->x.dim[1] + 31) / 32), a,
                              sizeof *a, &stats));
    return td__cuda_add_bound(b, k, "nhwc_apply", t, grid_lots(b, a, t), a, sizeof *a, &apply);
}

/* "nhwc_" WHAT, the kernel for what tells where relu stopped, and for two that are added. */
static td_status add_back(td__cuda *b, td_kernel *k, const char *what, td__cuda_grid grid,
                          const td__channels_args *a, td_dtype t, const td__cuda_bind *bind)
{
    char name[32];
    snprintf(name, sizeof name, "nhwc_%s%s",
             a->beta >= 0   ? "beta_"
             : a->more >= 0 ? "more_"
                            : "",
             what);
    return td__cuda_add_bound(b, k, name, t, grid, a, sizeof *a, bind);
}

static td_status add_nhwc_back(td__cuda *b, td_kernel *k, td__channels_args *a, td_dtype t)
{
    size_t part = split(k, a, t);
    td__cuda_grid columns = td__cuda_grid_columns(a->x.dim[1], td__cuda_lot(t), a->splits);
    td__cuda_bind bind = {.in = {TD__IN(0), TD__IN(1), TD__IN(2), TD__IN(3), TD__IN(4)},
                          .out = {TD__SCRATCH(0), TD__SCRATCH(part)}};
    if (a->y >= 0 || a->beta >= 0)
        bind.in[5] = TD__IN(5);
    if (a->more >= 0)
        bind.in[6] = TD__IN(a->more);
    if (a->d_residual >= 0)
        bind.out[2] = TD__OUT(a->d_residual);
    TD_TRY(add_back(b, k, "back_sums", columns, a, t, &bind));
    td__cuda_at from[2] = {TD__SCRATCH(0), TD__SCRATCH(part)}, to[2] = {TD__OUT(2), TD__OUT(1)};
    TD_TRY(td__cuda_add_finish(b, k, from, 2, a->splits, a->x.dim[1], to, TD_F32));
    for (int i = 0; i < 3; i++)
        bind.out[i] = TD__OUT(i);
    if (a->d_residual >= 0) { /* the gradient before relu is there already */
        bind.in[0] = TD__OUT(a->d_residual);
        a->y = a->more = -1;
    }
    return add_back(b, k, "back", grid_lots(b, a, t), a, t, &bind);
}

td_status td__cuda_plan_batch_norm(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    const td_attr_norm *at = n->attr;
    td__channels_args a = args_of(n);
    unsigned f32 = at->has_running ? 0x1eu : 0x6u;
    (void)is_param;
    if (n->op == TD_OP_BATCH_NORM_BACK)
        f32 = at->by_beta ? 0x3cu : 0x1cu;
    if (n->op == TD_OP_BATCH_NORM_EVAL)
        f32 = 0x1eu;
    if (!takes(n, f32))
        return TD_ENOTSUP;
    if (n->op == TD_OP_BATCH_NORM_BACK) {
        a.y = a.relu && !at->by_beta ? 5 : -1;
        a.beta = at->by_beta ? 5 : -1;
        a.more = at->has_more ? n->n_in - 1 : -1;
        a.d_residual = at->has_residual ? 3 : -1;
    } else {
        a.residual = at->has_residual ? 5 : -1;
    }
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    if (n->op == TD_OP_BATCH_NORM && in_lots(&a, t))
        return add_nhwc(b, k, &a, t);
    if (n->op == TD_OP_BATCH_NORM_BACK && in_lots(&a, t) && n->out[1].dtype == TD_F32)
        return add_nhwc_back(b, k, &a, t);
    return td__cuda_add(b, k, td__op(n->op)->name, t, td__cuda_grid_each(a.x.dim[1]), &a, sizeof a);
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
