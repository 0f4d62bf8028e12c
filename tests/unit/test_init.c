/* Initialisers: moments and bounds from torch.nn.init's formulas, orthogonality, determinism,
 * refusals. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "graph/init.h"
#include "tandem/alloc.h"

typedef struct moments {
    double mean, std, low, high;
} moments;

static moments measure(const float *x, size_t n)
{
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i];
        sum += v;
        squares += v * v;
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    double mean = sum / (double)n;
    return (moments){mean, sqrt(squares / (double)n - mean * mean), low, high};
}

/* Linear (512, 300): fan_in 300, fan_out 512. Conv (64, 32, 5, 3): fan_in 480, fan_out 960. */
#define LINEAR       \
    {                \
        2,           \
        {            \
            512, 300 \
        }            \
    }
#define CONV             \
    {                    \
        4,               \
        {                \
            64, 32, 5, 3 \
        }                \
    }
#define VECTOR     \
    {              \
        1,         \
        {          \
            100001 \
        }          \
    }

static const struct {
    td_init init;
    td_shape shape;
    double mean, std, bound; /* bound 0: none */
} ROWS[] = {
    {{.kind = TD_INIT_ZEROS}, VECTOR, 0, 0, 1e-30},
    {{.kind = TD_INIT_ONES}, VECTOR, 1, 0, 1},
    {{.kind = TD_INIT_CONSTANT, .a = -2.5}, VECTOR, -2.5, 0, 2.5},
    {{.kind = TD_INIT_UNIFORM, .a = -1, .b = 3}, VECTOR, 1, 4 / 3.4641016, 3},
    {{.kind = TD_INIT_NORMAL, .a = 0.5, .b = 2}, VECTOR, 0.5, 2, 0},
    {{.kind = TD_INIT_NORMAL, .a = 0.5, .b = 0}, VECTOR, 0.5, 0, 0.5},
    /* A normal cut at 2 deviations has deviation 0.87962. */
    {{.kind = TD_INIT_TRUNC_NORMAL, .b = 3}, VECTOR, 0, 3 * 0.8796257, 6},
    {{.kind = TD_INIT_XAVIER_UNIFORM}, LINEAR, 0, 0.0496292, 0.0859602},
    {{.kind = TD_INIT_XAVIER_UNIFORM, .a = 2}, CONV, 0, 0.0745356, 0.1290994},
    {{.kind = TD_INIT_XAVIER_NORMAL}, LINEAR, 0, 0.0496292, 0},
    {{.kind = TD_INIT_KAIMING_UNIFORM}, LINEAR, 0, 0.0816497, 0.1414214},
    {{.kind = TD_INIT_KAIMING_UNIFORM, .a = 0.5773502692}, LINEAR, 0, 0.0333333, 0.0577350},
    {{.kind = TD_INIT_KAIMING_NORMAL, .fan_out = true}, CONV, 0, 0.0456435, 0},
    {{.kind = TD_INIT_KAIMING_NORMAL}, CONV, 0, 0.0645497, 0},
};

TEST(moments_and_bounds)
{
    for (int i = 0; i < TD_LEN(ROWS); i++) {
        size_t n = (size_t)td_shape_count(&ROWS[i].shape);
        float *x = check_alloc_guarded(n * sizeof *x);
        CHECK_OK(td__init_fill(&ROWS[i].init, &ROWS[i].shape, 7, "w", x));
        moments m = measure(x, n);
        /* Five deviations of the estimates: with a fixed seed this is no flake. */
        double slack = 5 * ROWS[i].std / sqrt((double)n) + 1e-6;
        CHECK(fabs(m.mean - ROWS[i].mean) < slack, "row %d: mean %g", i, m.mean);
        CHECK(fabs(m.std - ROWS[i].std) < slack, "row %d: deviation %g", i, m.std);
        if (ROWS[i].bound != 0) {
            double far = fmax(fabs(m.low), fabs(m.high));
            CHECK(far <= ROWS[i].bound * (1 + 1e-6), "row %d: reaches %g", i, far);
            CHECK(ROWS[i].std == 0 || far > 0.99 * ROWS[i].bound, "row %d: only %g", i, far);
        }
        check_free_guarded(x);
    }
}

/* Fourth moment and tails of the normal, and no correlation between neighbours (the two numbers
 * that Box and Muller make from one pair of words). */
TEST(normal_is_normal)
{
    enum { N = 400000 };
    td_init init = {.kind = TD_INIT_NORMAL, .b = 1};
    td_shape shape = TD_SHAPE(N);
    float *x = malloc(N * sizeof *x);
    CHECK_OK(td__init_fill(&init, &shape, 1, "w", x));
    double fourth = 0, near = 0;
    int beyond2 = 0, beyond4 = 0;
    for (int i = 0; i < N; i++) {
        double v = (double)x[i];
        fourth += v * v * v * v / N;
        near += i ? v * (double)x[i - 1] / N : 0;
        beyond2 += fabs(v) > 2;
        beyond4 += fabs(v) > 4;
    }
    CHECK(fabs(fourth - 3) < 0.08, "fourth moment %g", fourth);
    CHECK(fabs(near) < 0.008, "neighbours correlate: %g", near);
    CHECK(abs(beyond2 - 18200) < 700, "%d beyond 2 deviations", beyond2);
    CHECK(beyond4 > 8 && beyond4 < 55, "%d beyond 4 deviations", beyond4);
    free(x);
}

TEST(orthogonal_rows_or_columns)
{
    static const td_shape SHAPES[] = {
        {2, {20, 50}}, {2, {50, 20}}, {2, {16, 16}}, {4, {8, 3, 2, 2}}};
    for (int i = 0; i < TD_LEN(SHAPES); i++) {
        td_init init = {.kind = TD_INIT_ORTHOGONAL, .a = 2};
        size_t n = (size_t)td_shape_count(&SHAPES[i]), rows = (size_t)SHAPES[i].dim[0];
        size_t cols = n / rows;
        float *x = check_alloc_guarded(n * sizeof *x);
        CHECK_OK(td__init_fill(&init, &SHAPES[i], 3, "w", x));
        size_t m = rows < cols ? rows : cols, len = rows < cols ? cols : rows;
        for (size_t a = 0; a < m; a++)
            for (size_t b = 0; b <= a; b++) {
                double dot = 0;
                for (size_t k = 0; k < len; k++)
                    dot += rows < cols ? (double)x[a * cols + k] * (double)x[b * cols + k]
                                       : (double)x[k * cols + a] * (double)x[k * cols + b];
                CHECK(fabs(dot - (a == b ? 4 : 0)) < 1e-5, "shape %d: vectors %zu, %zu: %g", i, a,
                      b, dot);
            }
        check_free_guarded(x);
    }
}

TEST(a_function_of_seed_and_name)
{
    enum { N = 37 };
    float a[N], b[N];
    td_init init = {.kind = TD_INIT_NORMAL, .b = 1};
    td_shape shape = TD_SHAPE(N), shorter = TD_SHAPE(N - 3);
    CHECK_OK(td__init_fill(&init, &shape, 1, "fc1.weight", a));
    CHECK_OK(td__init_fill(&init, &shape, 1, "fc1.weight", b));
    CHECK(!memcmp(a, b, sizeof a), "not repeatable");
    CHECK_OK(td__init_fill(&init, &shorter, 1, "fc1.weight", b));
    CHECK(!memcmp(a, b, (N - 3) * sizeof *a), "a shorter tensor differs");
    CHECK_OK(td__init_fill(&init, &shape, 2, "fc1.weight", b));
    CHECK(memcmp(a, b, sizeof a) != 0, "the seed does nothing");
    CHECK_OK(td__init_fill(&init, &shape, 1, "fc2.weight", b));
    CHECK(memcmp(a, b, sizeof a) != 0, "the name does nothing");
}

TEST(refusals_name_the_param)
{
    static const struct {
        td_init init;
        td_shape shape;
    } BAD[] = {
        {{.kind = TD_INIT_KIND_COUNT}, LINEAR},
        {{.kind = TD_INIT_XAVIER_UNIFORM}, {1, {8}}},
        {{.kind = TD_INIT_ORTHOGONAL}, {1, {8}}},
        {{.kind = TD_INIT_NORMAL, .b = -1}, {1, {8}}},
        {{.kind = TD_INIT_NORMAL, .b = NAN}, {1, {8}}},
        {{.kind = TD_INIT_UNIFORM, .a = 1, .b = 0}, {1, {8}}},
    };
    float x[8];
    for (int i = 0; i < TD_LEN(BAD); i++) {
        CHECK_STATUS(td__init_fill(&BAD[i].init, &BAD[i].shape, 0, "fc9.weight", x), TD_EINVAL);
        CHECK(strstr(td_last_error(), "fc9.weight"), "row %d says: %s", i, td_last_error());
    }
}

TEST(no_memory)
{
    static float x[64 * 64];
    td_init init = {.kind = TD_INIT_ORTHOGONAL};
    td_shape shape = TD_SHAPE(64, 64);
    uint64_t live = td_alloc_get_stats().live;
    td_alloc_fail_at(1);
    CHECK_STATUS(td__init_fill(&init, &shape, 0, "w", x), TD_ENOMEM);
    td_alloc_fail_at(0);
    CHECK_EQ_INT(td_alloc_get_stats().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_and_bounds),         cmocka_unit_test(normal_is_normal),
        cmocka_unit_test(orthogonal_rows_or_columns), cmocka_unit_test(a_function_of_seed_and_name),
        cmocka_unit_test(refusals_name_the_param),    cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
