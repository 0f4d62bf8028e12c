/* op_conv2d.c -- two-dimensional convolution and its backward to the data and to the weight.
 *
 *     y[n,o,p,q] = b[o] + sum over c, i, j of w[o,c,i,j] x[n, c0 + c, h, v]
 *     h = p stride[0] + i dilation[0] - pad[0],   v = q stride[1] + j dilation[1] - pad[1]
 *
 * for x (N, C, H, W) and w (O, C/groups, KH, KW); output channel o sees the C/groups input channels
 * from c0 = (o / (O/groups)) C/groups on; positions outside the image count as zero. One relu may
 * follow. All three operators walk over the same (x, w, y) triples, differing only in which of them
 * they add to: one loop below serves all.
 *
 * dw and db are sums over the batch and have the dtype of the weight; dw is never NHWC. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <string.h>

#include "ops/op_check.h"

/* Check the attributes and the shapes of x and w against each other; give the shape of y. */
static td_status conv_shape(const td_attr_conv2d *at, const td_shape *x, const td_shape *w,
                            td_shape *y)
{
    if (at->groups < 1)
        return TD_FAIL(TD_EINVAL, "groups is %d; it must be at least 1", at->groups);
    if (w->dim[1] > INT64_MAX / at->groups || w->dim[1] * at->groups != x->dim[1])
        return TD_FAIL(TD_EINVAL, "x has %lld channels; w takes %lld in each of %d groups",
                       (long long)x->dim[1], (long long)w->dim[1], at->groups);
    if (w->dim[0] % at->groups != 0)
        return TD_FAIL(TD_EINVAL, "%lld output channels do not split in %d groups",
                       (long long)w->dim[0], at->groups);
    *y = TD_SHAPE(x->dim[0], w->dim[0], 0, 0);
    for (int i = 0; i < 2; i++) {
        int64_t size = x->dim[2 + i], kernel = w->dim[2 + i];
        if (at->stride[i] < 1 || at->dilation[i] < 1 || at->pad[i] < 0)
            return TD_FAIL(TD_EINVAL,
                           "stride %d, dilation %d, pad %d: at least 1, 1 and 0 are needed",
                           at->stride[i], at->dilation[i], at->pad[i]);
        if (kernel < 1 || kernel > INT_MAX)
            return TD_FAIL(TD_EINVAL, "the kernel's size is %lld", (long long)kernel);
        if (size > INT64_MAX / 2)
            return TD_FAIL(TD_EINVAL, "an image of %lld %s is too large", (long long)size,
                           i ? "columns" : "rows");
        int64_t reach = (int64_t)at->dilation[i] * (kernel - 1) + 1;
        int64_t padded = size + 2 * (int64_t)at->pad[i];
        if (reach > padded)
            return TD_FAIL(TD_EINVAL,
                           "the kernel reaches over %lld %s, the padded image has only %lld",
                           (long long)reach, i ? "columns" : "rows", (long long)padded);
        y->dim[2 + i] = (padded - reach) / at->stride[i] + 1;
    }
    return td__want_count(y, "y");
}

static td_status conv2d_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_conv2d *at = a->attr;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_weight(a, 1, "w"));
    TD_TRY(td__want_ndim(a, 0, "x", 4));
    TD_TRY(td__want_ndim(a, 1, "w", 4));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    if (at->act != TD_ACT_NONE && at->act != TD_ACT_RELU)
        return TD_FAIL(TD_EINVAL, "activation %d cannot be fused; only relu can", (int)at->act);
    if (a->n_in != (at->has_bias ? 3 : 2))
        return TD_FAIL(TD_EINVAL, "%d inputs given; %s bias there are %d", a->n_in,
                       at->has_bias ? "with" : "without", at->has_bias ? 3 : 2);
    out[0] = (td_desc){.dtype = td__out_dtype(t, at->out_dtype), .layout = a->in_desc[0]->layout};
    TD_TRY(conv_shape(at, &a->in_desc[0]->shape, &a->in_desc[1]->shape, &out[0].shape));
    if (at->has_bias) {
        TD_TRY(td__want_weight_vector(a, 2, "b", a->in_desc[1]->shape.dim[0]));
    }
    *n_out = 1;
    return TD_OK;
}

typedef enum target { TO_Y, TO_X, TO_W } target;

/* The operands of a convolution and their sizes. The loops take all three as writable and write
 * one. */
typedef struct operands {
    const td_attr_conv2d *at;
    const int64_t *xd, *wd, *yd; /* (N, C, H, W), (O, C/groups, KH, KW), (N, O, OH, OW) */
    double *x, *w, *y;
} operands;

/* All products of output element (n, o, p, q) and row i of the kernel of input channel c of its
 * group, added to the target. */
static void add_products(const operands *v, const int64_t *nopq, int64_t c, int64_t i, target to)
{
    int64_t n = nopq[0], o = nopq[1], p = nopq[2], q = nopq[3];
    int64_t per_group = v->wd[0] / v->at->groups; /* output channels */
    int64_t channel = o / per_group * v->wd[1] + c;
    int64_t h = p * v->at->stride[0] + i * v->at->dilation[0] - v->at->pad[0];
    double *y = v->y + ((n * v->yd[1] + o) * v->yd[2] + p) * v->yd[3] + q;
    double *w = v->w + ((o * v->wd[1] + c) * v->wd[2] + i) * v->wd[3];

    if (h < 0 || h >= v->xd[2])
        return;
    double *x = v->x + ((n * v->xd[1] + channel) * v->xd[2] + h) * v->xd[3];
    for (int64_t j = 0; j < v->wd[3]; j++) {
        int64_t at = q * v->at->stride[1] + j * v->at->dilation[1] - v->at->pad[1];
        if (at < 0 || at >= v->xd[3])
            continue;
        if (to == TO_Y)
            *y += x[at] * w[j];
        else if (to == TO_X)
            x[at] += *y * w[j];
        else
            w[j] += *y * x[at];
    }
}

static void conv_loop(const operands *v, target to)
{
    const int64_t *d = v->yd;

    for (int64_t k = 0; k < d[0] * d[1] * d[2] * d[3]; k++) {
        const int64_t at[] = {k / (d[1] * d[2] * d[3]), k / (d[2] * d[3]) % d[1], k / d[3] % d[2],
                              k % d[3]};
        for (int64_t c = 0; c < v->wd[1]; c++)
            for (int64_t i = 0; i < v->wd[2]; i++)
                add_products(v, at, c, i, to);
    }
}

static double *operand(const void *p)
{
    return (double *)(uintptr_t)p;
}

static void conv2d_ref(const td_op_args *a)
{
    const td_attr_conv2d *at = a->attr;
    const td_shape *ys = &a->out_desc[0].shape;
    const double *b = at->has_bias ? a->in[2] : NULL; /* (O) */
    double *y = a->out[0];
    int64_t image = ys->dim[2] * ys->dim[3], count = td_shape_count(ys);

    for (int64_t i = 0; i < count; i++)
        y[i] = b ? b[i / image % ys->dim[1]] : 0;
    conv_loop(&(operands){.at = at,
                          .x = operand(a->in[0]),
                          .w = operand(a->in[1]),
                          .y = y,
                          .xd = a->in_desc[0]->shape.dim,
                          .wd = a->in_desc[1]->shape.dim,
                          .yd = ys->dim},
              TO_Y);
    for (int64_t i = 0; i < count && at->act == TD_ACT_RELU; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
}

static void conv2d_grad(const td_grad_args *ga)
{
    const td_attr_conv2d *at = ga->y->attr;
    td_graph *g = ga->g;
    td_node *x = ga->y->in[0], *w = ga->y->in[1];
    td_node *dy = ga->dy[0];
    bool need_bias = at->has_bias && ga->need[2];
    td_attr_conv2d back;

    if (at->act == TD_ACT_RELU)
        dy = TD__NODE(g, TD_OP_RELU_BACK, NULL, ga->y, dy);
    dy = td__cast_to(g, dy, x->out[0].dtype);
    memcpy(&back, at, sizeof back);
    back.act = TD_ACT_NONE;
    if (ga->need[0]) {
        back.has_bias = false;
        back.out_dtype = x->out[0].dtype;
        back.other = x->out[0].shape;
        ga->dx[0] = TD__NODE(g, TD_OP_CONV2D_BACK_DATA, &back, dy, w);
    }
    if (ga->need[1] || need_bias) {
        back.has_bias = need_bias;
        back.out_dtype = w->out[0].dtype;
        back.other = w->out[0].shape;
        td_node *dw = TD__NODE(g, TD_OP_CONV2D_BACK_WEIGHT, &back, dy, x);
        if (ga->need[1])
            ga->dx[1] = dw;
        if (need_bias)
            ga->dx[2] = td__part(g, dw, 1);
    }
}

/* Both backwards: check that dy, x and w belong together. */
static td_status back_shapes(const td_op_args *a, const td_shape *x, const td_shape *w)
{
    const td_attr_conv2d *at = a->attr;
    td_shape y;

    TD_TRY(td__want_count(&at->other, "the attribute"));
    if (at->other.ndim != 4)
        return TD_FAIL(TD_EINVAL, "the attribute's shape has %d axes, not 4", at->other.ndim);
    TD_TRY(conv_shape(at, x, w, &y));
    TD_TRY(td__want_shape(a, 0, "dy", &y));
    return td__want_float_dtype(at->out_dtype, "out_dtype");
}

static td_status back_data_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_conv2d *at = a->attr;
    td_dtype t = a->in_desc[0]->dtype;

    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_weight(a, 1, "w"));
    TD_TRY(td__want_ndim(a, 0, "dy", 4));
    TD_TRY(td__want_ndim(a, 1, "w", 4));
    TD_TRY(back_shapes(a, &at->other, &a->in_desc[1]->shape));
    out[0] = (td_desc){.dtype = td__out_dtype(t, at->out_dtype),
                       .layout = a->in_desc[0]->layout,
                       .shape = at->other};
    *n_out = 1;
    return TD_OK;
}

static void back_data_ref(const td_op_args *a)
{
    const td_attr_conv2d *at = a->attr;
    double *dx = a->out[0];
    int64_t count = td_shape_count(&at->other);

    for (int64_t i = 0; i < count; i++)
        dx[i] = 0;
    conv_loop(&(operands){.at = at,
                          .x = dx,
                          .w = operand(a->in[1]),
                          .y = operand(a->in[0]),
                          .xd = at->other.dim,
                          .wd = a->in_desc[1]->shape.dim,
                          .yd = a->in_desc[0]->shape.dim},
              TO_X);
}

static td_status back_weight_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_conv2d *at = a->attr;

    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_same_dtype(a, 1, "x"));
    TD_TRY(td__want_ndim(a, 0, "dy", 4));
    TD_TRY(td__want_ndim(a, 1, "x", 4));
    TD_TRY(td__want_same_layout(a, 1, "x"));
    TD_TRY(back_shapes(a, &a->in_desc[1]->shape, &at->other));
    td_dtype t = td__out_dtype(a->in_desc[0]->dtype, at->out_dtype);
    out[0] = (td_desc){.dtype = t, .shape = at->other};
    out[1] = (td_desc){.dtype = t, .shape = TD_SHAPE(at->other.dim[0])};
    *n_out = at->has_bias ? 2 : 1;
    return TD_OK;
}

static void back_weight_ref(const td_op_args *a)
{
    const td_attr_conv2d *at = a->attr;
    const td_shape *dys = &a->in_desc[0]->shape;
    const double *dy = a->in[0];
    double *dw = a->out[0];                       /* (O, C/groups, KH, KW) */
    double *db = a->n_out > 1 ? a->out[1] : NULL; /* (O) */
    int64_t count = td_shape_count(&at->other), image = dys->dim[2] * dys->dim[3];

    for (int64_t i = 0; i < count; i++)
        dw[i] = 0;
    conv_loop(&(operands){.at = at,
                          .x = operand(a->in[1]),
                          .w = dw,
                          .y = operand(dy),
                          .xd = a->in_desc[1]->shape.dim,
                          .wd = at->other.dim,
                          .yd = dys->dim},
              TO_W);
    for (int64_t o = 0; db && o < dys->dim[1]; o++) {
        db[o] = 0;
        for (int64_t n = 0; n < dys->dim[0]; n++)
            for (int64_t i = 0; i < image; i++)
                db[o] += dy[(n * dys->dim[1] + o) * image + i];
    }
}

TD_API td_node *td_conv2d(td_graph *g, td_node *x, td_node *w, td_node *b, const td_conv2d_opts *o)
{
    const td_conv2d_opts none = {.groups = 0};
    td_attr_conv2d at;

    o = o ? o : &none;
    memset(&at, 0, sizeof at);
    for (int i = 0; i < 2; i++) {
        at.stride[i] = o->stride[i] ? o->stride[i] : 1;
        at.pad[i] = o->pad[i];
        at.dilation[i] = o->dilation[i] ? o->dilation[i] : 1;
    }
    at.groups = o->groups ? o->groups : 1;
    at.act = TD_ACT_NONE;
    at.has_bias = b != NULL;
    at.out_dtype = x ? x->out[0].dtype : TD_F32;
    return td__node(g, TD_OP_CONV2D, &at, (td_node *[]){x, w, b}, b ? 3 : 2);
}

/* The cases: name, (N, C, H, W), (O, C/groups, KH, KW), (OH, OW), bias, too big for
 * gradient checks, attributes. All three operators are tried on each. */
#define STEPS(s, d) .stride = {s, s}, .dilation = {d, d}
#define PAD(h, w) .pad = {h, w}
#define BIG TD__ALL_INPUTS
#define CASES(X)                                                                                   \
    X(point, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, false, 0, STEPS(1, 1), .groups = 1)                     \
    X(pointwise, 2, 5, 3, 4, 3, 5, 1, 1, 3, 4, true, 0, STEPS(1, 1), .groups = 1)                  \
    X(plain, 2, 3, 5, 6, 4, 3, 3, 3, 3, 4, false, 0, STEPS(1, 1), .groups = 1)                     \
    X(padded, 2, 3, 5, 6, 4, 3, 3, 3, 5, 6, true, 0, STEPS(1, 1), .groups = 1, PAD(1, 1))          \
    X(relu, 1, 3, 5, 6, 4, 3, 3, 3, 5, 6, true, 0, STEPS(1, 1), .groups = 1, PAD(1, 1),            \
      .act = TD_ACT_RELU)                                                                          \
    X(uneven, 1, 2, 7, 6, 3, 2, 2, 3, 3, 4, false, 0, .stride = {3, 2}, .dilation = {1, 1},        \
      .groups = 1, PAD(1, 2), .act = TD_ACT_RELU) /* rows and columns left over */                 \
    X(strided, 2, 3, 8, 9, 4, 3, 3, 3, 4, 5, false, 0, STEPS(2, 1), .groups = 1, PAD(1, 1))        \
    X(skip, 2, 4, 6, 5, 6, 4, 1, 1, 3, 3, false, 0, STEPS(2, 1), .groups = 1)                      \
    X(dilated, 1, 2, 8, 7, 3, 2, 3, 2, 6, 6, true, 0, .stride = {1, 1}, .dilation = {2, 3},        \
      .groups = 1, PAD(1, 1))                                                                      \
    X(grouped, 2, 4, 5, 5, 6, 2, 3, 3, 5, 5, true, 0, STEPS(1, 1), .groups = 2, PAD(1, 1))         \
    X(depthwise, 2, 5, 6, 6, 5, 1, 3, 3, 6, 6, true, 0, STEPS(1, 1), .groups = 5, PAD(1, 1))       \
    X(multiplier, 1, 3, 6, 7, 6, 1, 3, 3, 3, 4, false, 0, STEPS(2, 1), .groups = 3, PAD(1, 1))     \
    /* two outputs for each channel */                                                             \
    X(empty, 0, 3, 5, 6, 4, 3, 3, 3, 3, 4, true, 0, STEPS(1, 1), .groups = 1)                      \
    X(block, 2, 16, 9, 9, 32, 16, 3, 3, 9, 9, true, BIG, STEPS(1, 1), .groups = 1, PAD(1, 1))      \
    X(block_relu, 2, 16, 9, 9, 32, 16, 3, 3, 9, 9, true, BIG, STEPS(1, 1), .groups = 1, PAD(1, 1), \
      .act = TD_ACT_RELU)                                                                          \
    X(block_half, 2, 17, 11, 9, 33, 17, 3, 3, 6, 5, false, BIG, STEPS(2, 1), .groups = 1,          \
      PAD(1, 1))                                                                                   \
    X(stem, 1, 3, 21, 21, 16, 3, 7, 7, 11, 11, false, BIG, STEPS(2, 1), .groups = 1, PAD(3, 3))    \
    X(gray, 3, 1, 12, 12, 32, 1, 3, 3, 10, 10, true, BIG, STEPS(1, 1), .groups = 1)                \
    X(block_point, 2, 64, 5, 7, 48, 64, 1, 1, 5, 7, false, BIG, STEPS(1, 1), .groups = 1)          \
    X(block_depthwise, 2, 32, 9, 8, 32, 1, 3, 3, 9, 8, true, BIG, STEPS(1, 1), .groups = 32,       \
      PAD(1, 1))                                                                                   \
    X(block_grouped, 1, 32, 8, 8, 32, 8, 3, 3, 8, 8, false, BIG, STEPS(1, 1), .groups = 4,         \
      PAD(1, 1))

#define X(name, n, c, h, w, o, cg, kh, kw, oh, ow, bias, skip, ...)               \
    static const td_attr_conv2d FORWARD_##name = {.has_bias = bias, __VA_ARGS__}; \
    static const td_attr_conv2d DATA_##name = {                                   \
        .has_bias = bias, __VA_ARGS__, .other = TD__DIMS(n, c, h, w)};            \
    static const td_attr_conv2d WEIGHT_##name = {                                 \
        .has_bias = bias, __VA_ARGS__, .other = TD__DIMS(o, cg, kh, kw)};
CASES(X)
#undef X

static const td_op_sample SAMPLES[] = {
#define X(name, n, c, h, w, o, cg, kh, kw, oh, ow, bias, skip, ...)            \
    {.n_in = (bias) ? 3 : 2,                                                   \
     .in = {TD__FLOATS(n, c, h, w), TD__FLOATS(o, cg, kh, kw), TD__FLOATS(o)}, \
     .attr = &FORWARD_##name,                                                  \
     .no_grad = skip},
    CASES(X)
#undef X
};

static const td_op_sample BACK_DATA_SAMPLES[] = {
#define X(name, n, c, h, w, o, cg, kh, kw, oh, ow, bias, skip, ...) \
    {.n_in = 2, .in = {TD__FLOATS(n, o, oh, ow), TD__FLOATS(o, cg, kh, kw)}, .attr = &DATA_##name},
    CASES(X)
#undef X
};

static const td_op_sample BACK_WEIGHT_SAMPLES[] = {
#define X(name, n, c, h, w, o, cg, kh, kw, oh, ow, bias, skip, ...) \
    {.n_in = 2, .in = {TD__FLOATS(n, o, oh, ow), TD__FLOATS(n, c, h, w)}, .attr = &WEIGHT_##name},
    CASES(X)
#undef X
};

const td_op_def td__op_conv2d = {
    .name = "conv2d",
    .n_in_min = 2,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_conv2d),
    .infer = conv2d_infer,
    .ref = conv2d_ref,
    .grad = conv2d_grad,
    .weights = TD__BIT(1) | TD__BIT(2),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_conv2d_back_data = {
    .name = "conv2d_back_data",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_conv2d),
    .infer = back_data_infer,
    .ref = back_data_ref,
    .grad = NULL,
    .weights = TD__BIT(1),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = BACK_DATA_SAMPLES,
    .n_samples = TD_LEN(BACK_DATA_SAMPLES),
};

const td_op_def td__op_conv2d_back_weight = {
    .name = "conv2d_back_weight",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_conv2d),
    .infer = back_weight_infer,
    .ref = back_weight_ref,
    .grad = NULL,
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = BACK_WEIGHT_SAMPLES,
    .n_samples = TD_LEN(BACK_WEIGHT_SAMPLES),
};
