/* The reference executor and the backends by name: widening, rounding once, memory orders,
 * integers, broadcasting, outputs in the memory of inputs; the null backend does nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/ref_exec.h"
#include "base/check.h"
#include "graph/backend_auto.h"
#include "ops/attr.h"
#include "support/check.h"
#include "support/one_node.h"

TEST(backends_have_names)
{
    static const char *const NAMES[] = {"cpu", "ref", "null", "far"};
    td_backend *b;

    for (int i = 0; i < TD_LEN(NAMES); i++) {
        CHECK_OK(td__backend_create(NAMES[i], &b));
        CHECK(strcmp(b->ops->name, NAMES[i]) == 0, "%s calls itself %s", NAMES[i], b->ops->name);
        CHECK_EQ_INT(b->ops->wants_nhwc, i == 0 || i == 3);
        CHECK(strcmp(td__device_name(b->device), i == 3 ? "far" : "host") == 0,
              "%s is on device %s", NAMES[i], td__device_name(b->device));
        td__backend_destroy(b);
    }
    CHECK_STATUS(td__backend_create("gpu9000", &b), TD_EINVAL);
    CHECK(b == NULL, "a failed create must leave NULL");
    td__backend_destroy(NULL);
}

/* x + 2^-9 of a bf16 1.0 with a tiny extra: rounding to f32 first would make a tie of it and lose
 * the extra; rounding once must go up. */
TEST(results_are_rounded_once)
{
    td_desc in[2] = {{.dtype = TD_F64, .shape = TD_SHAPE(4)}, {.dtype = TD_F64}};
    const td_attr_cast to_bf16 = {TD_BF16};
    one_node n;

    in[1] = in[0];
    one_node_init(&n, TD_OP_CAST, &to_bf16, 1, in);
    element_set(TD_F64, n.x[0], 0, 1 + 0x1p-8 + 0x1p-40);
    element_set(TD_F64, n.x[0], 1, -1 - 0x1p-8 - 0x1p-40);
    element_set(TD_F64, n.x[0], 2, 1 + 0x1p-8); /* a true tie: to even */
    element_set(TD_F64, n.x[0], 3, 1 + 0x1p-8 - 0x1p-40);
    one_node_run_ref(&n);
    CHECK(element_get(TD_BF16, n.y[0], 0) == 1 + 0x1p-7, "got %g", element_get(TD_BF16, n.y[0], 0));
    CHECK(element_get(TD_BF16, n.y[0], 1) == -1 - 0x1p-7, "got %g",
          element_get(TD_BF16, n.y[0], 1));
    CHECK(element_get(TD_BF16, n.y[0], 2) == 1, "got %g", element_get(TD_BF16, n.y[0], 2));
    CHECK(element_get(TD_BF16, n.y[0], 3) == 1, "got %g", element_get(TD_BF16, n.y[0], 3));
    one_node_fini(&n);
}

TEST(integers_are_cut_and_saturate)
{
    static const double IN[] = {2.9, -2.9, 1e10, -1e10, NAN, 300, -1};
    static const double I32[] = {2, -2, INT32_MAX, INT32_MIN, 0, 300, -1};
    static const double U8[] = {2, 0, 255, 0, 0, 255, 0};
    const td_attr_cast casts[] = {{TD_I32}, {TD_U8}};

    for (int c = 0; c < 2; c++) {
        td_desc in = {.dtype = TD_F32, .shape = TD_SHAPE(7)};
        one_node n;

        one_node_init(&n, TD_OP_CAST, &casts[c], 1, &in);
        for (int i = 0; i < 7; i++)
            element_set(TD_F32, n.x[0], i, IN[i]);
        one_node_run_ref(&n);
        for (int i = 0; i < 7; i++) {
            double got = element_get(casts[c].dtype, n.y[0], i), want = c ? U8[i] : I32[i];

            CHECK(got == want, "%g became %g, not %g", IN[i], got, want);
        }
        one_node_fini(&n);
    }
}

/* The same numbers in either order give the same result, in that order. */
TEST(channels_last_is_undone_and_redone)
{
    enum { N = 2, C = 3, H = 4, W = 5 };
    const td_attr_slope slope = {0.25};
    const td_shape s = TD_SHAPE(N, C, H, W);

    for (int t = 0; t < 2; t++) {
        td_desc plain = {.dtype = t ? TD_BF16 : TD_F32, .shape = s}, nhwc = plain;
        one_node a, b;

        nhwc.layout = TD_LAYOUT_NHWC;
        one_node_init(&a, TD_OP_LEAKY_RELU, &slope, 1, &plain);
        one_node_init(&b, TD_OP_LEAKY_RELU, &slope, 1, &nhwc);
        CHECK_EQ_INT(b.out[0].layout, TD_LAYOUT_NHWC);
        one_node_fill(&a, 0, -1, 1, 1);
        for (int n = 0; n < N; n++)
            for (int c = 0; c < C; c++)
                for (int p = 0; p < H * W; p++)
                    element_set(plain.dtype, b.x[0], (n * H * W + p) * C + c,
                                element_get(plain.dtype, a.x[0], (n * C + c) * H * W + p));
        one_node_run_ref(&a);
        one_node_run_ref(&b);
        for (int n = 0; n < N; n++)
            for (int c = 0; c < C; c++)
                for (int p = 0; p < H * W; p++)
                    CHECK(element_get(plain.dtype, b.y[0], (n * H * W + p) * C + c) ==
                              element_get(plain.dtype, a.y[0], (n * C + c) * H * W + p),
                          "differs at %d %d %d", n, c, p);
        one_node_fini(&a);
        one_node_fini(&b);
    }
}

TEST(broadcast_and_in_place)
{
    td_desc in[2] = {{.dtype = TD_F32, .shape = TD_SHAPE(2, 3)},
                     {.dtype = TD_F32, .shape = TD_SHAPE(2, 1)}};
    one_node n;

    one_node_init(&n, TD_OP_SUB, NULL, 2, in);
    for (int i = 0; i < 6; i++)
        element_set(TD_F32, n.x[0], i, i);
    element_set(TD_F32, n.x[1], 0, 10);
    element_set(TD_F32, n.x[1], 1, 20);
    n.in_place = true;
    one_node_run_ref(&n);
    for (int i = 0; i < 6; i++)
        CHECK(element_get(TD_F32, n.y[0], i) == i - (i < 3 ? 10 : 20), "element %d is %g", i,
              element_get(TD_F32, n.y[0], i));
    one_node_fini(&n);
}

TEST(leaves_are_refused)
{
    td_desc d = {.dtype = TD_F32, .shape = TD_SHAPE(2)};
    td_node leaf = {.op = TD_OP_INPUT, .name = "x", .n_out = 1, .out = &d};
    td_kernel k;

    CHECK_STATUS(td__ref_exec_plan(&leaf, &k), TD_ENOTSUP);
}

TEST(null_backend_computes_nothing)
{
    td_desc in = {.dtype = TD_F32, .shape = TD_SHAPE(100)};
    const bool is_param[1] = {false};
    td_backend *b;
    td_kernel k;
    one_node n;

    one_node_init(&n, TD_OP_EXP, NULL, 1, &in);
    one_node_fill(&n, 0, -1, 1, 1);
    CHECK_OK(td__backend_create("null", &b));
    CHECK_OK(b->ops->plan(b, &n.node, is_param, &k));
    CHECK_EQ_INT(k.scratch, 0);
    memset(n.y[0], 0x11, 400);
    td_kernel_call c = {.in = (const void *const *)n.x, .out = n.y, .kernel = &k, .ctx = &n.ctx};
    k.run(&c);
    for (int i = 0; i < 400; i++)
        CHECK_EQ_INT(((const char *)n.y[0])[i], 0x11);
    td__backend_destroy(b);
    one_node_fini(&n);
}

/* What checkpoints say of a GPU: a process names the libraries that any of its jobs has loaded. */
TEST(gpus_are_compared_by_what_both_name)
{
    static const char *const WAS = "NVIDIA H200, driver for CUDA 13.0, cuBLASLt 13.1.0";
    static const struct {
        const char *is;
        bool same;
    } CASES[] = {
        {"NVIDIA H200, driver for CUDA 13.0, cuBLASLt 13.1.0", true},
        {"NVIDIA H200, driver for CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.19.0", true},
        {"NVIDIA H200, driver for CUDA 13.0, cuDNN 9.19.0, cuBLASLt 13.1.0", true},
        {"NVIDIA H200, driver for CUDA 13.0", true},
        {"NVIDIA H200, driver for CUDA 13.0, cuBLASLt 13.1", false},
        {"NVIDIA H200, driver for CUDA 13.0, cuBLASLt 13.2.0, cuDNN 9.19.0", false},
        {"NVIDIA H200, driver for CUDA 12.8, cuBLASLt 13.1.0", false},
        {"NVIDIA H20, driver for CUDA 13.0, cuBLASLt 13.1.0", false},
        {"", false},
    };
    for (int i = 0; i < TD_LEN(CASES); i++) {
        CHECK(td__backend_same_gpu(WAS, CASES[i].is) == CASES[i].same, "%s", CASES[i].is);
        CHECK(td__backend_same_gpu(CASES[i].is, WAS) == CASES[i].same, "%s", CASES[i].is);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_have_names),
        cmocka_unit_test(results_are_rounded_once),
        cmocka_unit_test(integers_are_cut_and_saturate),
        cmocka_unit_test(channels_last_is_undone_and_redone),
        cmocka_unit_test(broadcast_and_in_place),
        cmocka_unit_test(leaves_are_refused),
        cmocka_unit_test(null_backend_computes_nothing),
        cmocka_unit_test(gpus_are_compared_by_what_both_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
