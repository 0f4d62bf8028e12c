/* plan_metrics.c -- accuracy and top-k (kernels/metrics.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/metrics.h"
#include "base/fail.h"

static td__metric_args args_of(const td_node *n)
{
    const td_shape *x = &td__in_desc_of(n, 0)->shape;
    return (td__metric_args){.rows = td__cuda_extent(x, 0, x->ndim - 1),
                             .width = x->dim[x->ndim - 1]};
}

td_status td__cuda_plan_accuracy(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    td__metric_args a = args_of(n);
    (void)is_param;
    if (!td__cuda_takes(t) || n->out[0].dtype != TD_F32)
        return TD_ENOTSUP;
    const td_attr_accuracy *at = n->attr;
    a.k = at->k;
    a.use_ignore = at->use_ignore;
    a.ignore = at->ignore;
    a.ids = (int)td__in_desc_of(n, 1)->dtype;
    td__cuda_want_scratch(k, (size_t)(a.rows + 1) * sizeof(float));
    TD_TRY(td__cuda_add_bound(
        b, k, "hits", t, td__cuda_grid_each(a.rows), &a, sizeof a,
        &(td__cuda_bind){.in = {TD__IN(0), TD__IN(1)}, .out = {TD__SCRATCH(0)}}));
    return td__cuda_add_bound(
        b, k, "hits_mean", TD_DTYPE_COUNT, td__cuda_grid_each(1), &a, sizeof a,
        &(td__cuda_bind){.in = {TD__SCRATCH(0), TD__IN(1)}, .out = {TD__OUT(0)}});
}

td_status td__cuda_plan_top_k(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    td__metric_args a = args_of(n);
    a.k = ((const td_attr_topk *)n->attr)->k;
    (void)is_param;
    if (!td__cuda_takes(t))
        return TD_ENOTSUP;
    return td__cuda_add(b, k, "top_k", t, td__cuda_grid_for(b, a.rows), &a, sizeof a);
}
