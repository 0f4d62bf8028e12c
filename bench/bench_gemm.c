/* bench_gemm.c -- the matrix products of a linear layer, ours against oneDNN's matmul primitive,
 * one thread: forward Y (M, N) = X (M, K) W (N, K)^T, dX = dY W, dW = dY^T X, in f32 and bf16.
 *
 * "run": weights are params, and whatever an engine lays out ahead for them is not timed;
 * "update+run": it is, as in training with one run per update. bf16: X and dY are bf16, W is f32
 * and rounded when it is laid out (oneDNN gets it in bf16), dW is f32.
 *
 * With --emit-table the rows of src/backend/cpu/tuning.def for this kind of processor are printed
 * instead: the shapes, widened to ranges, where oneDNN's update+run (or dW's run) is faster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/product.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "bench_report.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape SHAPES[] = {
    {512, 512, 512},  {1024, 1024, 1024}, {2048, 2048, 2048}, {64, 512, 784},    {64, 256, 512},
    {64, 10, 256},    {64, 128, 3136},    {128, 1024, 1024},  {256, 1024, 4096}, {256, 4096, 1024},
    {64, 4096, 4096}, {2048, 384, 384},   {2048, 1536, 384},  {2048, 384, 1536}, {2048, 4096, 384},
    {256, 256, 64},   {32, 1024, 256},    {64, 1024, 256},
};

static const char *const USE[] = {"Y", "dX", "dW"};
static const char *const USE_ROW[] = {"FORWARD", "BACK_DATA", "BACK_WEIGHT"};

typedef struct job {
    td__product product;
    bool update;
    void *a, *b, *c, *packed, *scratch;
    size_t bytes[5];
} job;

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

static void pack(job *j)
{
    if (td__product_pack(&j->product, j->packed, j->b, j->scratch))
        abort();
}

static void run(void *arg)
{
    job *j = arg;

    if (j->update && j->product.packed)
        pack(j);
    if (td__product_run(&j->product, j->c, NULL, j->a, j->b, j->packed, NULL, j->scratch))
        abort();
}

static bool job_init(job *j, const td__product_spec *s)
{
    if (td__product_init(&j->product, s))
        return false;
    j->a = buffer(&j->bytes[0], (size_t)(s->m * s->k) * td_dtype_size(s->a_dtype));
    j->b = buffer(&j->bytes[1], (size_t)(s->k * s->n) * td_dtype_size(s->b_dtype));
    j->c = buffer(&j->bytes[2], (size_t)(s->m * s->n) * td_dtype_size(s->c_dtype));
    j->packed = buffer(&j->bytes[3], j->product.packed);
    j->scratch = buffer(&j->bytes[4], j->product.scratch);
    fill(j->a, s->a_dtype, s->m * s->k);
    fill(j->b, s->b_dtype, s->k * s->n);
    if (j->product.packed)
        pack(j);
    return true;
}

static void job_fini(job *j)
{
    void *all[] = {j->a, j->b, j->c, j->packed, j->scratch};

    for (int i = 0; i < TD_LEN(all); i++)
        td__free_block(all[i], j->bytes[i]);
    td__product_fini(&j->product);
}

static td__product_spec spec_of(shape s, td__product_use use, td_dtype dtype)
{
    td__product_spec p = {.use = use,
                          .isa = td__cpu_isa(),
                          .kind = td__cpu_kind(),
                          .a_dtype = dtype,
                          .b_dtype = TD_F32,
                          .c_dtype = dtype,
                          .b_param = true,
                          .m = s.m,
                          .n = s.n,
                          .k = s.k,
                          .lda = s.k,
                          .ldb = s.k,
                          .b_trans = true};

    if (use == TD__USE_BACK_DATA) {
        p.n = s.k, p.k = s.n, p.lda = s.n;
        p.b_trans = false;
    } else if (use == TD__USE_BACK_WEIGHT) {
        p.m = s.n, p.n = s.k, p.k = s.m, p.lda = s.n;
        p.b_trans = p.b_param = false;
        p.a_trans = true;
        p.b_dtype = dtype;
        p.c_dtype = TD_F32;
    }
    return p;
}

/* Seconds of our engine and of oneDNN's, in turns because the machine is shared; false if oneDNN
 * does not do this product. */
static bool measure(shape s, td__product_use use, td_dtype dtype, bool update, double *ours,
                    double *peer)
{
    td__product_spec spec = spec_of(s, use, dtype);
    job own = {.update = update}, dnnl = {.update = update};

    spec.engine = TD__ENGINE_OWN;
    TD_ASSERT(job_init(&own, &spec), "%s", td_last_error());
    spec.engine = TD__ENGINE_ONEDNN;
    const bool both = job_init(&dnnl, &spec) && dnnl.product.onednn;
    *ours = *peer = 1e9;
    for (int round = 0; round < 3; round++) {
        double t = bench_best_seconds(run, &own, 0.03, 3);
        *ours = t < *ours ? t : *ours;
        t = both ? bench_best_seconds(run, &dnnl, 0.03, 3) : 0;
        *peer = t < *peer ? t : *peer;
    }
    job_fini(&own);
    if (dnnl.a)
        job_fini(&dnnl);
    return both;
}

static void report(shape s, td__product_use use, td_dtype dtype, bool update)
{
    const double flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    double ours, peer;
    char name[128];

    snprintf(name, sizeof name, "gemm %s %s %dx%dx%d %s vs oneDNN", td_dtype_name(dtype), USE[use],
             (int)s.m, (int)s.n, (int)s.k, update ? "update+run" : "run");
    if (!bench_wanted(name))
        return;
    const bool both = measure(s, use, dtype, update, &ours, &peer);
    bench_row(name, flops / ours * 1e-9, both ? flops / peer * 1e-9 : 0, "GFLOP/s", true);
}

/* A row wherever oneDNN wins by more than noise, from half to twice the shape. */
static void emit(shape s, td__product_use use)
{
    const td__product_spec p = spec_of(s, use, TD_F32);
    double ours, peer;

    if (!measure(s, use, TD_F32, use != TD__USE_BACK_WEIGHT, &ours, &peer) || peer * 1.03 > ours)
        return;
    printf("TD_TUNED(\"%s\", %s, %d, %d, %d, %d, %d, %d, ONEDNN) /* %.2f */\n", td__cpu_kind(),
           USE_ROW[use], (int)p.m * 2 / 3, (int)p.m * 3 / 2, (int)p.n * 2 / 3, (int)p.n * 3 / 2,
           (int)p.k * 2 / 3, (int)p.k * 3 / 2, ours / peer);
}

int main(int argc, char **argv)
{
    const bool table = argc == 2 && strcmp(argv[1], "--emit-table") == 0;

    bench_begin(table ? 1 : argc, argv);
    omp_set_num_threads(1);
    const unsigned mode = td__cpu_fp_flush();
    td__amx_enter();
    for (int t = 0; t < (table ? 1 : 2); t++)
        for (int s = 0; s < TD_LEN(SHAPES); s++)
            for (int use = 0; use <= TD__USE_BACK_WEIGHT; use++) {
                const td_dtype dtype = t ? TD_BF16 : TD_F32;
                if (table) {
                    emit(SHAPES[s], (td__product_use)use);
                    continue;
                }
                report(SHAPES[s], (td__product_use)use, dtype, false);
                if (use != TD__USE_BACK_WEIGHT)
                    report(SHAPES[s], (td__product_use)use, dtype, true);
            }
    td__amx_leave();
    td__cpu_fp_restore(mode);
    return table ? 0 : bench_end();
}
