/* Kernels over rows (softmax, cross entropy, normalisation) on every instruction set against the
 * reference backend: widths around vector and block sizes, all narrow types, in place. Each must
 * run on its own kernel, not on the reference. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "ops/attr.h"
#include "support/check.h"
#include "support/one_node.h"

static const td_dtype TYPES[] = {TD_F32, TD_BF16, TD_F16};
static const int64_t WIDTHS[] = {1, 7, 33, 129, 1024, 2500};
static const int64_t ROWS[] = {2, 130};

static td_desc floats(td_dtype t, int64_t rows, int64_t width)
{
    return (td_desc){.dtype = t, .shape = TD_SHAPE(rows, width)};
}

static td_desc vector(td_dtype t, int64_t n)
{
    return (td_desc){.dtype = t, .shape = TD_SHAPE(n)};
}

/* One unit in the last place of a type. */
static double eps_of(td_dtype t)
{
    return t == TD_F32 ? 1e-6 : t == TD_BF16 ? 1.0 / 128 : 1.0 / 1024;
}

static void check(one_node *t, double rtol, double atol, const char *what)
{
    one_node_compare(t, rtol, atol, what);
    CHECK(strcmp(t->impl, "reference") != 0, "%s runs on the reference", what);
}

#define FOR_EACH_CASE(t, r, w)                 \
    for (int t = 0; t < TD_LEN(TYPES); t++)    \
        for (int r = 0; r < TD_LEN(ROWS); r++) \
            for (int w = 0; w < TD_LEN(WIDTHS); w++)

TEST(softmax_family)
{
    static const td_opcode OPS[] = {TD_OP_SOFTMAX, TD_OP_LOG_SOFTMAX, TD_OP_SOFTMAX_BACK,
                                    TD_OP_LOG_SOFTMAX_BACK};

    FOR_EACH_CASE(t, r, w)
    for (int o = 0; o < TD_LEN(OPS); o++) {
        td_desc d = floats(TYPES[t], ROWS[r], WIDTHS[w]);
        one_node n;

        one_node_init(&n, OPS[o], NULL, td__op(OPS[o])->n_in_min, (td_desc[]){d, d});
        one_node_fill(&n, 0, o < 2 ? -20 : -1, o < 2 ? 20 : 0, 1);
        if (n.node.n_in == 2)
            one_node_fill(&n, 1, -1, 1, 2);
        check(&n, 4 * eps_of(TYPES[t]), 1e-5 + (double)WIDTHS[w] * 3e-7, "rows");
        n.in_place = true;
        check(&n, 4 * eps_of(TYPES[t]), 1e-5 + (double)WIDTHS[w] * 3e-7, "in place");
        one_node_fini(&n);
    }
}

TEST(cross_entropy)
{
    static const td_attr_xent ATTRS[] = {
        {.smoothing = 0},
        {.use_ignore = true, .ignore_index = 0, .smoothing = 0.1},
    };

    FOR_EACH_CASE(t, r, w)
    for (int a = 0; a < TD_LEN(ATTRS); a++) {
        td_desc x = floats(TYPES[t], ROWS[r], WIDTHS[w]);
        td_desc in[4] = {
            x, vector(a ? TD_I64 : TD_I32, ROWS[r]), vector(TD_F32, ROWS[r]), {.dtype = TD_F32}};
        one_node n;

        one_node_init(&n, TD_OP_XENT, &ATTRS[a], 2, in);
        one_node_fill(&n, 0, -20, 20, 1);
        one_node_fill(&n, 1, 0, (double)WIDTHS[w], 2);
        check(&n, 1e-5, 1e-5, "loss");
        one_node_fini(&n);
        one_node_init(&n, TD_OP_XENT_BACK, &ATTRS[a], 4, in);
        one_node_fill(&n, 0, -2, 2, 1);
        one_node_fill(&n, 1, 0, (double)WIDTHS[w], 2);
        one_node_fill(&n, 2, 0, 1, 3);
        one_node_fill(&n, 3, 1, 2, 4);
        check(&n, 4 * eps_of(TYPES[t]), 1e-6, "dlogits");
        n.in_place = true;
        check(&n, 4 * eps_of(TYPES[t]), 1e-6, "dlogits in place");
        one_node_fini(&n);
    }
}

TEST(cross_entropy_refuses_bad_targets_and_masked_classes)
{
    static const td_attr_xent PLAIN = {.smoothing = 0};
    td_desc in[2] = {floats(TD_F32, 2, 2050), vector(TD_I32, 2)};
    one_node n;

    one_node_init(&n, TD_OP_XENT, &PLAIN, 2, in);
    one_node_fill(&n, 0, -1, 1, 1);
    for (int i = 0; i < 1500; i++)
        element_set(TD_F32, n.x[0], i, -INFINITY); /* more than the first block */
    element_set(TD_I32, n.x[1], 0, 2000);
    element_set(TD_I32, n.x[1], 1, 5);
    check(&n, 1e-5, 1e-5, "masked");
    element_set(TD_I32, n.x[1], 1, 2050);
    one_node_run_cpu(&n, td__cpu_isa());
    CHECK(isnan(element_get(TD_F32, n.y[0], 0)), "a target out of range must make the loss NaN");
    one_node_fini(&n);
}

TEST(layer_and_rms_norm)
{
    static const td_attr_norm EPS = {.eps = 1e-5};

    FOR_EACH_CASE(t, r, w)
    {
        td_desc x = floats(TYPES[t], ROWS[r], WIDTHS[w]), v = vector(TD_F32, WIDTHS[w]);
        td_desc stat = vector(TD_F32, ROWS[r]);
        double rtol = 4 * eps_of(TYPES[t]), atol = 2e-4;
        one_node n;

        one_node_init(&n, TD_OP_LAYER_NORM, &EPS, 3, (td_desc[]){x, v, v});
        for (int i = 0; i < 3; i++)
            one_node_fill(&n, i, -1, 3, (uint32_t)i);
        check(&n, rtol, atol, "layer_norm");
        one_node_fini(&n);
        one_node_init(&n, TD_OP_RMS_NORM, &EPS, 2, (td_desc[]){x, v});
        for (int i = 0; i < 2; i++)
            one_node_fill(&n, i, -1, 3, (uint32_t)i);
        check(&n, rtol, atol, "rms_norm");
        one_node_fini(&n);
        one_node_init(&n, TD_OP_LAYER_NORM_BACK, &EPS, 5, (td_desc[]){x, x, v, stat, stat});
        for (int i = 0; i < 5; i++)
            one_node_fill(&n, i, i < 4 ? -1 : 0.5, 1.5, (uint32_t)i);
        check(&n, rtol, atol, "layer_norm_back");
        one_node_fini(&n);
        one_node_init(&n, TD_OP_RMS_NORM_BACK, &EPS, 4, (td_desc[]){x, x, v, stat});
        for (int i = 0; i < 4; i++)
            one_node_fill(&n, i, i < 3 ? -1 : 0.5, 1.5, (uint32_t)i);
        check(&n, rtol, atol, "rms_norm_back");
        one_node_fini(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_family),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(cross_entropy_refuses_bad_targets_and_masked_classes),
        cmocka_unit_test(layer_and_rms_norm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
