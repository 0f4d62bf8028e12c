/* Reductions, copies, look-up and dropout of the CPU backend at sizes that cross blocks, tiles and
 * folds, on every instruction set against the reference. Each must run on its own kernel. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "ops/attr.h"
#include "support/check.h"
#include "support/one_node.h"

static const td_dtype TYPES[] = {TD_F32, TD_BF16, TD_F16};

static td_desc desc(td_dtype t, td_shape s)
{
    return (td_desc){.dtype = t, .shape = s};
}

static void check(one_node *n, double rtol, double atol, const char *what)
{
    one_node_compare(n, rtol, atol, what);
    CHECK(strcmp(n->impl, "reference") != 0, "%s runs on the reference", what);
    one_node_fini(n);
}

/* ---- Reductions. ---- */

TEST(reductions_over_any_axes)
{
    static const td_opcode OPS[] = {TD_OP_SUM, TD_OP_MEAN, TD_OP_MAX};
    const td_shape shapes[] = {TD_SHAPE(3, 2500), TD_SHAPE(200, 1500), TD_SHAPE(4, 3, 5, 7),
                               TD_SHAPE(2, 70, 3, 33)};

    for (int o = 0; o < TD_LEN(OPS); o++)
        for (int t = 0; t < TD_LEN(TYPES); t++)
            for (int s = 0; s < TD_LEN(shapes); s++)
                for (unsigned axes = 0; axes < 1u << shapes[s].ndim; axes++) {
                    td_attr_reduce a = {.axes = axes, .out_dtype = TD_F32};
                    td_desc x = desc(TYPES[t], shapes[s]);
                    one_node n;

                    if (o == 2)
                        a.out_dtype = TYPES[t];
                    one_node_init(&n, OPS[o], &a, 1, &x);
                    one_node_fill(&n, 0, -1, 2, 1);
                    check(&n, 1e-5, 1e-5, td__op(OPS[o])->name);
                }
}

TEST(max_keeps_nan)
{
    for (unsigned axes = 1; axes < 4; axes++) {
        td_attr_reduce a = {.axes = axes, .out_dtype = TD_F32};
        td_desc x = desc(TD_F32, TD_SHAPE(40, 70));
        one_node n;

        one_node_init(&n, TD_OP_MAX, &a, 1, &x);
        one_node_fill(&n, 0, -1, 2, 1);
        element_set(TD_F32, n.x[0], 35, __builtin_nan(""));
        element_set(TD_F32, n.x[0], 70 * 39 + 69, __builtin_nan(""));
        check(&n, 0, 0, "max of NaN");
    }
}

/* ---- Copies: any type, compared bit for bit. ---- */

static const td_dtype MOVED[] = {TD_F32, TD_BF16, TD_U8, TD_I64};

static void moves(td_opcode op, const void *attr, int n_in, const td_shape *in)
{
    for (int t = 0; t < TD_LEN(MOVED); t++) {
        td_desc d[TD_MAX_IN];
        one_node n;

        if (op == TD_OP_SLICE_BACK && !td_dtype_is_float(MOVED[t]))
            continue;
        for (int i = 0; i < n_in; i++)
            d[i] = desc(MOVED[t], in[i]);
        one_node_init(&n, op, attr, n_in, d);
        for (int i = 0; i < n_in; i++)
            one_node_fill(&n, i, 0, 250, (uint32_t)i);
        check(&n, 0, 0, td__op(op)->name);
    }
}

TEST(permute_all_orders)
{
    static const td_attr_permute ORDERS[] = {
        {{0, 2, 1, 3}}, {{3, 2, 1, 0}}, {{0, 1, 3, 2}},
        {{2, 0, 3, 1}}, {{0, 1, 2, 3}}, {{1, 0, 2, 3}},
    };
    const td_shape x = TD_SHAPE(3, 19, 5, 37);

    for (int i = 0; i < TD_LEN(ORDERS); i++)
        moves(TD_OP_PERMUTE, &ORDERS[i], 1, &x);
}

TEST(slice_and_back)
{
    static const struct {
        int axis;
        int64_t start, stop, step, size;
    } CUTS[] = {
        {0, 1, 5, 1, 4}, {0, 0, 6, 2, 3}, {1, 3, 17, 1, 14}, {1, 2, 19, 5, 4}, {2, 7, 8, 1, 1}};
    const td_shape x = TD_SHAPE(6, 19, 8);

    for (int i = 0; i < TD_LEN(CUTS); i++) {
        td_attr_slice a = {CUTS[i].axis, CUTS[i].start, CUTS[i].stop, CUTS[i].step, x};
        td_shape y = x;

        y.dim[CUTS[i].axis] = CUTS[i].size;
        moves(TD_OP_SLICE, &a, 1, &x);
        moves(TD_OP_SLICE_BACK, &a, 1, &y);
    }
}

TEST(concat_pad_expand)
{
    const td_shape three[] = {TD_SHAPE(3, 2, 7), TD_SHAPE(3, 5, 7), TD_SHAPE(3, 0, 7)};
    const td_attr_axis middle = {.axis = 1};
    const td_attr_pad frame = {.before = {1, 0, 3}, .after = {0, 2, 1}, .value = 7};
    const td_shape narrow = TD_SHAPE(5, 1, 7), one = TD_SCALAR;
    const td_attr_shape wide = {TD_SHAPE(3, 5, 40, 7)}, flat = {TD_SHAPE(3, 500)};

    moves(TD_OP_CONCAT, &middle, 3, three);
    moves(TD_OP_PAD, &frame, 1, &three[1]);
    moves(TD_OP_EXPAND, &wide, 1, &narrow);
    moves(TD_OP_EXPAND, &flat, 1, &one);
}

TEST(gather_both_ways)
{
    for (int axis = 0; axis < 3; axis++) {
        td_shape x = TD_SHAPE(5, 6, 7), ix = TD_SHAPE(4, 3, 6);
        td_attr_axis a = {.axis = axis, .input = x};
        one_node n;

        one_node_init(&n, TD_OP_GATHER, &a, 2, (td_desc[]){desc(TD_F32, x), desc(TD_I64, ix)});
        one_node_fill(&n, 0, -1, 1, 1);
        one_node_fill(&n, 1, -1, 8, 2); /* some are outside */
        check(&n, 0, 0, "gather");
        one_node_init(&n, TD_OP_GATHER_BACK, &a, 2,
                      (td_desc[]){desc(TD_I32, ix), desc(TD_F32, ix)});
        one_node_fill(&n, 0, -1, 8, 2);
        one_node_fill(&n, 1, -1, 1, 1);
        check(&n, 1e-6, 1e-6, "gather_back");
    }
}

/* ---- Look-up. ---- */

TEST(embedding_family)
{
    enum { V = 300, D = 37, N = 500, B = 41 };
    const td_attr_embedding attrs[] = {{.out_dtype = TD_F32, .rows = V, .mode = TD_BAG_SUM},
                                       {.out_dtype = TD_F32, .rows = V, .mode = TD_BAG_MEAN}};

    for (int t = 0; t < TD_LEN(TYPES); t++)
        for (int a = 0; a < 2; a++) {
            td_desc ids = desc(a ? TD_I64 : TD_I32, TD_SHAPE(N)),
                    table = desc(TD_F32, TD_SHAPE(V, D));
            td_desc offsets = desc(TD_I32, TD_SHAPE(B)), rows = desc(TYPES[t], TD_SHAPE(N, D));
            td_desc bags = desc(TYPES[t], TD_SHAPE(B, D));
            const struct {
                td_opcode op;
                int n_in;
                td_desc in[3];
            } cases[] = {
                {TD_OP_EMBEDDING, 2, {ids, table}},
                {TD_OP_EMBEDDING_BACK, 2, {ids, rows}},
                {TD_OP_EMBEDDING_ROWS, 2, {ids, rows}},
                {TD_OP_EMBEDDING_BAG, 3, {ids, offsets, table}},
                {TD_OP_EMBEDDING_BAG_BACK, 3, {ids, offsets, bags}},
                {TD_OP_EMBEDDING_BAG_SPREAD, 3, {ids, offsets, bags}},
            };

            for (int c = 0; c < TD_LEN(cases); c++) {
                one_node n;

                one_node_init(&n, cases[c].op, &attrs[a], cases[c].n_in, cases[c].in);
                /* Padding (-1) and bad ids (V) occur; offsets fall and overlap. */
                one_node_fill(&n, 0, -1, V + 1, 5);
                for (int i = 1; i < cases[c].n_in; i++) {
                    bool index = !td_dtype_is_float(cases[c].in[i].dtype);
                    one_node_fill(&n, i, index ? -5 : -1, index ? N + 5 : 1, (uint32_t)i);
                }
                /* Where bags overlap, narrow types are rounded once per bag. */
                check(&n, TYPES[t] == TD_F32 ? 1e-5 : 0.02, TYPES[t] == TD_F32 ? 1e-5 : 0.05,
                      td__op(cases[c].op)->name);
            }
        }
}

/* ---- Dropout: the same elements as the definition, bit for bit in f32. ---- */

TEST(dropout_keeps_what_the_key_says)
{
    static const double PS[] = {0, 0.1, 0.5, 0.9999};

    for (int p = 0; p < TD_LEN(PS); p++)
        for (int t = 0; t < TD_LEN(TYPES); t++) {
            td_attr_dropout a = {.p = PS[p], .stream = 11};
            td_desc x = desc(TYPES[t], TD_SHAPE(3, 1001));
            one_node n;

            one_node_init(&n, TD_OP_DROPOUT, &a, 1, &x);
            n.ctx = (td_run_ctx){.seed = 0x123456789abcdef0u, .step = 77, .micro_batch = 3};
            n.in_place = t == 1;
            one_node_fill(&n, 0, 1, 2, 1);
            check(&n, TYPES[t] == TD_F32 ? 2e-7 : 0.01, 0, "dropout");
        }
}

/* ---- Metrics. ---- */

TEST(metrics)
{
    for (int t = 0; t < TD_LEN(TYPES); t++) {
        td_desc x = desc(TYPES[t], TD_SHAPE(30, 20)), target = desc(TD_I64, TD_SHAPE(30));
        const td_attr_topk five = {5};
        const td_attr_accuracy five_right = {.k = 5};
        const td_attr_reduce first = {.axes = 1}, last = {.axes = 2};
        one_node n;

        one_node_init(&n, TD_OP_ACCURACY, &five_right, 2, (td_desc[]){x, target});
        one_node_fill(&n, 0, 0, 1, 1);
        one_node_fill(&n, 1, -1, 21, 2);
        check(&n, 1e-7, 0, "accuracy");
        one_node_init(&n, TD_OP_TOP_K, &five, 1, &x);
        one_node_fill(&n, 0, 0, 1, 1);
        check(&n, 0, 0, "top_k");
        one_node_init(&n, TD_OP_ARGMAX, &first, 1, &x);
        one_node_fill(&n, 0, 0, 1, 1);
        element_set(TYPES[t], n.x[0], 43, __builtin_nan(""));
        element_set(TYPES[t], n.x[0], 63, __builtin_nan(""));
        check(&n, 0, 0, "argmax of columns");
        one_node_init(&n, TD_OP_ARGMAX, &last, 1, &x);
        one_node_fill(&n, 0, 0, 1, 1);
        check(&n, 0, 0, "argmax of rows");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_over_any_axes),
        cmocka_unit_test(max_keeps_nan),
        cmocka_unit_test(permute_all_orders),
        cmocka_unit_test(slice_and_back),
        cmocka_unit_test(concat_pad_expand),
        cmocka_unit_test(gather_both_ways),
        cmocka_unit_test(embedding_family),
        cmocka_unit_test(dropout_keeps_what_the_key_says),
        cmocka_unit_test(metrics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
