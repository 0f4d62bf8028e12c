/* Elementwise kernels: every operator against its definition in double over a wide range with
 * infinities and NaN, on every instruction set; then the walks (broadcasting, layouts, types,
 * tails) and fused programs against the reference backend. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/ref_exec.h"
#include "base/check.h"
#include "ops/attr.h"
#include "support/check.h"
#include "support/one_node.h"

/* Sizes as a static initialiser. */
#define S(...)                                                                                    \
    {                                                                                             \
        .ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = { __VA_ARGS__ } \
    }
#define F(...)                                   \
    {                                            \
        .dtype = TD_F32, .shape = S(__VA_ARGS__) \
    }

/* ---- Functions. ---- */

static const td_attr_affine AFFINE = {-1.5, 0.25};
static const td_attr_clamp CLAMP = {-0.5, 3};
static const td_attr_slope SLOPE = {0.2};

/* How far off a result may be: `ulp` units in its last place plus `abs` of its scale. Inputs beyond
 * `limit` are not looked at: products inside of *_back operators of y in [-1, 1] overflow there. */
static const struct {
    td_opcode op;
    double ulp, abs;
    const void *attr;
    double limit;
} CASES[] = {
    {TD_OP_ADD, 0.5, 0, NULL, 0},        {TD_OP_SUB, 0.5, 0, NULL, 0},
    {TD_OP_MUL, 0.5, 0, NULL, 0},        {TD_OP_DIV, 0.5, 0, NULL, 0},
    {TD_OP_POW, 1, 0, NULL, 0},          {TD_OP_MAXIMUM, 0, 0, NULL, 0},
    {TD_OP_MINIMUM, 0, 0, NULL, 0},      {TD_OP_EQUAL, 0, 0, NULL, 0},
    {TD_OP_LESS, 0, 0, NULL, 0},         {TD_OP_LESS_EQUAL, 0, 0, NULL, 0},
    {TD_OP_AFFINE, 1, 1e-7, &AFFINE, 0}, {TD_OP_NEG, 0, 0, NULL, 0},
    {TD_OP_ABS, 0, 0, NULL, 0},          {TD_OP_EXP, 2, 0, NULL, 0},
    {TD_OP_LOG, 2, 0, NULL, 0},          {TD_OP_SQRT, 0.5, 0, NULL, 0},
    {TD_OP_RSQRT, 1.5, 0, NULL, 0},      {TD_OP_SQUARE, 0.5, 0, NULL, 0},
    {TD_OP_RECIPROCAL, 0.5, 0, NULL, 0}, {TD_OP_SIN, 2, 0, NULL, 0},
    {TD_OP_COS, 2, 0, NULL, 0},          {TD_OP_ERF, 6, 0, NULL, 0},
    {TD_OP_SIGN, 0, 0, NULL, 0},         {TD_OP_FLOOR, 0, 0, NULL, 0},
    {TD_OP_CLAMP, 0, 0, &CLAMP, 0},      {TD_OP_CLAMP_BACK, 0, 0, &CLAMP, 0},
    {TD_OP_RELU, 0, 0, NULL, 0},         {TD_OP_RELU_BACK, 0, 0, NULL, 0},
    {TD_OP_LEAKY_RELU, 1, 0, &SLOPE, 0}, {TD_OP_LEAKY_RELU_BACK, 1, 0, &SLOPE, 0},
    {TD_OP_GELU, 4, 1e-6, NULL, 0},      {TD_OP_GELU_BACK, 4, 3e-6, NULL, 0},
    {TD_OP_GELU_TANH, 4, 1e-6, NULL, 0}, {TD_OP_GELU_TANH_BACK, 4, 3e-6, NULL, 0},
    {TD_OP_SILU, 4, 1e-35, NULL, 0},     {TD_OP_SILU_BACK, 4, 1e-6, NULL, 0},
    {TD_OP_SIGMOID, 3, 0, NULL, 0},      {TD_OP_SIGMOID_BACK, 3, 0, NULL, 1e4},
    {TD_OP_TANH, 5, 0, NULL, 0},         {TD_OP_TANH_BACK, 3, 1e-6, NULL, 1e4},
    {TD_OP_SOFTPLUS, 3, 2e-38, NULL, 0}, {TD_OP_HUBER, 3, 1e-7, &SLOPE, 0},
};

/* Special numbers, then magnitudes from 1e-37 to 1e38 with both signs, then [-100, 100] evenly. No
 * multiple of any vector width. */
enum { N_LOG = 3001, N_EVEN = 6001 };
static const float SPECIAL[] = {
    0.0f,     -0.0f,    INFINITY, -INFINITY, NAN,      FLT_MAX, -FLT_MAX, FLT_MIN,
    -FLT_MIN, 1.0f,     -1.0f,    0.5f,      3.0f,     88.72f,  88.73f,   -87.33f,
    -87.34f,  -104.0f,  9.0f,     -9.0f,     3.925f,   1e6f,    1.1e6f,   3e7f,
    1e15f,    0.41421f, 2.0f,     0.7071f,   1.41421f, 1e-30f,  -1e-30f,
};
enum { COUNT = TD_LEN(SPECIAL) + N_LOG + N_EVEN };

static void fill_wide(float *x)
{
    int i = 0;

    for (; i < TD_LEN(SPECIAL); i++)
        x[i] = SPECIAL[i];
    for (int k = 0; k < N_LOG; k++, i++)
        x[i] = (float)((k % 2 ? -1 : 1) * pow(10, -37 + 75.0 * k / N_LOG));
    for (int k = 0; k < N_EVEN; k++, i++)
        x[i] = (float)(-100 + 200.0 * k / N_EVEN);
}

static double ulp_of(double want)
{
    float f = fabsf((float)want);

    return f < FLT_MIN ? (double)FLT_MIN : (double)(f - nextafterf(f, 0));
}

/* The slope formulas give inf * 0 at infinity although they have limits; kernels give the limit. */
static bool formula_fails(double x, double want)
{
    return isinf(x) && isnan(want);
}

static void check_case(int c, td__isa isa)
{
    const td_op_def *def = td__op(CASES[c].op);
    td_desc in[2] = {F(COUNT), F(COUNT)};
    one_node t;

    one_node_init(&t, CASES[c].op, CASES[c].attr, def->n_in_min, in);
    fill_wide(t.x[0]);
    if (def->n_in_min == 2)
        one_node_fill(&t, 1, -3, 3, 7);
    one_node_run_cpu(&t, isa);
    CHECK(strcmp(t.impl, "elementwise") == 0, "%s runs as %s", def->name, t.impl);
    for (int i = 0; i < COUNT; i++) {
        double x[2] = {element_get(TD_F32, t.x[0], i), 0};

        if (def->n_in_min == 2)
            x[1] = element_get(TD_F32, t.x[1], i);
        double exact = def->scalar(x, td__scalar_numbers(def, CASES[c].attr));
        double want = t.out[0].dtype == TD_F32 ? (double)(float)exact : exact;
        double got = element_get(t.out[0].dtype, t.y[0], i);
        bool ok;

        if (formula_fails(x[0], want) || (CASES[c].limit > 0 && fabs(x[0]) > CASES[c].limit))
            continue;
        if (isnan(want) || isnan(got) || isinf(want) || isinf(got))
            ok = (isnan(want) && isnan(got)) || want == got;
        else
            ok = fabs(got - exact) <= CASES[c].abs * fmax(1, fabs(x[1])) +
                                          CASES[c].ulp * ulp_of(want) * 1.0000001 +
                                          (fabs(want) < (double)FLT_MIN ? (double)FLT_MIN : 0);
        CHECK(ok, "%s on %s: f(%.9g, %.9g) is %.9g, not %.9g (%.2f ulp)", def->name,
              td__isa_name(isa), x[0], x[1], got, exact, (got - exact) / ulp_of(want));
    }
    one_node_fini(&t);
}

TEST(functions_are_accurate)
{
    td__isa isas[3];
    int n = one_node_isas(isas);

    for (int v = 0; v < n; v++)
        for (int c = 0; c < TD_LEN(CASES); c++)
            check_case(c, isas[v]);
}

TEST(every_scalar_operator_is_in_the_table)
{
    for (int op = 0; op < TD_OP_COUNT; op++) {
        bool found = op == TD_OP_CAST || op == TD_OP_WHERE || !td__op((td_opcode)op)->scalar;

        for (int c = 0; c < TD_LEN(CASES); c++)
            found = found || CASES[c].op == (td_opcode)op;
        CHECK(found, "%s has no accuracy case", td__op((td_opcode)op)->name);
    }
}

/* ---- Walks. ---- */

static const struct {
    td_shape a, b;
} PAIRS[] = {
    {S(1), S(1)},
    {S(40000), S(40000)},
    {S(40001), {.ndim = 0}},
    {{.ndim = 0}, S(3, 0)},
    {S(130, 17), S(17)},     /* short bias: fixed */
    {S(7, 300), S(300)},     /* longer than a small block */
    {S(3, 5000), S(5000)},   /* rows longer than any block */
    {S(130, 17), S(130, 1)}, /* one number per row */
    {S(3, 5000), S(3, 1)},
    {S(9, 1, 21), S(1, 13, 1)}, /* both broadcast */
    {S(4, 3, 5, 7), S(3, 1, 7)},
    {S(2, 3, 4, 5, 6), S(2, 1, 4, 1, 6)},
    {S(6, 2, 3, 300), S(6, 1, 3, 300)},
};
static const td_dtype TYPES[] = {TD_F32, TD_BF16, TD_F16};

TEST(broadcasting_matches_the_reference)
{
    for (int p = 0; p < TD_LEN(PAIRS); p++)
        for (int k = 0; k < TD_LEN(TYPES); k++) {
            td_desc in[2] = {{.dtype = TYPES[k], .shape = PAIRS[p].a},
                             {.dtype = TYPES[k], .shape = PAIRS[p].b}};
            char what[64];
            one_node t;

            one_node_init(&t, TD_OP_SUB, NULL, 2, in);
            one_node_fill(&t, 0, -2, 2, 1);
            one_node_fill(&t, 1, -2, 2, 2);
            (void)snprintf(what, sizeof what, "pair %d, %s", p, td_dtype_name(TYPES[k]));
            one_node_compare(&t, TYPES[k] == TD_F32 ? 1e-6 : 0.01, 1e-7, what);
            CHECK(strcmp(t.impl, "elementwise") == 0, "%s runs as %s", what, t.impl);
            one_node_fini(&t);
        }
}

TEST(images_channels_last)
{
    static const td_shape SECOND[] = {
        {.ndim = 4, .dim = {2, 19, 5, 3}}, {.ndim = 4, .dim = {1, 19, 1, 1}},
        {.ndim = 3, .dim = {19, 1, 1}},    {.ndim = 4, .dim = {2, 19, 1, 1}},
        {.ndim = 2, .dim = {5, 3}},        {.ndim = 4, .dim = {2, 1, 5, 3}},
    };

    for (int p = 0; p < TD_LEN(SECOND); p++) {
        td_desc in[2] = {
            {.dtype = TD_F32, .layout = TD_LAYOUT_NHWC, .shape = TD_SHAPE(2, 19, 5, 3)},
            {.dtype = TD_F32, .shape = SECOND[p]}};
        one_node t;

        if (SECOND[p].ndim == 4)
            in[1].layout = TD_LAYOUT_NHWC;
        one_node_init(&t, TD_OP_MUL, NULL, 2, in);
        CHECK_EQ_INT(t.out[0].layout, TD_LAYOUT_NHWC);
        one_node_fill(&t, 0, -2, 2, 1);
        one_node_fill(&t, 1, -2, 2, 2);
        one_node_compare(&t, 1e-6, 0, "nhwc");
        CHECK(strcmp(t.impl, "elementwise") == 0, "pair %d runs as %s", p, t.impl);
        one_node_fini(&t);
    }
}

TEST(casts_match_the_reference)
{
    for (int from = 0; from < TD_DTYPE_COUNT; from++)
        for (int to = 0; to < TD_DTYPE_COUNT; to++) {
            td_attr_cast attr = {(td_dtype)to};
            td_desc in = {.dtype = (td_dtype)from, .shape = TD_SHAPE(7, 311)};
            one_node t;

            one_node_init(&t, TD_OP_CAST, &attr, 1, &in);
            one_node_fill(&t, 0, from == TD_BOOL || from == TD_U8 ? 0 : -300,
                          from == TD_BOOL ? 2
                          : from == TD_U8 ? 256
                                          : 300,
                          3);
            one_node_compare(&t, 0, 0, td_dtype_name((td_dtype)from));
            one_node_fini(&t);
        }
}

TEST(where_takes_bool)
{
    td_desc in[3] = {{.dtype = TD_BOOL, .shape = TD_SHAPE(31, 1)}, F(31, 77), F(77)};
    one_node t;

    one_node_init(&t, TD_OP_WHERE, NULL, 3, in);
    one_node_fill(&t, 0, 0, 2, 1);
    one_node_fill(&t, 1, -1, 1, 2);
    one_node_fill(&t, 2, -1, 1, 3);
    one_node_compare(&t, 0, 0, "where");
    CHECK(strcmp(t.impl, "elementwise") == 0, "where runs as %s", t.impl);
    one_node_fini(&t);
}

/* ---- Fused programs. ---- */

/* Many live values, results used twice, inputs read late: all that register reuse can get wrong. */
static const td_attr_fused TANGLE = {
    .n_instr = 10,
    .n_out = 3,
    .instr = {{.op = TD_OP_MUL, .src = {0, 1}},                      /* 3 = a b */
              {.op = TD_OP_ADD, .src = {3, 2}},                      /* 4 = a b + c */
              {.op = TD_OP_TANH, .src = {4}},                        /* 5 */
              {.op = TD_OP_AFFINE, .src = {3}, .attr = {2, -1}},     /* 6 */
              {.op = TD_OP_SIGMOID, .src = {6}},                     /* 7 */
              {.op = TD_OP_MUL, .src = {5, 7}},                      /* 8 */
              {.op = TD_OP_LESS, .src = {8, 0}},                     /* 9: reads a late */
              {.op = TD_OP_WHERE, .src = {9, 4, 1}},                 /* 10: reads b late */
              {.op = TD_OP_CLAMP, .src = {10}, .attr = {-0.9, 0.9}}, /* 11 */
              {.op = TD_OP_SUB, .src = {11, 0}}},                    /* 12 */
    .result = {12, 9, 5},
    .dtype = {TD_F32, TD_BOOL, TD_BF16},
};

TEST(fused_program_matches_the_reference)
{
    static const td_desc SHAPES[][3] = {
        {F(5, 3001), F(5, 3001), F(3001)}, {F(311, 17), F(17), F(311, 1)}, {F(3), F(3), F(1)}};

    for (int p = 0; p < TD_LEN(SHAPES); p++)
        for (int half = 0; half < 2; half++) {
            td_desc in[3] = {SHAPES[p][0], SHAPES[p][1], SHAPES[p][2]};
            one_node t;

            in[1].dtype = half ? TD_BF16 : TD_F32;
            one_node_init(&t, TD_OP_FUSED, &TANGLE, 3, in);
            for (int i = 0; i < 3; i++)
                one_node_fill(&t, i, -2, 2, (uint32_t)i);
            one_node_compare(&t, 0.01, 1e-6, "tangle");
            CHECK(strcmp(t.impl, "fused chain") == 0, "tangle runs as %s", t.impl);
            t.in_place = true; /* output 0 over input a */
            one_node_compare(&t, 0.01, 1e-6, "tangle in place");
            one_node_fini(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_accurate),
        cmocka_unit_test(every_scalar_operator_is_in_the_table),
        cmocka_unit_test(broadcasting_matches_the_reference),
        cmocka_unit_test(images_channels_last),
        cmocka_unit_test(casts_match_the_reference),
        cmocka_unit_test(where_takes_bool),
        cmocka_unit_test(fused_program_matches_the_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
