/* test_cpu_gemm.c -- the matrix product, every kind that this processor can run and the emulated
 * tiles, against sums in double of the (rounded) factors. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "base/check.h"
#include "base/half.h"
#include "support/element.h"
#include "support/product_ref.h"

enum { GUARD = 64 }; /* bytes after each result that must stay as they were */

typedef struct shape {
    int64_t m, n, k, reduce;
} shape;

static const shape SHAPES[] = {
    {1, 1, 1, 1},     {3, 5, 2, 1},       {14, 32, 32, 1},   {15, 33, 33, 1},  {16, 64, 64, 1},
    {17, 10, 31, 1},  {32, 32, 96, 1},    {45, 70, 129, 1},  {64, 10, 256, 1}, {31, 16, 770, 1},
    {150, 40, 65, 1}, {130, 100, 400, 1}, {48, 64, 64, 9},   {20, 24, 16, 40}, {29, 36, 37, 3},
    {16, 32, 400, 2}, {7, 160, 48, 1},    {33, 1100, 20, 1}, {0, 8, 8, 1},     {8, 8, 0, 1},
};

static uint32_t seed = 12345;

static bool can_run(td__gemm_kind kind)
{
    static const td__isa NEEDS[TD__GEMM_KIND_COUNT] = {
        [TD__GEMM_SCALAR] = TD_ISA_SCALAR,    [TD__GEMM_AVX2] = TD_ISA_AVX2,
        [TD__GEMM_AVX512] = TD_ISA_AVX512,    [TD__GEMM_AVX512_BF16] = TD_ISA_AVX512_BF16,
        [TD__GEMM_TILE_EMUL] = TD_ISA_SCALAR, [TD__GEMM_AMX] = TD_ISA_AMX,
    };

    return td__cpu_isa() >= NEEDS[kind];
}

/* A tensor of random numbers in f32 or bf16, exactly sized so that reading past it is caught by the
 * sanitizers, with the same values as doubles. */
typedef struct tensor {
    td_dtype dtype;
    int64_t count;
    void *data;
    double *value;
} tensor;

static tensor make(td_dtype dtype, int64_t count, bool round)
{
    tensor t = {dtype, count, malloc((size_t)count * td_dtype_size(dtype) + 1),
                malloc((size_t)count * sizeof(double) + 1)};

    assert_true(t.data && t.value);
    product_fill(&seed, dtype, round, count, t.data, t.value);
    return t;
}

static void drop(tensor *t)
{
    free(t->data);
    free(t->value);
}

typedef struct variant {
    td_dtype dtype, a_dtype, b_dtype, c_dtype;
    bool a_trans, b_trans, accumulate, bias, pre, mask;
    td_act act;
} variant;

static const variant VARIANTS[] = {
    {.dtype = TD_F32},
    {.dtype = TD_F32, .b_trans = true, .bias = true, .act = TD_ACT_RELU},
    {.dtype = TD_F32, .a_trans = true, .accumulate = true},
    {.dtype = TD_F32, .a_trans = true, .b_trans = true, .mask = true},
    {.dtype = TD_F32, .bias = true, .pre = true, .act = TD_ACT_GELU, .accumulate = true},
    {.dtype = TD_F32, .c_dtype = TD_BF16, .bias = true},
    {.dtype = TD_BF16, .a_dtype = TD_BF16, .b_dtype = TD_BF16},
    {.dtype = TD_BF16,
     .a_dtype = TD_BF16,
     .b_trans = true,
     .c_dtype = TD_BF16,
     .bias = true,
     .pre = true,
     .act = TD_ACT_GELU_TANH},
    {.dtype = TD_BF16, .a_dtype = TD_F32, .b_dtype = TD_BF16, .b_trans = true, .mask = true},
    {.dtype = TD_BF16, .a_dtype = TD_BF16, .b_dtype = TD_BF16, .a_trans = true, .accumulate = true},
    {.dtype = TD_BF16,
     .a_dtype = TD_F32,
     .a_trans = true,
     .c_dtype = TD_BF16,
     .act = TD_ACT_RELU,
     .mask = true},
};

/* One shape, one variant, one kind, with offsets and strides wider than the matrices. */
static void check_one(shape s, variant v, td__gemm_kind kind)
{
    const td__gemm g = td__gemm_plan_kind(s.m, s.n, s.k, s.reduce, v.dtype, kind);
    const bool round = v.dtype == TD_BF16;
    const int64_t lda = (v.a_trans ? s.m : s.k) + 3, ldb = (v.b_trans ? s.k : s.n) + 1;
    const int64_t lines_a = v.a_trans ? s.k : s.m, lines_b = v.b_trans ? s.n : s.k;
    const int64_t ldc = s.n + 5, shift = 2;
    const int64_t a_count =
        lines_a > 0 ? (lines_a - 1) * lda + (lda - 3) + shift * (s.reduce - 1) : 0;
    const int64_t c_count = s.m > 0 ? (s.m - 1) * ldc + s.n : 0;
    const size_t c_bytes = (size_t)c_count * td_dtype_size(v.c_dtype);
    const size_t packed_bytes = td__gemm_packed_bytes(&g);
    tensor a = make(v.a_dtype, a_count, round);
    tensor b = make(v.b_dtype, lines_b * ldb * s.reduce, round);
    tensor mask = make(v.c_dtype, c_count, false), before = make(v.c_dtype, c_count, false);
    tensor bias = make(TD_F32, s.n, false);
    char *packed = aligned_alloc(64, td__align_up(packed_bytes * (size_t)s.reduce + 64, 64));
    char *scratch = aligned_alloc(64, td__align_up(td__gemm_scratch_bytes(&g) + 64, 64));
    char *c = malloc(c_bytes + GUARD), *pre = malloc(c_bytes + GUARD);
    int64_t *off = malloc((size_t)s.reduce * sizeof *off);

    assert_true(packed && scratch && c && pre && off);
    memset(packed, 0xff, packed_bytes * (size_t)s.reduce); /* NaN: padding must be written */
    memset(scratch, 0xff, td__gemm_scratch_bytes(&g));
    memcpy(c, before.data, c_bytes);
    memset(c + c_bytes, 0xa5, GUARD);
    memset(pre, 0xa5, c_bytes + GUARD);
    for (int64_t i = 0; i < s.reduce; i++) {
        off[i] = i * shift;
        td__gemm_pack(&g, packed + (size_t)i * packed_bytes,
                      (const char *)b.data + (size_t)(i * lines_b * ldb) * td_dtype_size(v.b_dtype),
                      v.b_dtype, ldb, v.b_trans);
    }
    td__gemm_run(&g,
                 &(td__gemm_args){
                     .m = s.m,
                     .a = a.data,
                     .a_off = off,
                     .reduce = s.reduce,
                     .lda = lda,
                     .a_trans = v.a_trans,
                     .a_dtype = v.a_dtype,
                     .b = packed,
                     .c = c,
                     .ldc = ldc,
                     .c_dtype = v.c_dtype,
                     .accumulate = v.accumulate,
                     .post = {.bias = v.bias ? bias.data : NULL,
                              .pre = v.pre ? pre : NULL,
                              .act = v.act,
                              .mask = v.mask ? mask.data : NULL},
                 },
                 scratch);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            const int64_t at = i * ldc + j;
            double sum = 0, size = 1;

            if (j >= s.n) { /* between rows: untouched */
                if (at < c_count)
                    assert_true(element_get(v.c_dtype, c, at) ==
                                element_get(v.c_dtype, before.data, at));
                continue;
            }
            for (int64_t t = 0; t < s.reduce; t++)
                for (int64_t k = 0; k < s.k; k++) {
                    const double x = a.value[off[t] + (v.a_trans ? k * lda + i : i * lda + k)];
                    const double y =
                        b.value[t * lines_b * ldb + (v.b_trans ? j * ldb + k : k * ldb + j)];
                    sum += x * y;
                    size += fabs(x * y);
                }
            if (v.accumulate)
                sum += before.value[at];
            if (v.bias)
                sum += bias.value[j];
            /* Each of the k additions rounds once; errors grow like the square root. */
            const double tol = 6e-8 * size * (4 + sqrt((double)(s.k * s.reduce))) +
                               (v.c_dtype == TD_BF16 ? fabs(sum) / 200 : 0);
            if (v.pre && !(fabs(element_get(v.c_dtype, pre, at) - sum) <= tol))
                fail_msg("%s m %d n %d k %d reduce %d: pre (%d, %d) is %g, not %g",
                         td__gemm_name(&g), (int)s.m, (int)s.n, (int)s.k, (int)s.reduce, (int)i,
                         (int)j, element_get(v.c_dtype, pre, at), sum);
            sum = product_activate(v.act, sum);
            if (v.mask && element_get(v.c_dtype, mask.data, at) <= 0)
                sum = 0;
            if (!(fabs(element_get(v.c_dtype, c, at) - sum) <= 1.2 * tol))
                fail_msg("%s m %d n %d k %d reduce %d variant %d: (%d, %d) is %g, not %g",
                         td__gemm_name(&g), (int)s.m, (int)s.n, (int)s.k, (int)s.reduce,
                         (int)(v.act + 10 * v.a_trans + 100 * v.b_trans), (int)i, (int)j,
                         element_get(v.c_dtype, c, at), sum);
        }
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal((unsigned char)c[c_bytes + (size_t)i], 0xa5);
        assert_int_equal((unsigned char)pre[c_bytes + (size_t)i], 0xa5);
    }
    drop(&a);
    drop(&b);
    drop(&mask);
    drop(&before);
    drop(&bias);
    free(packed);
    free(scratch);
    free(c);
    free(pre);
    free(off);
}

static void check_kind(td__gemm_kind kind)
{
    if (!can_run(kind)) {
        print_message("skipped: this processor cannot run gemm kind %d\n", (int)kind);
        skip();
        return;
    }
    td__amx_enter();
    for (int s = 0; s < TD_LEN(SHAPES); s++)
        for (int v = 0; v < TD_LEN(VARIANTS); v++) {
            const bool f32_only = kind > TD__GEMM_AVX512 && VARIANTS[v].dtype == TD_F32;
            if (!f32_only)
                check_one(SHAPES[s], VARIANTS[v], kind);
        }
    td__amx_leave();
}

static void test_scalar(void **state)
{
    (void)state;
    check_kind(TD__GEMM_SCALAR);
}
static void test_avx2(void **state)
{
    (void)state;
    check_kind(TD__GEMM_AVX2);
}
static void test_avx512(void **state)
{
    (void)state;
    check_kind(TD__GEMM_AVX512);
}
static void test_avx512_bf16(void **state)
{
    (void)state;
    check_kind(TD__GEMM_AVX512_BF16);
}
static void test_tile_emul(void **state)
{
    (void)state;
    check_kind(TD__GEMM_TILE_EMUL);
}
static void test_amx(void **state)
{
    (void)state;
    check_kind(TD__GEMM_AMX);
}

/* A row of C has the same bits whatever m is and wherever it lies. */
static void test_rows_do_not_depend_on_m(void **state)
{
    enum { M = 77, N = 48, K = 500 };
    (void)state;
    for (int kind = 0; kind < TD__GEMM_KIND_COUNT; kind++) {
        if (!can_run((td__gemm_kind)kind))
            continue;
        const td__gemm g = td__gemm_plan_kind(M, N, K, 1, TD_BF16, (td__gemm_kind)kind);
        tensor a = make(TD_BF16, (int64_t)M * K, true), b = make(TD_F32, (int64_t)N * K, true);
        void *packed = aligned_alloc(64, td__align_up(td__gemm_packed_bytes(&g), 64));
        void *scratch = aligned_alloc(64, td__align_up(td__gemm_scratch_bytes(&g), 64));
        float *c = malloc(M * N * sizeof *c), one[N];

        assert_true(packed && scratch && c);
        td__amx_enter();
        td__gemm_pack(&g, packed, b.data, TD_F32, K, true);
        td__gemm_args args = {
            .m = M, .a = a.data, .lda = K, .a_dtype = TD_BF16, .b = packed, .c = c, .ldc = N};
        td__gemm_run(&g, &args, scratch);
        for (int i = 0; i < M; i += 19) {
            args.m = 1;
            args.a = (const td_bf16 *)a.data + i * K;
            args.c = one;
            td__gemm_run(&g, &args, scratch);
            assert_memory_equal(one, c + i * N, sizeof one);
        }
        td__amx_leave();
        drop(&a);
        drop(&b);
        free(packed);
        free(scratch);
        free(c);
    }
}

/* A transposed factor that comes as pairs of rows gives the bits of one paired on the way. */
static void test_paired_rows(void **state)
{
    enum { M = 45, N = 40, K = 62 };
    (void)state;
    if (!can_run(TD__GEMM_AVX512_BF16))
        skip();
    const td__gemm g = td__gemm_plan_kind(M, N, K, 1, TD_BF16, TD__GEMM_AVX512_BF16);
    tensor a = make(TD_BF16, (int64_t)M * K, true), b = make(TD_BF16, (int64_t)N * K, true);
    void *packed = aligned_alloc(64, td__align_up(td__gemm_packed_bytes(&g), 64));
    void *scratch = aligned_alloc(64, td__align_up(td__gemm_scratch_bytes(&g), 64));
    const td_bf16 *rows = a.data;
    td_bf16 pairs[K / 2][M][2];
    float want[M * N], got[M * N];

    assert_true(packed && scratch);
    for (int k = 0; k < K; k++)
        for (int i = 0; i < M; i++)
            pairs[k / 2][i][k % 2] = rows[k * M + i];
    td__gemm_pack(&g, packed, b.data, TD_BF16, N, false);
    td__gemm_args args = {.m = M,
                          .a = a.data,
                          .lda = M,
                          .a_trans = true,
                          .a_dtype = TD_BF16,
                          .b = packed,
                          .c = want,
                          .ldc = N};
    td__gemm_run(&g, &args, scratch);
    args.a = pairs;
    args.a_paired = true;
    args.c = got;
    td__gemm_run(&g, &args, scratch);
    assert_memory_equal(got, want, sizeof want);
    drop(&a);
    drop(&b);
    free(packed);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalar),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_avx512_bf16),
        cmocka_unit_test(test_tile_emul),
        cmocka_unit_test(test_amx),
        cmocka_unit_test(test_rows_do_not_depend_on_m),
        cmocka_unit_test(test_paired_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
