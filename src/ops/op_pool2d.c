/* op_pool2d.c -- max, average and global average pooling of images, and their backwards.
 *
 * max      y = the largest value of each window, ties to the first in row-major order; padding
 *          never wins. `where` keeps the winner's index in its window, so that the backward, which
 *          sends dy to the winners, needs neither x nor y.
 * average  y = the sum of the window over its full size: padding counts as zeros.
 * global   y (N, C, 1, 1) = the mean of each image plane. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

/* Check a pool's attributes against an input shape (N, C, H, W); give the output's. */
static td_status pool_shape(const td_attr_pool2d *at, const td_shape *x, td_shape *y)
{
    *y = TD_SHAPE(x->dim[0], x->dim[1], 0, 0);
    for (int i = 0; i < 2; i++) {
        if (at->size[i] < 1 || at->stride[i] < 1 || at->pad[i] < 0)
            return TD_FAIL(TD_EINVAL, "size %d, stride %d, pad %d: at least 1, 1 and 0 are needed",
                           at->size[i], at->stride[i], at->pad[i]);
        if (at->pad[i] > at->size[i] / 2)
            return TD_FAIL(TD_EINVAL, "pad %d is more than half of the window's size %d",
                           at->pad[i], at->size[i]);
        if (x->dim[2 + i] > INT64_MAX / 2)
            return TD_FAIL(TD_EINVAL, "an image of %lld %s is too large", (long long)x->dim[2 + i],
                           i ? "columns" : "rows");
        int64_t padded = x->dim[2 + i] + 2 * (int64_t)at->pad[i];
        if (at->size[i] > padded)
            return TD_FAIL(TD_EINVAL, "the window has %d %s, the padded image only %lld",
                           at->size[i], i ? "columns" : "rows", (long long)padded);
        y->dim[2 + i] = (padded - at->size[i]) / at->stride[i] + 1;
    }
    return td__want_count(y, "y");
}

/* The index of a winner is kept in a byte. */
static td_status check_window(const td_attr_pool2d *at)
{
    if ((int64_t)at->size[0] * at->size[1] > 256)
        return TD_FAIL(TD_ENOTSUP, "a window of %d by %d; max pools hold at most 256 elements",
                       at->size[0], at->size[1]);
    return TD_OK;
}

static td_status pool_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_ndim(a, 0, "x", 4));
    out[0] = *a->in_desc[0];
    TD_TRY(pool_shape(a->attr, &a->in_desc[0]->shape, &out[0].shape));
    *n_out = 1;
    return TD_OK;
}

static td_status max_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(pool_infer(a, out, n_out));
    TD_TRY(check_window(a->attr));
    out[1] = out[0];
    out[1].dtype = TD_U8;
    *n_out = 2;
    return TD_OK;
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_pool2d *at = a->attr;
    td_shape y;

    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_count(&at->input, "the attribute"));
    if (at->input.ndim != 4)
        return TD_FAIL(TD_EINVAL, "the attribute's shape has %d axes, not 4", at->input.ndim);
    TD_TRY(pool_shape(at, &at->input, &y));
    TD_TRY(td__want_shape(a, 0, "dy", &y));
    out[0] = *a->in_desc[0];
    out[0].shape = at->input;
    *n_out = 1;
    return TD_OK;
}

static td_status max_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(back_infer(a, out, n_out));
    TD_TRY(check_window(a->attr));
    TD_TRY(td__want_shape(a, 1, "where", &a->in_desc[0]->shape));
    TD_TRY(td__want_same_layout(a, 1, "where"));
    if (a->in_desc[1]->dtype != TD_U8)
        return TD_FAIL(TD_EINVAL, "where is %s; it must be u8",
                       td_dtype_name(a->in_desc[1]->dtype));
    return TD_OK;
}

/* Offset in its plane of element (i, j) of the window of output (p, q); -1 in the padding. */
static int64_t window_at(const td_attr_pool2d *at, const td_shape *x, int64_t p, int64_t q, int i,
                         int j)
{
    int64_t h = p * at->stride[0] - at->pad[0] + i, w = q * at->stride[1] - at->pad[1] + j;

    return h < 0 || h >= x->dim[2] || w < 0 || w >= x->dim[3] ? -1 : h * x->dim[3] + w;
}

static void max_ref(const td_op_args *a)
{
    const td_attr_pool2d *at = a->attr;
    const td_shape *xs = &a->in_desc[0]->shape, *ys = &a->out_desc[0].shape;
    const double *x = a->in[0]; /* (N, C, H, W) */
    double *y = a->out[0];      /* (N, C, OH, OW) */
    uint8_t *where = a->out[1]; /* (N, C, OH, OW) */
    int64_t planes = ys->dim[0] * ys->dim[1];

    for (int64_t c = 0; c < planes; c++, x += xs->dim[2] * xs->dim[3])
        for (int64_t p = 0; p < ys->dim[2]; p++)
            for (int64_t q = 0; q < ys->dim[3]; q++, y++, where++) {
                *y = -INFINITY;
                *where = 0;
                bool found = false;
                for (int i = 0; i < at->size[0]; i++)
                    for (int j = 0; j < at->size[1]; j++) {
                        int64_t k = window_at(at, xs, p, q, i, j);
                        if (k < 0 || (found && !(x[k] > *y)))
                            continue;
                        found = true;
                        *y = x[k];
                        *where = (uint8_t)(i * at->size[1] + j);
                    }
            }
}

static void max_back_ref(const td_op_args *a)
{
    const td_attr_pool2d *at = a->attr;
    const td_shape *xs = &at->input, *ys = &a->in_desc[0]->shape;
    const double *dy = a->in[0];
    const uint8_t *where = a->in[1];
    double *dx = a->out[0];
    int64_t planes = ys->dim[0] * ys->dim[1], image = xs->dim[2] * xs->dim[3];

    for (int64_t i = 0; i < planes * image; i++)
        dx[i] = 0;
    for (int64_t c = 0; c < planes; c++, dx += image)
        for (int64_t p = 0; p < ys->dim[2]; p++)
            for (int64_t q = 0; q < ys->dim[3]; q++, dy++, where++) {
                int64_t k = window_at(at, xs, p, q, *where / at->size[1], *where % at->size[1]);
                if (k >= 0)
                    dx[k] += *dy;
            }
}

static void avg_ref(const td_op_args *a)
{
    const td_attr_pool2d *at = a->attr;
    const td_shape *xs = &a->in_desc[0]->shape, *ys = &a->out_desc[0].shape;
    const double *x = a->in[0];
    double *y = a->out[0], window = (double)at->size[0] * at->size[1];
    int64_t planes = ys->dim[0] * ys->dim[1];

    for (int64_t c = 0; c < planes; c++, x += xs->dim[2] * xs->dim[3])
        for (int64_t p = 0; p < ys->dim[2]; p++)
            for (int64_t q = 0; q < ys->dim[3]; q++, y++) {
                double sum = 0;
                for (int i = 0; i < at->size[0]; i++)
                    for (int j = 0; j < at->size[1]; j++) {
                        int64_t k = window_at(at, xs, p, q, i, j);
                        sum += k < 0 ? 0 : x[k];
                    }
                *y = sum / window;
            }
}

static void avg_back_ref(const td_op_args *a)
{
    const td_attr_pool2d *at = a->attr;
    const td_shape *xs = &at->input, *ys = &a->in_desc[0]->shape;
    const double *dy = a->in[0];
    double *dx = a->out[0], window = (double)at->size[0] * at->size[1];
    int64_t planes = ys->dim[0] * ys->dim[1], image = xs->dim[2] * xs->dim[3];

    for (int64_t i = 0; i < planes * image; i++)
        dx[i] = 0;
    for (int64_t c = 0; c < planes; c++, dx += image)
        for (int64_t p = 0; p < ys->dim[2]; p++)
            for (int64_t q = 0; q < ys->dim[3]; q++, dy++)
                for (int i = 0; i < at->size[0]; i++)
                    for (int j = 0; j < at->size[1]; j++) {
                        int64_t k = window_at(at, xs, p, q, i, j);
                        if (k >= 0)
                            dx[k] += *dy / window;
                    }
}

static void max_grad(const td_grad_args *ga)
{
    td_attr_pool2d at;

    memcpy(&at, ga->y->attr, sizeof at);
    at.input = ga->y->in[0]->out[0].shape;
    if (ga->need[0])
        ga->dx[0] =
            TD__NODE(ga->g, TD_OP_MAX_POOL2D_BACK, &at, ga->dy[0], td__part(ga->g, ga->y, 1));
}

static void avg_grad(const td_grad_args *ga)
{
    td_attr_pool2d at;

    memcpy(&at, ga->y->attr, sizeof at);
    at.input = ga->y->in[0]->out[0].shape;
    if (ga->need[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_AVG_POOL2D_BACK, &at, ga->dy[0]);
}

/* Global average pooling. */

static td_status global_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *x = &a->in_desc[0]->shape;

    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_ndim(a, 0, "x", 4));
    if (x->dim[2] < 1 || x->dim[3] < 1)
        return TD_FAIL(TD_EINVAL, "the mean of an empty image: %lld rows, %lld columns",
                       (long long)x->dim[2], (long long)x->dim[3]);
    out[0] = *a->in_desc[0];
    out[0].shape.dim[2] = out[0].shape.dim[3] = 1;
    *n_out = 1;
    return TD_OK;
}

static void global_ref(const td_op_args *a)
{
    const td_shape *xs = &a->in_desc[0]->shape;
    const double *x = a->in[0]; /* (N C, H W) */
    double *y = a->out[0];      /* (N C) */
    int64_t planes = xs->dim[0] * xs->dim[1], image = xs->dim[2] * xs->dim[3];

    for (int64_t c = 0; c < planes; c++) {
        double sum = 0;
        for (int64_t i = 0; i < image; i++)
            sum += x[c * image + i];
        y[c] = sum / (double)image;
    }
}

static void global_grad(const td_grad_args *ga)
{
    td_attr_pool2d at;

    memset(&at, 0, sizeof at);
    at.input = ga->y->in[0]->out[0].shape;
    if (ga->need[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_GLOBAL_AVG_POOL_BACK, &at, ga->dy[0]);
}

static td_status global_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_pool2d *at = a->attr;

    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_count(&at->input, "the attribute"));
    if (at->input.ndim != 4)
        return TD_FAIL(TD_EINVAL, "the attribute's shape has %d axes, not 4", at->input.ndim);
    td_shape y = TD_SHAPE(at->input.dim[0], at->input.dim[1], 1, 1);
    TD_TRY(td__want_shape(a, 0, "dy", &y));
    out[0] = *a->in_desc[0];
    out[0].shape = at->input;
    *n_out = 1;
    return TD_OK;
}

static void global_back_ref(const td_op_args *a)
{
    const td_shape *xs = &a->out_desc[0].shape;
    const double *dy = a->in[0]; /* (N C) */
    double *dx = a->out[0];      /* (N C, H W) */
    int64_t image = xs->dim[2] * xs->dim[3], count = td_shape_count(xs);

    for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i / image] / (double)image;
}

static td_node *pool_node(td_graph *g, td_opcode op, td_node *x, const td_pool2d_opts *o,
                          const char *call)
{
    td_attr_pool2d at;

    if (!o)
        return td__graph_fail(g, TD_EINVAL, call,
                              "the options are NULL; a window's size is needed");
    memset(&at, 0, sizeof at);
    for (int i = 0; i < 2; i++) {
        at.size[i] = o->size[i];
        at.stride[i] = o->stride[i] ? o->stride[i] : o->size[i];
        at.pad[i] = o->pad[i];
    }
    return TD__NODE(g, op, &at, x);
}

TD_API td_node *td_max_pool2d(td_graph *g, td_node *x, const td_pool2d_opts *o)
{
    return pool_node(g, TD_OP_MAX_POOL2D, x, o, "td_max_pool2d");
}

TD_API td_node *td_avg_pool2d(td_graph *g, td_node *x, const td_pool2d_opts *o)
{
    return pool_node(g, TD_OP_AVG_POOL2D, x, o, "td_avg_pool2d");
}

TD_API td_node *td_global_avg_pool(td_graph *g, td_node *x)
{
    return TD__NODE(g, TD_OP_GLOBAL_AVG_POOL, NULL, x);
}

/* The cases: name, (N, C, H, W), (OH, OW), size, stride, pad, gradients checked. */
#define BIG TD__ALL_INPUTS
#define CASES(X)                                         \
    X(point, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)      \
    X(halving, 2, 3, 6, 8, 3, 4, 2, 2, 2, 2, 0, 0, 0)    \
    X(remainder, 2, 3, 7, 9, 3, 4, 2, 2, 2, 2, 0, 0, 0)  \
    X(overlap, 1, 3, 7, 8, 4, 4, 3, 3, 2, 2, 1, 1, 0)    \
    X(slow, 1, 2, 5, 6, 5, 5, 3, 2, 1, 1, 1, 0, 0)       \
    X(gaps, 1, 2, 9, 8, 3, 2, 2, 3, 3, 4, 0, 1, 0)       \
    X(empty, 0, 3, 6, 8, 3, 4, 2, 2, 2, 2, 0, 0, 0)      \
    X(block, 2, 19, 14, 13, 7, 6, 2, 2, 2, 2, 0, 0, BIG) \
    X(block_stem, 1, 64, 15, 16, 8, 8, 3, 3, 2, 2, 1, 1, BIG)
#define X(name, n, c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, skip) \
    static const td_attr_pool2d POOL_##name = {                   \
        .size = {kh, kw}, .stride = {sh, sw}, .pad = {ph, pw}, .input = TD__DIMS(n, c, h, w)};
CASES(X)
#undef X

static const td_op_sample SAMPLES[] = {
#define X(name, n, c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, skip) \
    {.n_in = 1, .in = {TD__FLOATS(n, c, h, w)}, .attr = &POOL_##name, .no_grad = skip},
    CASES(X)
#undef X
};

/* Winners drawn in the padding count for nothing. */
static const td_op_sample MAX_BACK_SAMPLES[] = {
#define X(name, n, c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, skip) \
    {.n_in = 2,                                                   \
     .in = {TD__FLOATS(n, c, oh, ow), TD__BYTES(n, c, oh, ow)},   \
     .attr = &POOL_##name,                                        \
     .ilo = 0,                                                    \
     .ihi = (kh) * (kw)},
    CASES(X)
#undef X
};

static const td_op_sample AVG_BACK_SAMPLES[] = {
#define X(name, n, c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, skip) \
    {.n_in = 1, .in = {TD__FLOATS(n, c, oh, ow)}, .attr = &POOL_##name},
    CASES(X)
#undef X
};

static const td_op_sample GLOBAL_SAMPLES[] = {
    {.n_in = 1, .in = {TD__FLOATS(1, 1, 1, 1)}},
    {.n_in = 1, .in = {TD__FLOATS(2, 5, 3, 4)}},
    {.n_in = 1, .in = {TD__FLOATS(0, 5, 3, 4)}},
    {.n_in = 1, .in = {TD__FLOATS(3, 67, 7, 7)}, .no_grad = TD__ALL_INPUTS},
};

static const td_attr_pool2d GLOBAL_POINT = {.input = TD__DIMS(1, 1, 1, 1)},
                            GLOBAL_SMALL = {.input = TD__DIMS(2, 5, 3, 4)},
                            GLOBAL_EMPTY = {.input = TD__DIMS(0, 5, 3, 4)},
                            GLOBAL_BLOCK = {.input = TD__DIMS(3, 67, 7, 7)};
static const td_op_sample GLOBAL_BACK_SAMPLES[] = {
    {.n_in = 1, .in = {TD__FLOATS(1, 1, 1, 1)}, .attr = &GLOBAL_POINT},
    {.n_in = 1, .in = {TD__FLOATS(2, 5, 1, 1)}, .attr = &GLOBAL_SMALL},
    {.n_in = 1, .in = {TD__FLOATS(0, 5, 1, 1)}, .attr = &GLOBAL_EMPTY},
    {.n_in = 1, .in = {TD__FLOATS(3, 67, 1, 1)}, .attr = &GLOBAL_BLOCK},
};

const td_op_def td__op_max_pool2d = {
    .name = "max_pool2d",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_pool2d),
    .infer = max_infer,
    .ref = max_ref,
    .grad = max_grad,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_max_pool2d_back = {
    .name = "max_pool2d_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_pool2d),
    .infer = max_back_infer,
    .ref = max_back_ref,
    .grad = NULL,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = MAX_BACK_SAMPLES,
    .n_samples = TD_LEN(MAX_BACK_SAMPLES),
};

const td_op_def td__op_avg_pool2d = {
    .name = "avg_pool2d",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_pool2d),
    .infer = pool_infer,
    .ref = avg_ref,
    .grad = avg_grad,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_avg_pool2d_back = {
    .name = "avg_pool2d_back",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_pool2d),
    .infer = back_infer,
    .ref = avg_back_ref,
    .grad = NULL,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = AVG_BACK_SAMPLES,
    .n_samples = TD_LEN(AVG_BACK_SAMPLES),
};

const td_op_def td__op_global_avg_pool = {
    .name = "global_avg_pool",
    .n_in_min = 1,
    .n_in_max = 1,
    .infer = global_infer,
    .ref = global_ref,
    .grad = global_grad,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = GLOBAL_SAMPLES,
    .n_samples = TD_LEN(GLOBAL_SAMPLES),
};

const td_op_def td__op_global_avg_pool_back = {
    .name = "global_avg_pool_back",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_pool2d),
    .infer = global_back_infer,
    .ref = global_back_ref,
    .grad = NULL,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = GLOBAL_BACK_SAMPLES,
    .n_samples = TD_LEN(GLOBAL_BACK_SAMPLES),
};
