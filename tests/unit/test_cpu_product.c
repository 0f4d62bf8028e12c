/* test_cpu_product.c -- planned products with both engines, weights packed before or during the
 * run, blocks of columns and of rows, against sums in double. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/product.h"
#include "base/check.h"
#include "support/check.h"
#include "support/element.h"
#include "support/product_ref.h"

typedef struct product_case {
    int64_t m, n, k;
    bool a_trans, b_trans, b_param, bias, pre;
    td_act act;
} product_case;

static const product_case CASES[] = {
    {.m = 5, .n = 100, .k = 1100, .b_trans = true}, /* packed on the way */
    {.m = 5, .n = 100, .k = 1100},
    {.m = 50, .n = 33, .k = 45, .a_trans = true, .b_trans = true},
    {.m = 300, .n = 300, .k = 900, .b_trans = true},             /* two blocks of columns */
    {.m = 300, .n = 256, .k = 900, .bias = true},                /* just one */
    {.m = 300, .n = 30, .k = 1100, .a_trans = true},             /* three blocks of rows */
    {.m = 300, .n = 30, .k = 1024, .a_trans = true},             /* two whole ones */
    {.m = 290, .n = 20, .k = 70, .a_trans = true, .bias = true}, /* transposed, with bias */
    {.m = 300, .n = 10, .k = 0, .a_trans = true},                /* no block at all */
    {.m = 33, .n = 70, .k = 65, .b_trans = true, .b_param = true, .bias = true, .act = TD_ACT_RELU},
    {.m = 33,
     .n = 70,
     .k = 65,
     .b_trans = true,
     .b_param = true,
     .bias = true,
     .pre = true,
     .act = TD_ACT_GELU},
    {.m = 600,
     .n = 33,
     .k = 20,
     .b_trans = true,
     .b_param = true,
     .pre = true,
     .act = TD_ACT_GELU_TANH},
    {.m = 64, .n = 10, .k = 256, .b_param = true},
    {.m = 64, .n = 10, .k = 256, .b_trans = true}, /* turned, columns that fill no vector */
    {.m = 30,
     .n = 45,
     .k = 600,
     .b_trans = true,
     .b_param = true,
     .bias = true,
     .pre = true,
     .act = TD_ACT_GELU},
    {.m = 128, .n = 40, .k = 2048, .b_trans = true, .bias = true, .act = TD_ACT_RELU},
    {.m = 48, .n = 20, .k = 0, .b_trans = true, .bias = true}, /* turned, the empty sum */
    {.m = 0, .n = 10, .k = 3, .b_param = true},
    {.m = 4, .n = 10, .k = 0, .b_param = true, .bias = true},
    {.m = 4, .n = 10, .k = 0, .a_trans = true},
};

static uint32_t seed = 7;

static void *block(size_t nbytes)
{
    void *p = aligned_alloc(64, td__align_up(nbytes + 64, 64));

    assert_non_null(p);
    return p;
}

static void check(const product_case *t, td__product_engine engine, td_dtype a_dtype,
                  td_dtype b_dtype, td_dtype c_dtype)
{
    const size_t mk = (size_t)(t->m * t->k), kn = (size_t)(t->k * t->n);
    const size_t mn = (size_t)(t->m * t->n);
    const td__product_spec spec = {
        .engine = engine,
        .isa = td__cpu_isa(),
        .kind = td__cpu_kind(),
        .m = t->m,
        .n = t->n,
        .k = t->k,
        .a_dtype = a_dtype,
        .b_dtype = b_dtype,
        .c_dtype = c_dtype,
        .lda = t->a_trans ? t->m : t->k,
        .ldb = t->b_trans ? t->k : t->n,
        .a_trans = t->a_trans,
        .b_trans = t->b_trans,
        .b_param = t->b_param,
        .has_bias = t->bias,
        .has_pre = t->pre,
        .act = t->act,
    };
    td__product p;
    void *a = block(mk * 4), *b = block(kn * 4), *c = block(mn * 4), *pre = block(mn * 4);
    float *bias = block((size_t)t->n * 4);
    double *av = block(mk * 8), *bv = block(kn * 8), *biasv = block((size_t)t->n * 8);

    assert_int_equal(td__product_init(&p, &spec), TD_OK);
    void *packed = block(p.packed), *scratch = block(p.scratch);
    product_fill(&seed, a_dtype, a_dtype == TD_BF16, (int64_t)mk, a, av);
    product_fill(&seed, b_dtype, a_dtype == TD_BF16, (int64_t)kn, b, bv);
    product_fill(&seed, TD_F32, false, t->n, bias, biasv);
    memset(c, 0xff, mn * 4);
    if (p.packed)
        CHECK_OK(td__product_pack(&p, packed, b, scratch));
    CHECK_OK(td__product_run(&p, c, t->pre ? pre : NULL, a, p.packed ? NULL : b, packed,
                             t->bias ? bias : NULL, scratch));
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            double sum = t->bias ? biasv[j] : 0, size = 1;
            for (int64_t k = 0; k < t->k; k++) {
                const double x = av[t->a_trans ? k * t->m + i : i * t->k + k] *
                                 bv[t->b_trans ? j * t->k + k : k * t->n + j];
                sum += x;
                size += fabs(x);
            }
            const double tol =
                6e-8 * size * (4 + sqrt((double)t->k)) + (c_dtype == TD_BF16 ? fabs(sum) / 200 : 0);
            if (t->pre)
                assert_true(fabs(element_get(c_dtype, pre, i * t->n + j) - sum) <= tol);
            sum = product_activate(t->act, sum);
            if (!(fabs(element_get(c_dtype, c, i * t->n + j) - sum) <= 1.2 * tol))
                fail_msg("%s %dx%dx%d: (%d, %d) is %g, not %g", p.impl, (int)t->m, (int)t->n,
                         (int)t->k, (int)i, (int)j, element_get(c_dtype, c, i * t->n + j), sum);
        }
    td__product_fini(&p);
    void *all[] = {a, b, c, pre, bias, av, bv, biasv, packed, scratch};
    for (int i = 0; i < TD_LEN(all); i++)
        free(all[i]);
}

static void test_own_f32(void **state)
{
    (void)state;
    for (int i = 0; i < TD_LEN(CASES); i++)
        check(&CASES[i], TD__ENGINE_OWN, TD_F32, TD_F32, TD_F32);
}

static void test_onednn_f32(void **state)
{
    (void)state;
    for (int i = 0; i < TD_LEN(CASES); i++)
        check(&CASES[i], TD__ENGINE_ONEDNN, TD_F32, TD_F32, TD_F32);
}

static void test_onednn_bf16(void **state)
{
    (void)state;
    if (td__cpu_isa() < TD_ISA_AVX512) { /* oneDNN has no bf16 there: ours is used */
        print_message("skipped: oneDNN has no bf16 without AVX-512\n");
        skip();
        return;
    }
    for (int i = 0; i < TD_LEN(CASES); i++)
        check(&CASES[i], TD__ENGINE_ONEDNN, TD_BF16, TD_F32, TD_BF16);
}

static void test_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < TD_LEN(CASES); i++) {
        check(&CASES[i], TD__ENGINE_TUNED, TD_BF16, TD_F32, TD_BF16);
        check(&CASES[i], TD__ENGINE_TUNED, TD_BF16, TD_BF16, TD_F32);
    }
}

static void test_refuses_other_types(void **state)
{
    td__product p;
    td__product_spec spec = {.isa = TD_ISA_SCALAR,
                             .kind = "none",
                             .m = 1,
                             .n = 1,
                             .k = 1,
                             .a_dtype = TD_F64,
                             .b_dtype = TD_F64,
                             .c_dtype = TD_F64};

    (void)state;
    assert_int_equal(td__product_init(&p, &spec), TD_ENOTSUP);
    spec.a_dtype = spec.c_dtype = TD_F32;
    spec.b_dtype = TD_BF16;
    assert_int_equal(td__product_init(&p, &spec), TD_ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_f32),
        cmocka_unit_test(test_onednn_f32),
        cmocka_unit_test(test_onednn_bf16),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_refuses_other_types),
    };

    omp_set_num_threads(1);
    td__amx_enter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
