/* plan_norms.c -- layer norm and rms norm (kernels/norms.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/sums.h"
#include "base/check.h"
#include "base/fail.h"

static bool takes(const td_node *n)
{
    bool back = n->op == TD_OP_LAYER_NORM_BACK || n->op == TD_OP_RMS_NORM_BACK;
    if (!td__cuda_takes(td__in_desc_of(n, 0)->dtype))
        return false;
    for (int i = back ? 2 : 1; i < n->n_in; i++)
        if (td__in_desc_of(n, i)->dtype != TD_F32)
            return false;
    return true;
}

enum { SHORT = 4096, WARPS = TD__CUDA_THREADS / 32 };

/* Rows that one warp does, sixteen bytes at a time. */
static bool is_short(const td__rows_args *a, td_dtype t)
{
    return a->width <= SHORT && a->width > 0 && a->width * (int64_t)td_dtype_size(t) % 16 == 0;
}

static td_status add_rows(td__cuda *b, td_kernel *k, const td__rows_args *a, td_dtype t, bool back)
{
    if (is_short(a, t))
        return td__cuda_add(b, k, back ? "short_norm_back" : "short_norm", t,
                            td__cuda_grid_each((a->rows + WARPS - 1) / WARPS), a, sizeof *a);
    return td__cuda_add(b, k, back ? "row_norm_back" : "row_norm", t, td__cuda_grid_each(a->rows),
                        a, sizeof *a);
}

static td_status add_back(td__cuda *b, const td_node *n, td__rows_args *a, td_kernel *k)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    int splits = td__cuda_splits(a->rows, a->width);
    size_t part = td__align_up((size_t)(splits * a->width) * sizeof(float), 64);
    td__cuda_grid grid = {.x = (unsigned)((a->width + TD__CUDA_THREADS - 1) / TD__CUDA_THREADS),
                          .y = (unsigned)splits,
                          .threads = TD__CUDA_THREADS};
    td__cuda_bind bind = {.in = {TD__IN(0), TD__IN(1), TD__IN(3), TD__IN(a->plain ? 3 : 4)},
                          .out = {TD__SCRATCH(0), TD__SCRATCH(part)}};
    a->per_split = (a->rows + splits - 1) / splits;
    td__cuda_want_scratch(k, 2 * part);
    TD_TRY(td__cuda_add_bound(b, k, "row_norm_columns", t, grid, a, sizeof *a, &bind));
    TD_TRY(td__cuda_add_finish(b, k, TD__SCRATCH(0), splits, a->width, TD__OUT(1), n->out[1].dtype,
                               1));
    if (!a->plain)
        TD_TRY(td__cuda_add_finish(b, k, TD__SCRATCH(part), splits, a->width, TD__OUT(2),
                                   n->out[2].dtype, 1));
    /* dx last: it may lie where dy does. */
    return add_rows(b, k, a, t, true);
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
    if (n->op == TD_OP_LAYER_NORM_BACK || n->op == TD_OP_RMS_NORM_BACK)
        return add_back(b, n, &a, k);
    return add_rows(b, k, &a, td__in_desc_of(n, 0)->dtype, false);
}
