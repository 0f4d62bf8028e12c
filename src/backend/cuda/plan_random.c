/* plan_random.c -- dropout and rotary positions (kernels/random.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/random.h"

td_status td__cuda_plan_dropout(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_dropout *at = n->attr;
    const td_desc *x = td__in_desc_of(n, 0);
    double threshold = ceil(at->p * 4294967296.0);
    td__dropout_args a = {
        .n = td__desc_count(x), .stream = at->stream, .scale = (float)(1 / (1 - at->p))};
    (void)is_param;
    if (!td__cuda_takes(x->dtype) || x->layout != TD_LAYOUT_PLAIN || threshold > UINT32_MAX)
        return TD_ENOTSUP;
    a.threshold = (unsigned)threshold;
    return td__cuda_add(b, k, "dropout", x->dtype, td__cuda_grid_for(b, (a.n + 3) / 4), &a,
                        sizeof a);
}

td_status td__cuda_plan_rope(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_rope *at = n->attr;
    const td_desc *x = td__in_desc_of(n, 0);
    const int64_t *dim = x->shape.dim;
    td__rope_args a = {.n = td__desc_count(x) / 2,
                       .steps = dim[1],
                       .heads = dim[2],
                       .width = dim[3],
                       .base = at->base,
                       .first = at->first_position,
                       .inverse = at->inverse};
    (void)is_param;
    if (!td__cuda_takes(x->dtype))
        return TD_ENOTSUP;
    return td__cuda_add(b, k, "rope", x->dtype, td__cuda_grid_for(b, a.n), &a, sizeof a);
}
