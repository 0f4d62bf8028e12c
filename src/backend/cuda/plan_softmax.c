/* plan_softmax.c -- softmax, cross entropy (kernels/softmax.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/xent.h"
#include "base/check.h"
#include "base/fail.h"

td_status td__cuda_plan_softmax(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_desc *x = td__in_desc_of(n, 0);
    int last = x->shape.ndim - 1;
    td__rows_args a = {.rows = td__cuda_extent(&x->shape, 0, last), .width = x->shape.dim[last]};
    (void)is_param;
    if (!td__cuda_takes(x->dtype))
        return TD_ENOTSUP;
    return td__cuda_add(b, k, td__op(n->op)->name, x->dtype,
                        td__cuda_grid_each(a.width ? a.rows : 0), &a, sizeof a);
}

td__xent_args td__cuda_xent_args(const td_attr_xent *at, int64_t rows, int64_t classes,
                                 td_dtype ids)
{
    td__xent_args a = {.rows = rows,
                       .classes = classes,
                       .ignore = at->ignore_index,
                       .use_ignore = at->use_ignore,
                       .smoothing = (float)at->smoothing};
    a.ids = (int)ids;
    return a;
}

/* Rows that blocks under way have read lie in the cache when they read them again, if shared memory
 * that nobody uses keeps blocks few: 50 MB hold three rows of a multiprocessor. */
static void few_at_once(const td__cuda *b, const td__xent_args *a, td_dtype t, td__cuda_grid *grid)
{
    enum { LONG = 32 << 10, HOPPER = 9, A_THIRD = 72 << 10 };
    if (a->classes * (int64_t)td_dtype_size(t) > LONG &&
        td__cuda_kind_of(b->base.device)->major >= HOPPER)
        grid->shared = A_THIRD;
}

td_status td__cuda_add_xent_both(td__cuda *b, td_kernel *k, const td__xent_args *a, td_dtype t,
                                 const td__cuda_bind *bind)
{
    td__cuda_grid each = td__cuda_grid_each(a->rows);
    few_at_once(b, a, t, &each);
    return td__cuda_add_bound(b, k, "xent_both", t, each, a, sizeof *a, bind);
}

td_status td__cuda_plan_xent(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    const td_shape *x = &td__in_desc_of(n, 0)->shape;
    td__xent_args a = td__cuda_xent_args(n->attr, td__cuda_extent(x, 0, x->ndim - 1),
                                         x->dim[x->ndim - 1], td__in_desc_of(n, 1)->dtype);
    (void)is_param;
    if (!td__cuda_takes(t))
        return TD_ENOTSUP;
    size_t count_at = td__align_up((size_t)(a.rows + 1) * sizeof(float), 64);
    td__cuda_want_scratch(k, count_at + sizeof(float));
    td__cuda_grid one = td__cuda_grid_each(1), each = td__cuda_grid_each(a.rows);
    if (n->op == TD_OP_XENT_BACK) {
        td__cuda_bind count = {.in = {{0}, TD__IN(1)}, .out = {{0}, TD__SCRATCH(0)}};
        TD_TRY(td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, one, &a, sizeof a, &count));
        return td__cuda_add(b, k, "xent_back", t, each, &a, sizeof a);
    }
    if (n->op == TD_OP_XENT_BOTH) {
        td__cuda_bind count = {.in = {{0}, TD__IN(1)}, .out = {{0}, TD__SCRATCH(count_at)}};
        td__cuda_bind both = {.in = {TD__IN(0), TD__IN(1), TD__IN(2), TD__SCRATCH(count_at)},
                              .out = {TD__OUT(0), TD__OUT(2), TD__SCRATCH(0)}};
        td__cuda_bind sum = {.in = {TD__SCRATCH(0), TD__IN(1)}, .out = {TD__OUT(1)}};
        TD_TRY(td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, one, &a, sizeof a, &count));
        TD_TRY(td__cuda_add_xent_both(b, k, &a, t, &both));
        return td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, one, &a, sizeof a, &sum);
    }
    td__cuda_bind rows = {.in = {TD__IN(0), TD__IN(1)}, .out = {TD__SCRATCH(0), TD__OUT(1)}};
    TD_TRY(td__cuda_add_bound(b, k, "xent_rows", t, each, &a, sizeof a, &rows));
    td__cuda_bind finish = {.in = {TD__SCRATCH(0), TD__IN(1)}, .out = {TD__OUT(0)}};
    return td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, one, &a, sizeof a, &finish);
}
