/* onnx_layers.c -- norms, attention, recurrent layers and bags as nodes of ONNX. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "export/onnx.h"

static td_status batch_norm(td__onnx *x, const td_node *n)
{
    const td_attr_norm *a = n->attr;

    if (!a->has_running || a->has_residual || a->act)
        return td__export_refuse(n, "ONNX");
    td__onnx_real(x, "epsilon", a->eps);
    TD_ONNX(x, "BatchNormalization", n->name, n->in[0]->name, n->in[1]->name, n->in[2]->name,
            n->in[3]->name, n->in[4]->name);
    return TD_OK;
}

static void layer_norm(td__onnx *x, const td_node *n)
{
    td__onnx_real(x, "epsilon", ((const td_attr_norm *)n->attr)->eps);
    td__onnx_int(x, "axis", -1);
    TD_ONNX(x, "LayerNormalization", n->name, n->in[0]->name, n->in[1]->name, n->in[2]->name);
}

static void rms_norm(td__onnx *x, const td_node *n)
{
    const char *in = n->in[0]->name;
    td__onnx_name eps = td__onnx_number(x, ((const td_attr_norm *)n->attr)->eps);
    td__onnx_name t = TD_ONNX(x, "Mul", NULL, in, in);

    td__onnx_int(x, "keepdims", 1);
    td__onnx_ints(x, "axes", (const int64_t[]){-1}, 1);
    t = TD_ONNX(x, "ReduceMean", NULL, t.text);
    t = TD_ONNX(x, "Add", NULL, t.text, eps.text);
    t = TD_ONNX(x, "Sqrt", NULL, t.text);
    t = TD_ONNX(x, "Div", NULL, in, t.text);
    TD_ONNX(x, "Mul", n->name, t.text, n->in[1]->name);
}

/* Each group as one channel of an instance norm, then weight and bias by channel. */
static td_status group_norm(td__onnx *x, const td__export_node *at)
{
    const td_node *n = at->n;
    const td_attr_norm *a = n->attr;
    int64_t dims[TD_MAX_DIMS], one[3] = {n->out[0].shape.dim[1], 1, 1};
    float *ones = td__calloc(2 * (size_t)a->groups, sizeof *ones);

    if (!ones)
        return TD_FAIL(TD_ENOMEM, "no memory for %d groups", a->groups);
    for (int i = 0; i < a->groups; i++)
        ones[i] = 1;
    td__onnx_name scale, shift;
    snprintf(scale.text, sizeof scale.text, "_%d", x->temps++);
    snprintf(shift.text, sizeof shift.text, "_%d", x->temps++);
    size_t nbytes = (size_t)a->groups * sizeof *ones;
    td__onnx_tensor(x, scale.text, TD_F32, &(int64_t){a->groups}, 1, ones, nbytes);
    td__onnx_tensor(x, shift.text, TD_F32, &(int64_t){a->groups}, 1, ones + a->groups, nbytes);
    td__free(ones);
    TD_TRY(td__export_target(at, dims));
    td__onnx_name cut = td__onnx_longs(x, (const int64_t[]){0, a->groups, -1}, 3);
    td__onnx_name whole = td__onnx_longs(x, dims, n->out[0].shape.ndim);
    td__onnx_name column = td__onnx_longs(x, one, 3);
    td__onnx_name t = TD_ONNX(x, "Reshape", NULL, n->in[0]->name, cut.text);
    td__onnx_real(x, "epsilon", a->eps);
    t = TD_ONNX(x, "InstanceNormalization", NULL, t.text, scale.text, shift.text);
    t = TD_ONNX(x, "Reshape", NULL, t.text, whole.text);
    td__onnx_name w = TD_ONNX(x, "Reshape", NULL, n->in[1]->name, column.text);
    td__onnx_name b = TD_ONNX(x, "Reshape", NULL, n->in[2]->name, column.text);
    t = TD_ONNX(x, "Mul", NULL, t.text, w.text);
    TD_ONNX(x, "Add", n->name, t.text, b.text);
    return TD_OK;
}

/* ids (N L), one bag every L of them -> a look-up, zeros for padding, a sum over L. */
static td_status embedding_bag(td__onnx *x, const td_node *n)
{
    const td_attr_embedding *a = n->attr;
    int64_t length = td__export_bag_length(n);

    if (!length)
        return td__export_refuse(n, "ONNX");
    td__onnx_name cut = td__onnx_longs(x, (const int64_t[]){-1, length}, 2);
    td__onnx_name last = td__onnx_longs(x, (const int64_t[]){-1}, 1);
    td__onnx_name middle = td__onnx_longs(x, (const int64_t[]){1}, 1);
    td__onnx_name zero = td__onnx_number(x, 0), minus = td__onnx_number(x, -0.5);
    td__onnx_name id = TD_ONNX(x, "Reshape", NULL, n->in[0]->name, cut.text);
    td__onnx_int(x, "to", td__onnx_type(TD_F32));
    td__onnx_name real = TD_ONNX(x, "Cast", NULL, id.text);
    td__onnx_name counts = TD_ONNX(x, "Greater", NULL, real.text, minus.text);
    td__onnx_int(x, "to", td__onnx_type(TD_F32));
    td__onnx_name mask = TD_ONNX(x, "Cast", NULL, counts.text);
    real = TD_ONNX(x, "Max", NULL, real.text, zero.text);
    td__onnx_int(x, "to", td__onnx_type(TD_I64));
    id = TD_ONNX(x, "Cast", NULL, real.text);
    td__onnx_name rows = TD_ONNX(x, "Gather", NULL, n->in[2]->name, id.text);
    td__onnx_name wide = TD_ONNX(x, "Unsqueeze", NULL, mask.text, last.text);
    rows = TD_ONNX(x, "Mul", NULL, rows.text, wide.text);
    td__onnx_int(x, "keepdims", 0);
    bool mean = a->mode == TD_BAG_MEAN;
    td__onnx_name sum = TD_ONNX(x, "ReduceSum", mean ? NULL : n->name, rows.text, middle.text);
    if (mean) {
        td__onnx_int(x, "keepdims", 1);
        td__onnx_name all = TD_ONNX(x, "ReduceSum", NULL, mask.text, middle.text);
        td__onnx_name one = td__onnx_number(x, 1);
        all = TD_ONNX(x, "Max", NULL, all.text, one.text);
        TD_ONNX(x, "Div", n->name, sum.text, all.text);
    }
    return TD_OK;
}

/* q, k, v (B, T, H, D) */
static td_status attention(td__onnx *x, const td_node *n)
{
    const td_attr_attention *a = n->attr;
    static const int64_t HEADS[] = {0, 2, 1, 3}, KEYS[] = {0, 2, 3, 1};
    int64_t t = n->in[0]->out[0].shape.dim[1], s = n->in[1]->out[0].shape.dim[1];

    if (n->in[0]->out[0].shape.dim[2] != n->in[1]->out[0].shape.dim[2] ||
        (a->has_mask && n->in[3]->out[0].shape.ndim != 2))
        return td__export_refuse(n, "ONNX");
    td__onnx_ints(x, "perm", HEADS, 4);
    td__onnx_name q = TD_ONNX(x, "Transpose", NULL, n->in[0]->name);
    td__onnx_ints(x, "perm", KEYS, 4);
    td__onnx_name k = TD_ONNX(x, "Transpose", NULL, n->in[1]->name);
    td__onnx_ints(x, "perm", HEADS, 4);
    td__onnx_name v = TD_ONNX(x, "Transpose", NULL, n->in[2]->name);
    td__onnx_name scale = td__onnx_number(x, a->scale);
    td__onnx_name w = TD_ONNX(x, "MatMul", NULL, q.text, k.text);
    w = TD_ONNX(x, "Mul", NULL, w.text, scale.text);
    if (a->has_mask)
        w = TD_ONNX(x, "Add", NULL, w.text, n->in[3]->name);
    if (a->causal) {
        float *mask = td__calloc((size_t)(t * s), sizeof *mask);
        td__onnx_name name;
        if (!mask)
            return TD_FAIL(TD_ENOMEM, "no memory for a mask");
        for (int64_t i = 0; i < t; i++)
            for (int64_t j = 0; j < s; j++)
                mask[i * s + j] = j > i + s - t ? -INFINITY : 0;
        snprintf(name.text, sizeof name.text, "_%d", x->temps++);
        td__onnx_tensor(x, name.text, TD_F32, (const int64_t[]){t, s}, 2, mask,
                        (size_t)(t * s) * sizeof *mask);
        td__free(mask);
        w = TD_ONNX(x, "Add", NULL, w.text, name.text);
    }
    td__onnx_int(x, "axis", -1);
    w = TD_ONNX(x, "Softmax", NULL, w.text);
    w = TD_ONNX(x, "MatMul", NULL, w.text, v.text);
    td__onnx_ints(x, "perm", HEADS, 4);
    TD_ONNX(x, "Transpose", n->name, w.text);
    return TD_OK;
}

/* A weight whose gates are blocks of rows, in ONNX's order; biases one behind the other. */
typedef struct gates {
    int n;
    const int *order;
    int64_t hidden;
} gates;

static td_status reordered(td__onnx *x, const td_node *const *leaf, int n_leaves, const gates *g,
                           td__onnx_name *out)
{
    int64_t width = leaf[0]->out[0].shape.ndim == 2 ? leaf[0]->out[0].shape.dim[1] : 1;
    size_t block = (size_t)(g->hidden * width), at = 0;
    float *all = td__calloc((size_t)n_leaves * (size_t)g->n * block, sizeof *all);
    td_status st = all ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for '%s'", leaf[0]->name);

    for (int i = 0; i < n_leaves && !st; i++) {
        td_tensor t;
        st = td__export_weight(x->e, leaf[i], &t);
        for (int k = 0; k < g->n && !st; k++, at += block)
            memcpy(all + at, (const float *)t.data + (size_t)g->order[k] * block,
                   block * sizeof *all);
    }
    if (!st) {
        int64_t dims[3] = {1, n_leaves * g->n * g->hidden, width};
        snprintf(out->text, sizeof out->text, "_%d", x->temps++);
        td__onnx_tensor(x, out->text, TD_F32, dims, leaf[0]->out[0].shape.ndim == 2 ? 3 : 2, all,
                        at * sizeof *all);
    }
    td__free(all);
    return st;
}

/* The input of a recurrent node is x w_ih' + b_ih, which is part of ONNX's. */
static td_status recurrent(td__onnx *x, const td_node *n)
{
    static const int LSTM[] = {0, 3, 1, 2}, GRU[] = {1, 0, 2}; /* i f g o, r z n */
    bool lstm = n->op == TD_OP_LSTM;
    const td_node *in = td__export_recurrent(n), *w_hh = n->in[lstm ? 3 : 2];
    const td_node *b_hh = n->in[lstm ? 4 : 3];
    gates g = {lstm ? 4 : 3, lstm ? LSTM : GRU, n->out[0].shape.dim[2]};
    td__onnx_name w, r, b;

    if (!in)
        return td__export_refuse(n, "ONNX");
    TD_TRY(reordered(x, (const td_node *const[]){in->in[1]}, 1, &g, &w));
    TD_TRY(reordered(x, (const td_node *const[]){w_hh}, 1, &g, &r));
    TD_TRY(reordered(x, (const td_node *const[]){in->in[2], b_hh}, 2, &g, &b));
    td__onnx_int(x, "hidden_size", g.hidden);
    if (!lstm)
        td__onnx_int(x, "linear_before_reset", 1);
    td__onnx_name y =
        TD_ONNX(x, lstm ? "LSTM" : "GRU", NULL, in->in[0]->name, w.text, r.text, b.text);
    td__onnx_name direction = td__onnx_longs(x, (const int64_t[]){1}, 1);
    TD_ONNX(x, "Squeeze", n->name, y.text, direction.text);
    return TD_OK;
}

td_status td__onnx_add_layer(td__onnx *x, const td__export_node *at)
{
    const td_node *n = at->n;

    switch (n->op) {
    case TD_OP_BATCH_NORM: return batch_norm(x, n);
    case TD_OP_LAYER_NORM: layer_norm(x, n); return TD_OK;
    case TD_OP_RMS_NORM: rms_norm(x, n); return TD_OK;
    case TD_OP_GROUP_NORM: return group_norm(x, at);
    case TD_OP_EMBEDDING_BAG: return embedding_bag(x, n);
    case TD_OP_ATTENTION: return attention(x, n);
    case TD_OP_LSTM:
    case TD_OP_GRU: return recurrent(x, n);
    default: return td__export_refuse(n, "ONNX");
    }
}
