/* test_blend.c -- weighted sums of blocks: the same bits with every instruction set, for any length
 * and alignment, and nothing is written beside them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kernels/blend.h"
#include "support/check.h"

enum { MOST = 300, EDGE = 20 };

static float noise(int i)
{
    return (float)((i * 7919) % 1013 - 500) / 331;
}

/* Element i of an array of n floats from `at` on is `want`; those around it are still 9. */
static void check_element(const float *z, int i, int at, int n, float want)
{
    float expected = i < at || i >= at + n ? 9 : want;
    assert_memory_equal(&z[i], &expected, sizeof expected);
}

static void fill(float *z)
{
    for (int i = 0; i < MOST + EDGE; i++)
        z[i] = 9;
}

static void check_length(td__isa isa, int n, int at)
{
    _Alignas(64) float z[MOST + EDGE];
    float x[MOST], y[MOST], a = 0.3f, b = 0.7f;

    for (int i = 0; i < MOST; i++) {
        x[i] = noise(i);
        y[i] = noise(i + 77);
    }
    fill(z);
    TD_ISA_PICK(isa, td__blended)(z + at, y, a, x, b, (size_t)n);
    for (int i = 0; i < MOST + EDGE; i++) {
        volatile float left = a * y[i < at ? 0 : i - at < MOST ? i - at : 0];
        volatile float right = b * x[i < at ? 0 : i - at < MOST ? i - at : 0];
        check_element(z, i, at, n, left + right);
    }
    fill(z);
    TD_ISA_PICK(isa, td__scaled_stream)(z + at, x, b, (size_t)n);
    for (int i = 0; i < MOST + EDGE; i++)
        check_element(z, i, at, n, b * x[i < at ? 0 : i - at < MOST ? i - at : 0]);
}

static void every_length_and_alignment(void **state)
{
    static const int LENGTHS[] = {0, 1, 3, 15, 16, 17, 64, 255, 300};
    (void)state;
    for (int isa = 0; isa <= (int)td__cpu_isa(); isa++)
        for (int k = 0; k < (int)(sizeof LENGTHS / sizeof *LENGTHS); k++)
            for (int at = 0; at < EDGE; at++)
                check_length((td__isa)isa, LENGTHS[k], at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_length_and_alignment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
