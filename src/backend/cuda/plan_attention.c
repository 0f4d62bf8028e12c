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

/* Heads of q, k and v lie side by side in one tensor. */
static bool is_joined(const td_node *n)
{
    return n->op == TD_OP_ATTENTION_JOINED || n->op == TD_OP_ATTENTION_JOINED_BACK;
}

/* `first` is the index of q among the inputs, or of qkv, `mask` that of the mask. */
static td__attention_args args_of(const td_node *n, int first, int mask)
{
    const td_attr_attention *at = n->attr;
    const int64_t *q = td__in_desc_of(n, first)->shape.dim;
    td__attention_args a = {.b = q[0],
                            .t = q[1],
                            .causal = at->causal,
                            .mask = at->has_mask ? mask : -1,
                            .scale = (float)at->scale};
    if (is_joined(n)) {
        a.s = a.t;
        a.h = at->heads;
        a.hkv = at->kv_heads;
        a.q_step = a.kv_step = q[2];
        a.d = q[2] / (a.h + 2 * a.hkv);
        return a;
    }
    const int64_t *k = td__in_desc_of(n, first + 1)->shape.dim;
    a.h = q[2];
    a.d = q[3];
    a.s = k[1];
    a.hkv = k[2];
    a.q_step = a.h * a.d;
    a.kv_step = a.hkv * a.d;
    if (at->has_mask) {
        a.mask_step = td__in_desc_of(n, mask)->shape.ndim == 3 ? a.t * a.s : 0;
        a.mask_dtype = (int)td__in_desc_of(n, mask)->dtype;
    }
    return a;
}

static td__cuda_at behind(td__cuda_at at, int64_t elements, td_dtype t)
{
    at.offset += (size_t)elements * td_dtype_size(t);
    return at;
}

/* Where q, k, v or their gradients begin that lie in `at`. */
static void spread(const td__attention_args *a, td__cuda_at at, td_dtype t, td__cuda_at to[3])
{
    to[0] = at;
    to[1] = behind(at, a->h * a->d, t);
    to[2] = behind(at, (a->h + a->hkv) * a->d, t);
}

/* The operands as kernels have them; a mask is beside them. */
static td__cuda_bind bind_of(const td_node *n, const td__attention_args *a, bool back)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    td__cuda_bind b = {.in = {TD__IN(0), TD__IN(1), TD__IN(2)}, .out = {TD__OUT(0), TD__OUT(1)}};
    if (is_joined(n) && !back)
        spread(a, TD__IN(0), t, b.in);
    if (!back)
        return b;
    for (int i = 3; i < 6; i++)
        b.in[i] = TD__IN(i);
    b.out[2] = TD__OUT(2);
    if (!is_joined(n))
        return b;
    spread(a, TD__IN(1), t, &b.in[1]);
    b.in[4] = TD__IN(2);
    b.in[5] = TD__IN(3);
    spread(a, TD__OUT(0), t, b.out);
    return b;
}

/* On tensor cores (kernels/attention_tiles.cu). */
static bool takes_tiles(const td__attention_args *a, td_dtype t)
{
    return t == TD_BF16 && a->mask < 0 && (a->d == 32 || a->d == 64) && a->b * a->h <= 65535 &&
           a->scale > 0;
}

static td_status add(td__cuda *b, td_kernel *k, const td__attention_args *a, const char *name,
                     td_dtype t, td__cuda_grid g, const td__cuda_bind *bind)
{
    if (a->mask >= 0) /* one input more than a bind has */
        return td__cuda_add(b, k, name, t, g, a, sizeof *a);
    return td__cuda_add_bound(b, k, name, t, g, a, sizeof *a, bind);
}

static td_status add_tile(td__cuda *b, td_kernel *k, const td__attention_args *a, const char *name,
                          int64_t rows, int64_t tile, int64_t heads, const td__cuda_bind *bind)
{
    td__cuda_grid g = {.x = heads ? (unsigned)((rows + tile - 1) / tile) : 0,
                       .y = (unsigned)heads,
                       .threads = TILE_THREADS};
    return add(b, k, a, name, TD_DTYPE_COUNT, g, bind);
}

static td_status add_tiles(td__cuda *b, td_kernel *k, const td__attention_args *a, bool back,
                           const td__cuda_bind *bind)
{
    bool wide = a->d == 64;
    k->impl = "tiles";
    if (!back)
        return add_tile(b, k, a, wide ? "attention_tiles_64" : "attention_tiles_32", a->t,
                        QUERY_TILE, a->b * a->h, bind);
    TD_TRY(add_tile(b, k, a, wide ? "attention_tiles_q_64" : "attention_tiles_q_32", a->t,
                    QUERY_TILE, a->b * a->h, bind));
    return add_tile(b, k, a, wide ? "attention_tiles_kv_64" : "attention_tiles_kv_32", a->s,
                    KEY_TILE, a->b * a->hkv, bind);
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
    bool back = n->op == TD_OP_ATTENTION_BACK || n->op == TD_OP_ATTENTION_JOINED_BACK;
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    td__attention_args a = args_of(n, back ? 1 : 0, back ? 6 : 3);
    td__cuda_bind bind = bind_of(n, &a, back);
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
    td_status st = t == TD_BF16 ? td__cudnn_add_attention(b, k, &a, &bind, back) : TD_ENOTSUP;
    if (st != TD_ENOTSUP)
        return st;
    if (tiles)
        return add_tiles(b, k, &a, back, &bind);
    if (!back)
        return add(b, k, &a, "attention", t, grid, &bind);
    TD_TRY(add(b, k, &a, "attention_delta", t, td__cuda_grid_each((queries + WARPS - 1) / WARPS),
               &bind));
    TD_TRY(add(b, k, &a, "attention_back_q", t, grid, &bind));
    return add(b, k, &a, "attention_back_kv", t, kv, &bind);
}
