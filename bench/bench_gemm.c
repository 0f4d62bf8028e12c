/* bench_gemm.c -- the matrix products of a linear layer, ours against oneDNN's matmul primitive, one
 * thread: forward Y (M, N) = X (M, K) W (N, K)^T, dX = dY W, dW = dY^T X, in f32 and bf16.
 *
 * "packed": weights are laid out beforehand, as for params that change once per step (oneDNN: format
 * any); "plain": packing is part of the time (oneDNN: row-major). dW always packs. bf16 factors are
 * bf16 in memory, dW is f32. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "backend/cpu/onednn.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "bench_report.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape SHAPES[] = {
    {512, 512, 512},   {1024, 1024, 1024}, {2048, 2048, 2048}, {64, 512, 784},
    {64, 256, 512},    {64, 10, 256},      {64, 128, 3136},    {128, 1024, 1024},
    {256, 1024, 4096}, {256, 4096, 1024},  {64, 4096, 4096},   {2048, 384, 384},
    {2048, 1536, 384}, {2048, 384, 1536},  {2048, 4096, 384},  {256, 256, 64},
    {32, 1024, 256},   {64, 1024, 256},
};

typedef enum pass { FORWARD, BACK_DATA, BACK_WEIGHT } pass;
static const char *const PASS[] = {"Y", "dX", "dW"};

/* C (m, n) = A (m, k) B (k, n); the source strides say which factor is transposed. */
typedef struct product {
    td__gemm g;
    td__dnnl dnnl;
    td_dtype dtype, c_dtype;
    int64_t m, n, k, lda, ldb;
    bool a_trans, b_trans, packed;
    void *a, *b, *c, *b_packed, *scratch;
    size_t bytes[5];
} product;

static void *buffer(size_t *slot, size_t nbytes)
{
    void *p = td__alloc_block(nbytes + 64);

    *slot = nbytes + 64;
    TD_ASSERT(p, "%zu bytes", nbytes);
    return p;
}

static void fill(void *p, td_dtype dtype, int64_t count)
{
    uint32_t x = 1;

    for (int64_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        const float f = (float)(x >> 8) / (float)(1 << 23) - 1.0f;
        if (dtype == TD_BF16)
            ((td_bf16 *)p)[i] = td__bf16_from_f32(f);
        else
            ((float *)p)[i] = f;
    }
}

static void run_ours(void *arg)
{
    product *p = arg;

    if (!p->packed)
        td__gemm_pack(&p->g, p->b_packed, p->b, p->dtype, p->ldb, p->b_trans);
    td__gemm_run(&p->g,
                 &(td__gemm_args){.m = p->m, .a = p->a, .lda = p->lda, .a_trans = p->a_trans,
                                  .a_dtype = p->dtype, .b = p->b_packed, .c = p->c, .ldc = p->n,
                                  .c_dtype = p->c_dtype},
                 p->scratch);
}

static void run_peer(void *arg)
{
    product *p = arg;

    td__dnnl_run(&p->dnnl, (void *[]){p->a, p->packed ? p->b_packed : p->b, p->c}, p->scratch);
}

static bool plan_peer(product *p)
{
    const int64_t a_dims[] = {p->m, p->k}, b_dims[] = {p->k, p->n}, c_dims[] = {p->m, p->n};
    const int64_t a_strides[] = {p->a_trans ? 1 : p->lda, p->a_trans ? p->lda : 1};
    const int64_t b_strides[] = {p->b_trans ? 1 : p->ldb, p->b_trans ? p->ldb : 1};
    const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    dnnl_engine_t engine;

    if (td__dnnl_engine(&engine) || td__dnnl_md(&a, 2, a_dims, p->dtype, a_strides) ||
        (p->packed ? td__dnnl_md_any(&b, 2, b_dims, p->dtype)
                   : td__dnnl_md(&b, 2, b_dims, p->dtype, b_strides)) ||
        td__dnnl_md(&c, 2, c_dims, p->c_dtype, NULL) || td__dnnl_attr(&attr))
        return false;
    if (dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c) ||
        dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL))
        return false;
    dnnl_primitive_attr_destroy(attr);
    if (p->packed) /* its packed weights may be larger than ours */
        p->bytes[3] = dnnl_memory_desc_get_size(
            dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    return td__dnnl_init(&p->dnnl, pd, args, 3) == TD_OK;
}

static void bench_one(shape s, pass which, td_dtype dtype, bool packed)
{
    product p = {.dtype = dtype, .c_dtype = which == BACK_WEIGHT ? TD_F32 : dtype, .packed = packed};
    const double flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    char name[128];
    size_t size = td_dtype_size(dtype), ours_packed;

    snprintf(name, sizeof name, "gemm %s %s %dx%dx%d %s vs oneDNN", td_dtype_name(dtype),
             PASS[which], (int)s.m, (int)s.n, (int)s.k, packed ? "packed" : "plain");
    if (!bench_wanted(name))
        return;
    switch (which) {
    case FORWARD:
        p.m = s.m, p.n = s.n, p.k = s.k, p.lda = s.k, p.ldb = s.k, p.b_trans = true;
        break;
    case BACK_DATA:
        p.m = s.m, p.n = s.k, p.k = s.n, p.lda = s.n, p.ldb = s.k;
        break;
    case BACK_WEIGHT:
        p.m = s.n, p.n = s.k, p.k = s.m, p.lda = s.n, p.ldb = s.k, p.a_trans = true;
        break;
    }
    p.g = td__gemm_plan(p.m, p.n, p.k, 1, dtype, td__cpu_isa());
    const bool peer = plan_peer(&p);
    ours_packed = td__gemm_packed_bytes(&p.g);
    p.b_packed = buffer(&p.bytes[3], p.bytes[3] > ours_packed ? p.bytes[3] : ours_packed);
    p.a = buffer(&p.bytes[0], (size_t)(p.m * p.k) * size);
    p.b = buffer(&p.bytes[1], (size_t)(p.k * p.n) * size);
    p.c = buffer(&p.bytes[2], (size_t)(p.m * p.n) * 4);
    const size_t scratch = td__gemm_scratch_bytes(&p.g);
    p.scratch = buffer(&p.bytes[4], scratch > p.dnnl.scratch ? scratch : p.dnnl.scratch);
    fill(p.a, dtype, p.m * p.k);
    fill(p.b, dtype, p.k * p.n);
    td__gemm_pack(&p.g, p.b_packed, p.b, dtype, p.ldb, p.b_trans);

    double ours = 1e9, theirs = 1e9;
    for (int round = 0; round < 3; round++) { /* in turns: the machine is shared */
        double t = bench_best_seconds(run_ours, &p, 0.04, 3);
        ours = t < ours ? t : ours;
        t = peer ? bench_best_seconds(run_peer, &p, 0.04, 3) : 0;
        theirs = t < theirs ? t : theirs;
    }
    bench_row(name, flops / ours * 1e-9, peer ? flops / theirs * 1e-9 : 0, "GFLOP/s", true);
    td__dnnl_fini(&p.dnnl);
    td__free_block(p.a, p.bytes[0]);
    td__free_block(p.b, p.bytes[1]);
    td__free_block(p.c, p.bytes[2]);
    td__free_block(p.b_packed, p.bytes[3]);
    td__free_block(p.scratch, p.bytes[4]);
}

int main(int argc, char **argv)
{
    bench_begin(argc, argv);
    omp_set_num_threads(1);
    const unsigned mode = td__cpu_fp_flush();
    td__amx_enter();
    for (int t = 0; t < 2; t++)
        for (int s = 0; s < TD_LEN(SHAPES); s++) {
            const td_dtype dtype = t ? TD_BF16 : TD_F32;
            for (int packed = 1; packed >= 0; packed--) {
                bench_one(SHAPES[s], FORWARD, dtype, packed);
                bench_one(SHAPES[s], BACK_DATA, dtype, packed);
            }
            bench_one(SHAPES[s], BACK_WEIGHT, dtype, false);
        }
    td__amx_leave();
    td__cpu_fp_restore(mode);
    return bench_end();
}
