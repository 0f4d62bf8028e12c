/* plan_attention.c -- attention: by cuDNN, on tensor cores by our own kernels, or straight from its
 * definition (cudnn_attention.c, kernels/attention_tiles.cu, kernels/attention.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn.h"
#include "backend/cuda/kernels/attention.h"
#include "base/check.h"
#include "base/fail.h"

enum {
    MOST_SHARED = 48 << 10, /* bytes that every GPU gives a block */
    WARPS = TD__CUDA_THREADS / 32,
    QUERY_TILE = 128, /* queries and keys of a block of kernels/attention_tiles.cu */
    KEY_TILE = 64,
    TILE_THREADS = 128
};

/* `first` is the index of q among the inputs, `mask` that of the mask. */
static td__attention_args args_of(const td_node *n, int first, int mask)
{
    const td_attr_attention *at = n->attr;
    const int64_t *q = td__in_desc_of(n, first)->shape.dim;
    const int64_t *k = td__in_desc_of(n, first + 1)->shape.dim;
    td__attention_args a = {.b = q[0],
                            .t = q[1],
                            .h = q[2],
                            .d = q[3],
                            .s = k[1],
                            .hkv = k[2],
                            .causal = at->causal,
                            .mask = at->has_mask ? mask : -1,
                            .scale = (float)at->scale};
    if (at->has_mask) {
        a.mask_step = td__in_desc_of(n, mask)->shape.ndim == 3 ? a.t * a.s : 0;
        a.mask_dtype = (int)td__in_desc_of(n, mask)->dtype;
    }
    return a;
}

/* On tensor cores (kernels/attention_tiles.cu). */
static bool takes_tiles(const td__attention_args *a, td_dtype t)
{
    return t == TD_BF16 && a->mask < 0 && (a->d == 32 || a->d == 64) && a->b * a->h <= 65535 &&
           a->scale > 0;
}

static td_status add_tile(td__cuda *b, td_kernel *k, const td__attention_args *a, const char *name,
                          int64_t rows, int64_t tile, int64_t heads)
{
    td__cuda_grid g = {.x = heads ? (unsigned)((rows + tile - 1) / tile) : 0,
                       .y = (unsigned)heads,
                       .threads = TILE_THREADS};
    return td__cuda_add(b, k, name, TD_DTYPE_COUNT, g, a, sizeof *a);
}

static td_status add_tiles(td__cuda *b, td_kernel *k, const td__attention_args *a, bool back)
{
    bool wide = a->d == 64;
    k->impl = "tiles";
    if (!back)
        return add_tile(b, k, a, wide ? "attention_tiles_64" : "attention_tiles_32", a->t,
                        QUERY_TILE, a->b * a->h);
    TD_TRY(add_tile(b, k, a, wide ? "attention_tiles_q_64" : "attention_tiles_q_32", a->t,
                    QUERY_TILE, a->b * a->h));
    return add_tile(b, k, a, wide ? "attention_tiles_kv_64" : "attention_tiles_kv_32", a->s,
                    KEY_TILE, a->b * a->hkv);
}

/* Floats of an array in shared memory: loops over it are unrolled to loads of 16 bytes, which reach
 * past its end but not into the next one. */
static int64_t padded(int64_t floats)
{
    return (int64_t)td__align_up((size_t)floats, 4);
}

static unsigned shared_bytes(int64_t floats)
{
    return (unsigned)(td__align_up((size_t)floats, 4) + 4) * (unsigned)sizeof(float);
}

td_status td__cuda_plan_attention(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    bool back = n->op == TD_OP_ATTENTION_BACK;
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    td__attention_args a = args_of(n, back ? 1 : 0, back ? 6 : 3);
    int64_t queries = a.b * a.h * a.t, keys = a.b * a.hkv * a.s;
    td__cuda_grid grid = td__cuda_grid_each(queries);
    grid.shared = shared_bytes(2 * padded(a.d) + a.s);
    td__cuda_grid kv = td__cuda_grid_each(keys);
    kv.shared = shared_bytes(4 * padded(a.d) + padded(a.t) + a.t);
    (void)is_param;
    bool tiles = takes_tiles(&a, t);
    if (!td__cuda_takes(t) || (a.mask >= 0 && !td__cuda_takes((td_dtype)a.mask_dtype)) ||
        (!tiles && (grid.shared > MOST_SHARED || kv.shared > MOST_SHARED)))
        return TD_ENOTSUP;
    size_t delta = (size_t)(queries + 1) * sizeof(float);
    if (back)
        td__cuda_want_scratch(k, delta);
    td_status st = t == TD_BF16 ? td__cudnn_add_attention(b, k, &a, back) : TD_ENOTSUP;
    if (st != TD_ENOTSUP)
        return st;
    if (back && !tiles) {
        TD_TRY(td__cuda_add(b, k, "attention_delta", t,
                            td__cuda_grid_each((queries + WARPS - 1) / WARPS), &a, sizeof a));
    }
    if (tiles)
        return add_tiles(b, k, &a, back);
    if (!back)
        return td__cuda_add(b, k, "attention", t, grid, &a, sizeof a);
    TD_TRY(td__cuda_add(b, k, "attention_back_q", t, grid, &a, sizeof a));
    return td__cuda_add(b, k, "attention_back_kv", t, kv, &a, sizeof a);
}
