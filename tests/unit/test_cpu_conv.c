/* test_cpu_conv.c -- convolutions, pools, image norms and layout changes of the CPU backend against
 * the reference kernels, at shapes that reach every path: blocks and remainders of channels and
 * pixels, strides, padding, dilation, groups, in f32 and bf16. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <stdio.h>

#include "base/check.h"
#include "base/cpu.h"
#include "ops/attr.h"
#include "support/check.h"
#include "support/kernel_pair.h"

typedef struct conv_shape {
    int64_t n, c, h, w, o, kh, kw;
    int stride[2], pad[2], dilation[2], groups;
    bool bias, relu;
} conv_shape;

static const conv_shape CONVS[] = {
    {2, 16, 8, 8, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, true, false},  /* the common one */
    {3, 64, 7, 9, 48, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, false, true},  /* odd sizes */
    {2, 5, 6, 5, 7, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1, true, true},     /* no block fits */
    {2, 32, 4, 4, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, false, false}, /* small image */
    {2, 1, 12, 12, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, true, true},  /* first layers */
    {2, 3, 11, 10, 24, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1, false, false},
    {2, 16, 8, 8, 32, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1, false, false}, /* strides */
    {2, 33, 9, 7, 17, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1, true, false},
    {2, 16, 8, 8, 32, 1, 1, {2, 2}, {0, 0}, {1, 1}, 1, false, false},
    {2, 16, 9, 8, 32, 2, 3, {3, 2}, {0, 1}, {1, 1}, 1, false, false},
    {2, 32, 6, 6, 32, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1, true, true},  /* pointwise */
    {2, 16, 9, 9, 16, 3, 3, {1, 1}, {2, 2}, {2, 2}, 1, true, false}, /* dilation */
    {2, 16, 9, 9, 16, 3, 2, {2, 1}, {2, 1}, {2, 3}, 1, false, false},
    {2, 16, 6, 6, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 4, true, true},   /* groups */
    {2, 24, 7, 7, 24, 3, 3, {1, 1}, {1, 1}, {1, 1}, 24, true, false}, /* depthwise */
    {2, 20, 7, 7, 40, 3, 3, {2, 2}, {1, 1}, {1, 1}, 20, false, false},
    {1, 8, 5, 5, 8, 5, 5, {1, 1}, {4, 4}, {1, 1}, 1, false, false}, /* padding beyond half */
};

/* 3x3, stride 1, wide. */
static const conv_shape WINOGRAD[] = {
    {8, 32, 4, 4, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, true, false},
    {3, 32, 19, 21, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, true, true}, /* many blocks of tiles */
    {9, 64, 6, 5, 32, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1, true, false},  /* cut tiles */
    {11, 32, 3, 3, 32, 3, 3, {1, 1}, {2, 2}, {1, 1}, 1, false, false},
};

/* Few channels. */
static const conv_shape FIRST[] = {
    {2, 1, 12, 14, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, true, true},
    {2, 1, 13, 9, 64, 3, 3, {2, 1}, {0, 1}, {1, 1}, 1, true, false},
    {2, 3, 17, 14, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, true, false},
    {2, 3, 14, 31, 32, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1, false, true},
};

static td_desc image(td_dtype t, td_layout l, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (td_desc){t, l, TD_SHAPE(n, c, h, w)};
}

/* `impl` as in kernel_pair_check, for the forward pass. */
static void check_conv(const conv_shape *s, td_dtype t, td_layout l, double tol, const char *impl)
{
    td_attr_conv2d a = {.stride = {s->stride[0], s->stride[1]},
                        .pad = {s->pad[0], s->pad[1]},
                        .dilation = {s->dilation[0], s->dilation[1]},
                        .groups = s->groups,
                        .out_dtype = t};
    int64_t oh = (s->h + 2 * s->pad[0] - s->dilation[0] * (s->kh - 1) - 1) / s->stride[0] + 1;
    int64_t ow = (s->w + 2 * s->pad[1] - s->dilation[1] * (s->kw - 1) - 1) / s->stride[1] + 1;
    td_desc x = image(t, l, s->n, s->c, s->h, s->w), y = image(t, l, s->n, s->o, oh, ow);
    td_desc w = image(TD_F32, TD_LAYOUT_PLAIN, s->o, s->c / s->groups, s->kh, s->kw);
    td_desc b = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(s->o)};
    char name[96];

    snprintf(name, sizeof name, "conv %s C%d H%d O%d K%d", td_dtype_name(t), (int)s->c, (int)s->h,
             (int)s->o, (int)s->kh);
    for (unsigned param = 0; param < 2; param++) {
        td_attr_conv2d fwd = a;
        fwd.has_bias = s->bias;
        fwd.act = s->relu ? TD_ACT_RELU : TD_ACT_NONE;
        kernel_pair_check(&(kernel_pair){.name = name,
                                         .op = TD_OP_CONV2D,
                                         .attr = &fwd,
                                         .n_in = s->bias ? 3 : 2,
                                         .in = {x, w, b},
                                         .params = param << 1,
                                         .tol = tol},
                          impl);
        td_attr_conv2d data = a;
        data.other = x.shape;
        kernel_pair_check(&(kernel_pair){.name = name,
                                         .op = TD_OP_CONV2D_BACK_DATA,
                                         .attr = &data,
                                         .n_in = 2,
                                         .in = {y, w},
                                         .params = param << 1,
                                         .tol = tol},
                          NULL);
    }
    td_attr_conv2d weight = a;
    weight.has_bias = s->bias;
    weight.out_dtype = TD_F32;
    weight.other = w.shape;
    kernel_pair_check(&(kernel_pair){.name = name,
                                     .op = TD_OP_CONV2D_BACK_WEIGHT,
                                     .attr = &weight,
                                     .n_in = 2,
                                     .in = {y, x},
                                     .tol = tol},
                      NULL);
}

TEST(conv_f32)
{
    for (int i = 0; i < TD_LEN(CONVS); i++) {
        check_conv(&CONVS[i], TD_F32, TD_LAYOUT_NHWC, 2e-6, NULL);
        check_conv(&CONVS[i], TD_F32, TD_LAYOUT_PLAIN, 1e-5, NULL);
    }
}

TEST(conv_bf16)
{
    for (int i = 0; i < TD_LEN(CONVS); i++)
        check_conv(&CONVS[i], TD_BF16, TD_LAYOUT_NHWC, 1.2e-2, NULL);
}

TEST(conv_winograd)
{
    for (int i = 0; i < TD_LEN(WINOGRAD); i++) {
        check_conv(&WINOGRAD[i], TD_F32, TD_LAYOUT_NHWC, 2e-6, "winograd");
        check_conv(&WINOGRAD[i], TD_BF16, TD_LAYOUT_NHWC, 1.2e-2,
                   td__cpu_isa() == TD_ISA_AMX ? "shifted" : "winograd");
    }
}

TEST(conv_first_layer)
{
    for (int i = 0; i < TD_LEN(FIRST); i++) {
        check_conv(&FIRST[i], TD_F32, TD_LAYOUT_NHWC, 2e-6, NULL);
        check_conv(&FIRST[i], TD_BF16, TD_LAYOUT_NHWC, 1.2e-2, "direct");
    }
}

typedef struct pool_shape {
    int64_t n, c, h, w;
    int size[2], stride[2], pad[2];
} pool_shape;

static const pool_shape POOLS[] = {
    {2, 16, 8, 8, {2, 2}, {2, 2}, {0, 0}}, {2, 70, 9, 7, {3, 3}, {2, 2}, {1, 1}},
    {1, 3, 6, 6, {3, 2}, {1, 1}, {0, 0}},  {2, 130, 4, 5, {2, 3}, {2, 1}, {1, 1}},
    {2, 64, 5, 5, {2, 2}, {3, 3}, {0, 0}},
};

static void check_pools(td_dtype t, td_layout l, double tol)
{
    for (int i = 0; i < TD_LEN(POOLS); i++) {
        const pool_shape *s = &POOLS[i];
        td_desc x = image(t, l, s->n, s->c, s->h, s->w);
        int64_t oh = (s->h + 2 * s->pad[0] - s->size[0]) / s->stride[0] + 1;
        int64_t ow = (s->w + 2 * s->pad[1] - s->size[1]) / s->stride[1] + 1;
        td_desc y = image(t, l, s->n, s->c, oh, ow), where = y;
        td_desc one = image(t, l, s->n, s->c, 1, 1);
        td_attr_pool2d a = {.size = {s->size[0], s->size[1]},
                            .stride = {s->stride[0], s->stride[1]},
                            .pad = {s->pad[0], s->pad[1]},
                            .input = x.shape};
        td_attr_pool2d all = {.input = x.shape};

        where.dtype = TD_U8;
        /* clang-format off */
        const kernel_pair pairs[] = {
            {"max pool", TD_OP_MAX_POOL2D, &a, 1, {x}, .tol = 0},
            {"avg pool", TD_OP_AVG_POOL2D, &a, 1, {x}, .tol = tol},
            {"avg pool back", TD_OP_AVG_POOL2D_BACK, &a, 1, {y}, .tol = tol},
            {"global pool", TD_OP_GLOBAL_AVG_POOL, &all, 1, {x}, .tol = tol},
            {"global pool back", TD_OP_GLOBAL_AVG_POOL_BACK, &all, 1, {one}, .tol = tol},
            {"max pool back", TD_OP_MAX_POOL2D_BACK, &a, 2, {y, where},
             .below = s->size[0] * s->size[1], .tol = tol},
        };
        /* clang-format on */
        /* Random window positions are all inside the image only where nothing is padded. */
        int n = s->pad[0] || s->pad[1] ? TD_LEN(pairs) - 1 : TD_LEN(pairs);
        for (int k = 0; k < n; k++)
            kernel_pair_check(&pairs[k], NULL);
    }
}

TEST(pools)
{
    check_pools(TD_F32, TD_LAYOUT_NHWC, 1e-6);
    check_pools(TD_BF16, TD_LAYOUT_NHWC, 8e-3);
    check_pools(TD_F32, TD_LAYOUT_PLAIN, 1e-6);
}

typedef struct norm_shape {
    int64_t n, c, h, w;
    int groups;
} norm_shape;

static const norm_shape NORMS[] = {
    {2, 64, 8, 8, 4}, {3, 21, 5, 7, 3}, {1, 16, 3, 3, 16}, {4, 200, 2, 2, 1}, {40, 32, 6, 6, 2},
};

static void check_batch_norm(const norm_shape *s, td_dtype t, td_layout l, bool relu, bool residual,
                             bool running, double tol)
{
    const char *impl = l == TD_LAYOUT_NHWC ? "channels-last" : "turned";
    td_desc x = image(t, l, s->n, s->c, s->h, s->w);
    td_desc v = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(s->c)};
    td_attr_norm a = {.eps = 1e-5,
                      .momentum = 0.1,
                      .act = relu ? TD_ACT_RELU : TD_ACT_NONE,
                      .has_residual = residual,
                      .has_running = running};
    kernel_pair fwd = {.name = "batch norm",
                       .op = TD_OP_BATCH_NORM,
                       .attr = &a,
                       .n_in = 3,
                       .in = {x, v, v},
                       .tol = tol};
    kernel_pair eval = {.name = "batch norm eval",
                        .op = TD_OP_BATCH_NORM_EVAL,
                        .attr = &a,
                        .n_in = 5,
                        .in = {x, v, v, v, v},
                        .positive = 1u << 4,
                        .tol = tol};

    if (running) {
        fwd.in[fwd.n_in++] = v;
        fwd.in[fwd.n_in++] = v;
    }
    if (residual) {
        fwd.in[fwd.n_in++] = x;
        eval.in[eval.n_in++] = x;
    }
    kernel_pair_check(&fwd, impl);
    kernel_pair_check(&eval, impl);
    kernel_pair_check(&(kernel_pair){.name = "batch norm back",
                                     .op = TD_OP_BATCH_NORM_BACK,
                                     .attr = &a,
                                     .n_in = 6,
                                     .in = {x, x, v, v, v, x},
                                     .positive = 1u << 4,
                                     .tol = tol},
                      impl);
}

TEST(batch_norm)
{
    for (int i = 0; i < TD_LEN(NORMS); i++) {
        for (int variant = 0; variant < 8; variant++) {
            bool relu = variant & 1, residual = variant & 2, running = residual || (variant & 4);
            check_batch_norm(&NORMS[i], TD_F32, TD_LAYOUT_NHWC, relu, residual, running, 1e-5);
            check_batch_norm(&NORMS[i], TD_BF16, TD_LAYOUT_NHWC, relu, residual, running, 8e-3);
            check_batch_norm(&NORMS[i], TD_F32, TD_LAYOUT_PLAIN, relu, residual, running, 1e-5);
        }
    }
}

TEST(batch_norm_of_vectors)
{
    td_desc x = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(33, 70)},
            v = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(70)};
    td_attr_norm a = {.eps = 1e-5};

    kernel_pair_check(&(kernel_pair){.name = "batch norm",
                                     .op = TD_OP_BATCH_NORM,
                                     .attr = &a,
                                     .n_in = 3,
                                     .in = {x, v, v},
                                     .tol = 3e-6},
                      "channels-last");
    kernel_pair_check(&(kernel_pair){.name = "batch norm back",
                                     .op = TD_OP_BATCH_NORM_BACK,
                                     .attr = &a,
                                     .n_in = 6,
                                     .in = {x, x, v, v, v, x},
                                     .positive = 1u << 4,
                                     .tol = 3e-6},
                      "channels-last");
}

static void check_group_norm(const norm_shape *s, td_dtype t, double tol)
{
    td_desc x = image(t, TD_LAYOUT_NHWC, s->n, s->c, s->h, s->w);
    td_desc v = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(s->c)};
    td_desc stats = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(s->n, s->groups)};
    td_attr_norm a = {.eps = 1e-5, .groups = s->groups};

    kernel_pair_check(&(kernel_pair){.name = "group norm",
                                     .op = TD_OP_GROUP_NORM,
                                     .attr = &a,
                                     .n_in = 3,
                                     .in = {x, v, v},
                                     .tol = tol},
                      "nhwc group norm");
    kernel_pair_check(&(kernel_pair){.name = "group norm back",
                                     .op = TD_OP_GROUP_NORM_BACK,
                                     .attr = &a,
                                     .n_in = 5,
                                     .in = {x, x, v, stats, stats},
                                     .positive = 1u << 4,
                                     .tol = tol},
                      "nhwc group norm");
}

TEST(group_norm)
{
    for (int i = 0; i < TD_LEN(NORMS); i++) {
        check_group_norm(&NORMS[i], TD_F32, 3e-6);
        check_group_norm(&NORMS[i], TD_BF16, 8e-3);
    }
}

TEST(reorder)
{
    static const td_dtype TYPES[] = {TD_F32, TD_BF16, TD_U8};

    for (int i = 0; i < TD_LEN(NORMS); i++) {
        for (int t = 0; t < TD_LEN(TYPES); t++) {
            for (int to = 0; to < TD_LAYOUT_COUNT; to++) {
                const norm_shape *s = &NORMS[i];
                td_layout from = to == TD_LAYOUT_NHWC ? TD_LAYOUT_PLAIN : TD_LAYOUT_NHWC;
                td_desc x = image(TYPES[t], from, s->n, s->c, s->h, s->w);
                td_attr_reorder a = {.to = to};
                kernel_pair_check(&(kernel_pair){.name = "reorder",
                                                 .op = TD_OP_REORDER,
                                                 .attr = &a,
                                                 .n_in = 1,
                                                 .in = {x},
                                                 .below = 200},
                                  "transpose");
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_f32),
        cmocka_unit_test(conv_bf16),
        cmocka_unit_test(conv_winograd),
        cmocka_unit_test(conv_first_layer),
        cmocka_unit_test(pools),
        cmocka_unit_test(batch_norm),
        cmocka_unit_test(batch_norm_of_vectors),
        cmocka_unit_test(group_norm),
        cmocka_unit_test(reorder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
