/* plan_pool.c -- pools (kernels/pool.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/cuda/kernels/pool.h"
#include "backend/cuda/sums.h"

/* Images whose channels lie side by side in whole lots. */
static bool in_lots(const td_node *n, const td__pool_args *a, td_dtype t)
{
    bool has = n->op == TD_OP_MAX_POOL2D || n->op == TD_OP_MAX_POOL2D_BACK ||
               n->op == TD_OP_GLOBAL_AVG_POOL;
    return has && a->x.step[1] == 1 && a->x.dim[1] % td__cuda_lot(t) == 0 && a->n < INT32_MAX &&
           (a->y.step[1] == 1 || n->op == TD_OP_GLOBAL_AVG_POOL);
}

td_status td__cuda_plan_pool(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    static const char *const NAMES[TD_OP_COUNT] = {
        [TD_OP_MAX_POOL2D] = "max_pool",         [TD_OP_MAX_POOL2D_BACK] = "max_pool_back",
        [TD_OP_AVG_POOL2D] = "avg_pool",         [TD_OP_AVG_POOL2D_BACK] = "avg_pool_back",
        [TD_OP_GLOBAL_AVG_POOL] = "global_pool", [TD_OP_GLOBAL_AVG_POOL_BACK] = "global_pool_back",
    };
    const td_attr_pool2d *at = n->attr;
    bool back = n->op == TD_OP_MAX_POOL2D_BACK || n->op == TD_OP_AVG_POOL2D_BACK ||
                n->op == TD_OP_GLOBAL_AVG_POOL_BACK;
    const td_desc *in = td__in_desc_of(n, 0), *out = &n->out[0];
    td__pool_args a = {.n = td__desc_count(out)};
    (void)is_param;
    if (!td__cuda_takes(in->dtype))
        return TD_ENOTSUP;
    td__cuda_image_of(back ? out : in, &a.x);
    td__cuda_image_of(back ? in : out, &a.y);
    for (int i = 0; at && i < 2; i++) {
        a.size[i] = at->size[i];
        a.stride[i] = at->stride[i];
        a.pad[i] = at->pad[i];
    }
    if (in_lots(n, &a, in->dtype)) {
        char name[64];
        snprintf(name, sizeof name, "%s_lots", NAMES[n->op]);
        a.n /= td__cuda_lot(in->dtype);
        return td__cuda_add(b, k, name, in->dtype, td__cuda_grid_for(b, a.n), &a, sizeof a);
    }
    return td__cuda_add(b, k, NAMES[n->op], in->dtype,
                        n->op == TD_OP_GLOBAL_AVG_POOL ? td__cuda_grid_each(a.n)
                                                       : td__cuda_grid_for(b, a.n),
                        &a, sizeof a);
}
