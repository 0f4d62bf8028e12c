/* Bulk random numbers: the words of td__philox4 and normals near td__rng_normal, the same bits from
 * every instruction set, any number at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/kernels/random.h"

static void (*const WORDS[])(uint32_t *, const td__rng_key *, uint32_t, size_t) = {
    td__random_words_scalar, td__random_words_avx2, td__random_words_avx512};
static void (*const NORMALS[])(float *, const uint32_t *, size_t, float, float) = {
    td__random_normals_scalar, td__random_normals_avx2, td__random_normals_avx512};

static int n_isa(void)
{
    return td__cpu_isa() >= TD_ISA_AVX512 ? 3 : td__cpu_isa() >= TD_ISA_AVX2 ? 2 : 1;
}

TEST(words_are_philox)
{
    static const size_t BLOCKS[] = {0, 1, 3, 15, 16, 17, 100};
    td__rng_key key = {
        .seed = 0x123456789abcdef0, .stream = 7, .step = 11, .micro_batch = UINT32_MAX};
    for (int isa = 0; isa < n_isa(); isa++)
        for (int i = 0; i < TD_LEN(BLOCKS); i++) {
            uint32_t first = UINT32_MAX - 50, want[4]; /* the counter goes round */
            uint32_t *got = check_alloc_guarded(4 * BLOCKS[i] * sizeof *got + 1);
            WORDS[isa](got, &key, first, BLOCKS[i]);
            for (size_t b = 0; b < BLOCKS[i]; b++) {
                td__philox4(&key, first + (uint32_t)b, want);
                CHECK(!memcmp(want, got + 4 * b, sizeof want), "set %d: block %zu of %zu", isa, b,
                      BLOCKS[i]);
            }
            check_free_guarded(got);
        }
}

TEST(normals_are_box_and_mullers)
{
    enum { N = 4002 };
    static uint32_t words[N + 2];
    static float first[N], got[N];
    td__rng_key key = {.seed = 42};
    WORDS[0](words, &key, 0, (N + 3) / 4);
    for (int isa = 0; isa < n_isa(); isa++) {
        NORMALS[isa](isa ? got : first, words, N, 0.0f, 1.0f);
        CHECK(!isa || !memcmp(first, got, sizeof got), "set %d differs", isa);
    }
    for (uint64_t i = 0; i < N; i++) {
        double want = (double)td__rng_normal(&key, i), is = (double)first[i];
        CHECK(fabs(is - want) < 2e-6 * (1 + fabs(want)), "number %d is %.9g, want %.9g", (int)i, is,
              want);
    }
}

/* The ends of both words' ranges: no NaN, no infinity, the known radii and angles. */
TEST(normals_at_the_edges)
{
    static const struct {
        uint32_t words[2];
        double want[2];
    } ROWS[] = {
        {{0, 0}, {6.6604358, 0}},          /* sqrt(-2 ln 2^-32) */
        {{0, 0x40000000}, {0, 6.6604358}}, /* a quarter turn */
        {{0, 0x80000000}, {-6.6604358, 0}},
        {{0, 0xc0000000}, {0, -6.6604358}},
        {{0, 0x20000000}, {4.7096393, 4.7096393}}, /* where the quadrants meet */
        {{0, 0x1fffffff}, {4.7096393, 4.7096393}},
        {{0, 0xffffffff}, {6.6604358, 0}},
        {{UINT32_MAX, 0x12345678}, {0, 0}}, /* ln 1 */
        {{0x7fffffff, 0}, {1.1774100, 0}},  /* sqrt(-2 ln 1/2) */
        {{0xb504f333, 0}, {0.8325546, 0}},  /* sqrt(ln 2): where the polynomial's ends meet */
    };
    for (int isa = 0; isa < n_isa(); isa++)
        for (int i = 0; i < TD_LEN(ROWS); i++) {
            float got[2];
            NORMALS[isa](got, ROWS[i].words, 2, 0.0f, 1.0f);
            for (int k = 0; k < 2; k++)
                CHECK(fabs((double)got[k] - ROWS[i].want[k]) < 2e-6, "set %d row %d: %.9g, want %g",
                      isa, i, (double)got[k], ROWS[i].want[k]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_philox),
        cmocka_unit_test(normals_are_box_and_mullers),
        cmocka_unit_test(normals_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
