/* plan_norms.c -- layer norm and rms norm (kernels/norms.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/sums.h"
#include "base/check.h"
#include "base/fail.h"

static bool takes(const td_node *n)
{
    bool back = n->op == TD_OP_LAYER_NORM_BACK || n->op == TD_OP_RMS_NORM_BACK;
    if (!td__cuda_takes(td__in_desc_of(n, 0)->dtype))
        return false;
    for (int i = back ? 2 : 1; i < n->n_in && i < 5; i++) /* a residual has the type of dy */
        if (td__in_desc_of(n, i)->dtype != TD_F32)
            return false;
    return true;
}

enum { WARPS = TD__CUDA_THREADS / 32, MOST_PARTS = 256 };

/* Lots of a lane that hold a row, of those that there are kernels for; 0: rows that are too long,
 * or not made of whole lots. */
static int lots_of(const td__rows_args *a, td_dtype t)
{
    static const int KERNELS[] = {1, 3, 6};
    int64_t lot = td__cuda_lot(t);
    for (int i = 0; i < TD_LEN(KERNELS) && a->width > 0 && a->width % lot == 0; i++)
        if (a->width <= KERNELS[i] * 32 * lot)
            return KERNELS[i];
    return 0;
}

static td_status add_short(td__cuda *b, td_kernel *k, const char *what, int lots, td_dtype t,
                           int64_t blocks, const td__rows_args *a, const td__cuda_bind *bind)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%d", what, lots);
    return td__cuda_add_bound(b, k, name, t, td__cuda_grid_each(blocks), a, sizeof *a, bind);
}

static td_status add_forward(td__cuda *b, const td_node *n, const td__rows_args *a, td_kernel *k)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    int lots = lots_of(a, t);
    td__cuda_bind bind = {.in = {TD__IN(0), TD__IN(1), TD__IN(a->plain ? 1 : 2)},
                          .out = {TD__OUT(0), TD__OUT(1), TD__OUT(a->plain ? 1 : 2)}};
    if (lots)
        return add_short(b, k, "short_norm", lots, t, (a->rows + WARPS - 1) / WARPS, a, &bind);
    return td__cuda_add(b, k, "row_norm", t, td__cuda_grid_each(a->rows), a, sizeof *a);
}

static td_status add_back(td__cuda *b, const td_node *n, td__rows_args *a, td_kernel *k)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    int lots = lots_of(a, t), splits = td__cuda_splits(a->rows, a->width), rstd = a->plain ? 3 : 4;
    if (lots) /* a block for each part, at least a row for each warp of it */
        splits = (int)(a->rows / WARPS < MOST_PARTS ? a->rows / WARPS : MOST_PARTS);
    splits = splits > 0 ? splits : 1;
    size_t part = td__align_up((size_t)(splits * a->width) * sizeof(float), 64);
    a->per_split = (a->rows + splits - 1) / splits;
    td__cuda_want_scratch(k, 2 * part);
    if (lots) {
        td__cuda_bind bind = {.in = {TD__IN(0), TD__IN(1), TD__IN(2), TD__IN(3), TD__IN(rstd)},
                              .out = {TD__OUT(0), TD__SCRATCH(0), TD__SCRATCH(part)}};
        if (a->added)
            bind.in[5] = TD__IN(5);
        TD_TRY(add_short(b, k, a->added ? "short_norm_added" : "short_norm_back", lots, t, splits,
                         a, &bind));
    } else {
        td__cuda_bind bind = {.in = {TD__IN(0), TD__IN(1), TD__IN(3), TD__IN(rstd)},
                              .out = {TD__SCRATCH(0), TD__SCRATCH(part)}};
        TD_TRY(td__cuda_add_bound(b, k, "row_norm_columns", t,
                                  td__cuda_grid_columns(a->width, 0, splits), a, sizeof *a, &bind));
    }
    td__cuda_at from[2] = {TD__SCRATCH(0), TD__SCRATCH(part)}, to[2] = {TD__OUT(1), TD__OUT(2)};
    TD_TRY(
        td__cuda_add_finish(b, k, from, a->plain ? 1 : 2, splits, a->width, to, n->out[1].dtype));
    if (lots)
        return TD_OK;
    /* dx last: it may lie where dy does. */
    return td__cuda_add(b, k, "row_norm_back", t, td__cuda_grid_each(a->rows), a, sizeof *a);
}

td_status td__cuda_plan_row_norm(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_norm *at = n->attr;
    const td_shape *x = &td__in_desc_of(n, 0)->shape;
    td__rows_args a = {.rows = td__cuda_extent(x, 0, x->ndim - 1),
                       .width = x->dim[x->ndim - 1],
                       .eps = (float)at->eps,
                       .plain = n->op == TD_OP_RMS_NORM || n->op == TD_OP_RMS_NORM_BACK};
    (void)is_param;
    if (!takes(n))
        return TD_ENOTSUP;
    a.added = at->has_residual;
    if (n->op == TD_OP_LAYER_NORM_BACK || n->op == TD_OP_RMS_NORM_BACK)
        return add_back(b, n, &a, k);
    return add_forward(b, n, &a, k);
}
