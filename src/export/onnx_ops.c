/* onnx_ops.c -- operators of the graph that are one or a few of ONNX's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/fail.h"
#include "export/onnx.h"
#include "ops/op.h"

/* The same in ONNX: no attributes, the same inputs. */
static const char *plain(td_opcode op)
{
    switch (op) {
    case TD_OP_ADD: return "Add";
    case TD_OP_SUB: return "Sub";
    case TD_OP_MUL: return "Mul";
    case TD_OP_DIV: return "Div";
    case TD_OP_POW: return "Pow";
    case TD_OP_MAXIMUM: return "Max";
    case TD_OP_MINIMUM: return "Min";
    case TD_OP_EQUAL: return "Equal";
    case TD_OP_LESS: return "Less";
    case TD_OP_LESS_EQUAL: return "LessOrEqual";
    case TD_OP_WHERE: return "Where";
    case TD_OP_NEG: return "Neg";
    case TD_OP_ABS: return "Abs";
    case TD_OP_EXP: return "Exp";
    case TD_OP_LOG: return "Log";
    case TD_OP_SQRT: return "Sqrt";
    case TD_OP_RECIPROCAL: return "Reciprocal";
    case TD_OP_SIN: return "Sin";
    case TD_OP_COS: return "Cos";
    case TD_OP_ERF: return "Erf";
    case TD_OP_SIGN: return "Sign";
    case TD_OP_FLOOR: return "Floor";
    case TD_OP_RELU: return "Relu";
    case TD_OP_SIGMOID: return "Sigmoid";
    case TD_OP_TANH: return "Tanh";
    case TD_OP_SOFTPLUS: return "Softplus";
    case TD_OP_DROPOUT: return "Identity";
    case TD_OP_GLOBAL_AVG_POOL: return "GlobalAveragePool";
    default: return NULL;
    }
}

static td__onnx_name scaled(td__onnx *x, const char *y, double scale)
{
    td__onnx_name k = td__onnx_number(x, scale);

    return TD_ONNX(x, "Mul", NULL, y, k.text);
}

/* out = y/2 (1 + f) */
static void half_of_one_and(td__onnx *x, const char *y, const char *f, const char *out)
{
    td__onnx_name one = td__onnx_number(x, 1), sum = TD_ONNX(x, "Add", NULL, f, one.text);
    td__onnx_name half = scaled(x, y, 0.5);

    TD_ONNX(x, "Mul", out, half.text, sum.text);
}

/* out = the activation of y. */
static td_status add_act(td__onnx *x, td_opcode op, const char *y, const char *out)
{
    td__onnx_name t;

    switch (op) {
    case TD_OP_RELU: TD_ONNX(x, "Relu", out, y); return TD_OK;
    case TD_OP_GELU:
        t = scaled(x, y, M_SQRT1_2);
        t = TD_ONNX(x, "Erf", NULL, t.text);
        half_of_one_and(x, y, t.text, out);
        return TD_OK;
    case TD_OP_GELU_TANH: { /* tanh(sqrt(2/pi) (y + 0.044715 y^3)) */
        td__onnx_name square = TD_ONNX(x, "Mul", NULL, y, y);
        td__onnx_name cube = TD_ONNX(x, "Mul", NULL, square.text, y);
        t = scaled(x, cube.text, 0.044715);
        t = TD_ONNX(x, "Add", NULL, y, t.text);
        t = scaled(x, t.text, sqrt(2 / M_PI));
        t = TD_ONNX(x, "Tanh", NULL, t.text);
        half_of_one_and(x, y, t.text, out);
        return TD_OK;
    }
    case TD_OP_SILU:
        t = TD_ONNX(x, "Sigmoid", NULL, y);
        TD_ONNX(x, "Mul", out, y, t.text);
        return TD_OK;
    default: return TD_FAIL(TD_ENOTSUP, "%s is no activation", td__op(op)->name);
    }
}

static td_opcode act_op(td_act act)
{
    return act == TD_ACT_RELU ? TD_OP_RELU : act == TD_ACT_GELU ? TD_OP_GELU : TD_OP_GELU_TANH;
}

static td_status linear(td__onnx *x, const td_node *n)
{
    const td_attr_linear *a = n->attr;
    const char *in = n->in[0]->name, *last = a->act ? NULL : n->name;
    td__onnx_name w = (td__onnx_ints(x, "perm", (const int64_t[]){1, 0}, 2),
                       TD_ONNX(x, "Transpose", NULL, n->in[1]->name));
    td__onnx_name y = TD_ONNX(x, "MatMul", a->has_bias ? NULL : last, in, w.text);

    if (a->has_bias)
        y = TD_ONNX(x, "Add", last, y.text, n->in[2]->name);
    return a->act ? add_act(x, act_op(a->act), y.text, n->name) : TD_OK;
}

static td__onnx_name turned(td__onnx *x, const td_node *n, bool turn)
{
    td__onnx_name name;
    int64_t perm[TD_MAX_DIMS];
    int d = n->out[0].shape.ndim;

    snprintf(name.text, sizeof name.text, "%s", n->name);
    if (!turn)
        return name;
    for (int i = 0; i < d; i++)
        perm[i] = i < d - 2 ? i : 2 * d - 3 - i;
    td__onnx_ints(x, "perm", perm, d);
    return TD_ONNX(x, "Transpose", NULL, n->name);
}

static void two(const int v[2], int64_t out[2])
{
    out[0] = v[0];
    out[1] = v[1];
}

static void window(td__onnx *x, const int *size, const int stride[2], const int pad[2])
{
    int64_t k[2], s[2], p[4] = {pad[0], pad[1], pad[0], pad[1]};

    two(stride, s);
    if (size) {
        two(size, k);
        td__onnx_ints(x, "kernel_shape", k, 2);
    }
    td__onnx_ints(x, "strides", s, 2);
    td__onnx_ints(x, "pads", p, 4);
}

static td_status conv2d(td__onnx *x, const td_node *n)
{
    const td_attr_conv2d *a = n->attr;
    int64_t d[2];

    if (a->act)
        return td__export_refuse(n, "ONNX");
    two(a->dilation, d);
    window(x, NULL, a->stride, a->pad);
    td__onnx_ints(x, "dilations", d, 2);
    td__onnx_int(x, "group", a->groups);
    if (a->has_bias)
        TD_ONNX(x, "Conv", n->name, n->in[0]->name, n->in[1]->name, n->in[2]->name);
    else
        TD_ONNX(x, "Conv", n->name, n->in[0]->name, n->in[1]->name);
    return TD_OK;
}

static void pool(td__onnx *x, const td_node *n)
{
    const td_attr_pool2d *a = n->attr;
    bool average = n->op == TD_OP_AVG_POOL2D;

    window(x, a->size, a->stride, a->pad);
    if (average)
        td__onnx_int(x, "count_include_pad", 1);
    TD_ONNX(x, average ? "AveragePool" : "MaxPool", n->name, n->in[0]->name);
}

static void reduce(td__onnx *x, const td_node *n)
{
    const td_attr_reduce *a = n->attr;
    int64_t axes[TD_MAX_DIMS];
    int count = 0;

    for (int i = 0; i < n->in[0]->out[0].shape.ndim; i++)
        if (a->axes & (1u << i))
            axes[count++] = i;
    if (n->op == TD_OP_ARGMAX) {
        td__onnx_int(x, "axis", axes[0]);
        td__onnx_int(x, "keepdims", a->keep);
        td__onnx_name y = TD_ONNX(x, "ArgMax", NULL, n->in[0]->name);
        td__onnx_int(x, "to", td__onnx_type(n->out[0].dtype));
        TD_ONNX(x, "Cast", n->name, y.text);
    } else if (n->op == TD_OP_SUM) { /* of these, in opset 17 it alone has axes as an input */
        td__onnx_name at = td__onnx_longs(x, axes, count);
        td__onnx_int(x, "keepdims", a->keep);
        TD_ONNX(x, "ReduceSum", n->name, n->in[0]->name, at.text);
    } else {
        td__onnx_int(x, "keepdims", a->keep);
        td__onnx_ints(x, "axes", axes, count);
        TD_ONNX(x, n->op == TD_OP_MEAN ? "ReduceMean" : "ReduceMax", n->name, n->in[0]->name);
    }
}

static td_status reshape(td__onnx *x, const td__export_node *at)
{
    int64_t dims[TD_MAX_DIMS];

    TD_TRY(td__export_target(at, dims));
    td__onnx_name shape = td__onnx_longs(x, dims, at->n->out[0].shape.ndim);
    TD_ONNX(x, "Reshape", at->n->name, at->n->in[0]->name, shape.text);
    return TD_OK;
}

/* An open size stays that of x: 1 says so. */
static td_status expand(td__onnx *x, const td__export_node *at)
{
    const td_node *n = at->n, *from = n->in[0];
    int64_t dims[TD_MAX_DIMS];
    int more = n->out[0].shape.ndim - from->out[0].shape.ndim;

    for (int i = 0; i < n->out[0].shape.ndim; i++) {
        dims[i] = n->out[0].shape.dim[i];
        if (!td__export_open(at, i))
            continue;
        if (i < more || from->out[0].shape.dim[i - more] != dims[i])
            return td__export_refuse(n, "ONNX");
        dims[i] = 1;
    }
    td__onnx_name shape = td__onnx_longs(x, dims, n->out[0].shape.ndim);
    TD_ONNX(x, "Expand", n->name, from->name, shape.text);
    return TD_OK;
}

static void slice(td__onnx *x, const td__export_node *at)
{
    const td_attr_slice *a = at->n->attr;
    int64_t axis = a->axis, start = a->start, step = a->step;
    int64_t stop = td__export_open(at, a->axis) ? INT64_MAX : a->stop;
    td__onnx_name s[4] = {td__onnx_longs(x, &start, 1), td__onnx_longs(x, &stop, 1),
                          td__onnx_longs(x, &axis, 1), td__onnx_longs(x, &step, 1)};

    TD_ONNX(x, "Slice", at->n->name, at->n->in[0]->name, s[0].text, s[1].text, s[2].text,
            s[3].text);
}

static void pad(td__onnx *x, const td_node *n)
{
    const td_attr_pad *a = n->attr;
    int64_t pads[2 * TD_MAX_DIMS];
    int d = n->out[0].shape.ndim;

    for (int i = 0; i < d; i++) {
        pads[i] = a->before[i];
        pads[d + i] = a->after[i];
    }
    td__onnx_name p = td__onnx_longs(x, pads, 2 * d), v = td__onnx_number(x, a->value);
    TD_ONNX(x, "Pad", n->name, n->in[0]->name, p.text, v.text);
}

static void by_inputs(td__onnx *x, const char *type, const td_node *n)
{
    const char *in[TD_MAX_IN];

    for (int i = 0; i < n->n_in; i++)
        in[i] = n->in[i]->name;
    td__onnx_node(x, type, n->name, n->n_in, in);
}

td_status td__onnx_add(td__onnx *x, const td__export_node *at)
{
    const td_node *n = at->n;
    const char *type = plain(n->op), *in = n->in[0]->name;
    td__onnx_name t, u;
    int64_t perm[TD_MAX_DIMS];

    if (type) {
        by_inputs(x, type, n);
        return TD_OK;
    }
    switch (n->op) {
    case TD_OP_RSQRT:
        t = TD_ONNX(x, "Sqrt", NULL, in);
        TD_ONNX(x, "Reciprocal", n->name, t.text);
        return TD_OK;
    case TD_OP_SQUARE: TD_ONNX(x, "Mul", n->name, in, in); return TD_OK;
    case TD_OP_AFFINE:
        t = scaled(x, in, ((const td_attr_affine *)n->attr)->scale);
        u = td__onnx_number(x, ((const td_attr_affine *)n->attr)->shift);
        TD_ONNX(x, "Add", n->name, t.text, u.text);
        return TD_OK;
    case TD_OP_CLAMP:
        t = td__onnx_number(x, ((const td_attr_clamp *)n->attr)->lo);
        u = td__onnx_number(x, ((const td_attr_clamp *)n->attr)->hi);
        TD_ONNX(x, "Clip", n->name, in, t.text, u.text);
        return TD_OK;
    case TD_OP_LEAKY_RELU:
        td__onnx_real(x, "alpha", ((const td_attr_slope *)n->attr)->slope);
        TD_ONNX(x, "LeakyRelu", n->name, in);
        return TD_OK;
    case TD_OP_GELU:
    case TD_OP_GELU_TANH:
    case TD_OP_SILU: return add_act(x, n->op, in, n->name);
    case TD_OP_CAST:
        td__onnx_int(x, "to", td__onnx_type(n->out[0].dtype));
        TD_ONNX(x, "Cast", n->name, in);
        return TD_OK;
    case TD_OP_MATMUL:
        t = turned(x, n->in[0], ((const td_attr_matmul *)n->attr)->ta);
        u = turned(x, n->in[1], ((const td_attr_matmul *)n->attr)->tb);
        TD_ONNX(x, "MatMul", n->name, t.text, u.text);
        return TD_OK;
    case TD_OP_LINEAR: return linear(x, n);
    case TD_OP_CONV2D: return conv2d(x, n);
    case TD_OP_MAX_POOL2D:
    case TD_OP_AVG_POOL2D: pool(x, n); return TD_OK;
    case TD_OP_SOFTMAX:
    case TD_OP_LOG_SOFTMAX:
        td__onnx_int(x, "axis", -1);
        TD_ONNX(x, n->op == TD_OP_SOFTMAX ? "Softmax" : "LogSoftmax", n->name, in);
        return TD_OK;
    case TD_OP_SUM:
    case TD_OP_MEAN:
    case TD_OP_MAX:
    case TD_OP_ARGMAX: reduce(x, n); return TD_OK;
    case TD_OP_RESHAPE: return reshape(x, at);
    case TD_OP_EXPAND: return expand(x, at);
    case TD_OP_PERMUTE:
        for (int i = 0; i < n->out[0].shape.ndim; i++)
            perm[i] = ((const td_attr_permute *)n->attr)->axes[i];
        td__onnx_ints(x, "perm", perm, n->out[0].shape.ndim);
        TD_ONNX(x, "Transpose", n->name, in);
        return TD_OK;
    case TD_OP_SLICE: slice(x, at); return TD_OK;
    case TD_OP_CONCAT:
        td__onnx_int(x, "axis", ((const td_attr_axis *)n->attr)->axis);
        by_inputs(x, "Concat", n);
        return TD_OK;
    case TD_OP_GATHER:
        td__onnx_int(x, "axis", ((const td_attr_axis *)n->attr)->axis);
        by_inputs(x, "GatherElements", n);
        return TD_OK;
    case TD_OP_PAD: pad(x, n); return TD_OK;
    case TD_OP_EMBEDDING: /* ids, table */
        TD_ONNX(x, "Gather", n->name, n->in[1]->name, in);
        return TD_OK;
    default: return td__onnx_add_layer(x, at);
    }
}
