/* onnx.c -- the messages of an ONNX file (onnx.h), numbers as in onnx.proto3:
 *
 *     Model      1 ir_version  2 producer_name  6 doc_string  7 graph  8 opset_import
 *     Graph      1 node  2 name  5 initializer  11 input  12 output
 *     Node       1 input  2 output  3 name  4 op_type  5 attribute
 *     Attribute  1 name  2 f  3 i  8 ints  20 type (1 float, 2 int, 7 ints)
 *     Tensor     1 dims  2 data_type  8 name  9 raw_data
 *     ValueInfo  1 name  2 type: 1 tensor_type: 1 elem_type  2 shape: 1 dim: 1 value or 2 name
 *
 * Operators are those of opset 17. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "export/onnx.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"

enum { IR_VERSION = 8, OPSET = 17 };
enum { ATTR_FLOAT = 1, ATTR_INT = 2, ATTR_INTS = 7 };
#define MOST_BYTES INT64_C(2147483647) /* of a protobuf message */

int td__onnx_type(td_dtype t)
{
    switch (t) {
    case TD_F32: return 1;
    case TD_U8: return 2;
    case TD_I32: return 6;
    case TD_I64: return 7;
    case TD_BOOL: return 9;
    case TD_F64: return 11;
    default: return 0;
    }
}

static td__text *begin_attr(td__onnx *x, const char *name)
{
    td__text_clear(&x->part);
    td__wire_text(&x->part, 1, name);
    return &x->part;
}

static void end_attr(td__onnx *x, int type)
{
    td__wire_int(&x->part, 20, type);
    td__wire_part(&x->attrs, 5, &x->part);
}

void td__onnx_int(td__onnx *x, const char *name, int64_t v)
{
    td__wire_int(begin_attr(x, name), 3, v);
    end_attr(x, ATTR_INT);
}

void td__onnx_ints(td__onnx *x, const char *name, const int64_t *v, int n)
{
    td__text *t = begin_attr(x, name);

    for (int i = 0; i < n; i++)
        td__wire_int(t, 8, v[i]);
    end_attr(x, ATTR_INTS);
}

void td__onnx_real(td__onnx *x, const char *name, double v)
{
    td__wire_float(begin_attr(x, name), 2, (float)v);
    end_attr(x, ATTR_FLOAT);
}

static td__onnx_name make_name(td__onnx *x)
{
    td__onnx_name name;

    snprintf(name.text, sizeof name.text, "_%d", x->temps++);
    return name;
}

td__onnx_name td__onnx_node(td__onnx *x, const char *type, const char *out, int n_in,
                            const char *const *in)
{
    td__onnx_name name;

    if (out)
        snprintf(name.text, sizeof name.text, "%s", out);
    else
        name = make_name(x);
    td__text_clear(&x->node);
    for (int i = 0; i < n_in; i++)
        td__wire_text(&x->node, 1, in[i]);
    td__wire_text(&x->node, 2, name.text);
    td__wire_text(&x->node, 3, name.text);
    td__wire_text(&x->node, 4, type);
    if (x->attrs.used)
        td__text_append(&x->node, x->attrs.data, x->attrs.used);
    td__text_clear(&x->attrs);
    td__wire_part(&x->graph, 1, &x->node);
    return name;
}

void td__onnx_tensor(td__onnx *x, const char *name, td_dtype t, const int64_t *dims, int n_dims,
                     const void *data, size_t nbytes)
{
    td__text_clear(&x->part);
    for (int i = 0; i < n_dims; i++)
        td__wire_int(&x->part, 1, dims[i]);
    td__wire_int(&x->part, 2, td__onnx_type(t));
    td__wire_text(&x->part, 8, name);
    td__wire_bytes(&x->part, 9, data, nbytes);
    td__wire_part(&x->graph, 5, &x->part);
}

td__onnx_name td__onnx_longs(td__onnx *x, const int64_t *v, int n)
{
    td__onnx_name name = make_name(x);

    td__onnx_tensor(x, name.text, TD_I64, &(int64_t){n}, 1, v, (size_t)n * sizeof *v);
    return name;
}

td__onnx_name td__onnx_number(td__onnx *x, double v)
{
    td__onnx_name name = make_name(x);
    float f = (float)v;

    td__onnx_tensor(x, name.text, TD_F32, NULL, 0, &f, sizeof f);
    return name;
}

/* An input or output of the graph; open sizes have the name N. */
static void add_value(td__onnx *x, unsigned field, const char *name, const td__export_node *at)
{
    td__text dims = {0}, *t = &x->inner;

    for (int i = 0; i < at->n->out[0].shape.ndim; i++) {
        td__text_clear(&x->part);
        if (td__export_open(at, i))
            td__wire_text(&x->part, 2, "N");
        else
            td__wire_int(&x->part, 1, at->n->out[0].shape.dim[i]);
        td__wire_part(&dims, 1, &x->part);
    }
    td__text_clear(t);
    td__wire_int(t, 1, td__onnx_type(at->n->out[0].dtype));
    td__wire_part(t, 2, &dims);
    td__text_clear(&x->part);
    td__wire_part(&x->part, 1, t);
    td__text_clear(t);
    td__wire_text(t, 1, name);
    td__wire_part(t, 2, &x->part);
    td__wire_part(&x->graph, field, t);
    if (dims.failed)
        x->graph.failed = true;
    td__text_fini(&dims);
}

static td_status add_leaf(td__onnx *x, const td__export_node *at)
{
    const td_node *n = at->n;
    td_tensor t;

    if (n->op == TD_OP_INPUT) {
        add_value(x, 11, n->name, at);
    } else if (n->op == TD_OP_PARAM || n->op == TD_OP_STATE) {
        TD_TRY(td__export_weight(x->e, n, &t));
        td__onnx_tensor(x, n->name, TD_F32, t.shape.dim, t.shape.ndim, t.data,
                        td__desc_bytes(&n->out[0]));
    } else {
        for (int i = 0; i < n->out[0].shape.ndim; i++)
            if (td__export_open(at, i))
                return td__export_refuse(n, "ONNX");
        const td_attr_leaf *a = n->attr;
        size_t nbytes = td__desc_bytes(&n->out[0]);
        void *zeros = a->data ? NULL : td__calloc(1, nbytes + 1);
        if (!a->data && !zeros)
            return TD_FAIL(TD_ENOMEM, "no memory for '%s'", n->name);
        td__onnx_tensor(x, n->name, n->out[0].dtype, n->out[0].shape.dim, n->out[0].shape.ndim,
                        a->data ? a->data : zeros, nbytes);
        td__free(zeros);
    }
    return TD_OK;
}

/* Weights of recurrent layers are in the file once, in ONNX's order. */
static bool is_read(const td__export_node *at, int n, const td_node *leaf)
{
    for (int i = 0; i < n; i++) {
        const td_node *by = at[i].n;
        for (int k = 0; k < by->n_in && !td__export_recurrent(by); k++)
            if (by->in[k] == leaf)
                return true;
        if (td__export_recurrent(by) && td__export_recurrent(by)->in[0] == leaf)
            return true;
    }
    return n == 1 || leaf->op == TD_OP_INPUT;
}

static td_status add_all(td__onnx *x, const td__export_node *at, int n)
{
    td__wire_text(&x->graph, 2, "tandem");
    for (int i = 0; i < n; i++) {
        td_opcode op = at[i].n->op;
        bool leaf =
            op == TD_OP_INPUT || op == TD_OP_PARAM || op == TD_OP_STATE || op == TD_OP_CONSTANT;
        if (!leaf || is_read(at, n, at[i].n))
            TD_TRY(leaf ? add_leaf(x, &at[i]) : td__onnx_add(x, &at[i]));
    }
    TD_ONNX(x, "Identity", "output", at[n - 1].n->name);
    add_value(x, 12, "output", &at[n - 1]);
    return TD_OK;
}

static td_status save(td__onnx *x, const char *path)
{
    td__text model = {0}, *t = &x->part;
    td_status st;

    td__wire_int(&model, 1, IR_VERSION);
    td__wire_text(&model, 2, "tandem");
    td__wire_text(&model, 6, x->e->about);
    td__wire_part(&model, 7, &x->graph);
    td__text_clear(t);
    td__wire_text(t, 1, "");
    td__wire_int(t, 2, OPSET);
    td__wire_part(&model, 8, t);
    model.failed = model.failed || x->graph.failed || x->node.failed || x->attrs.failed ||
                   x->part.failed || x->inner.failed;
    TD_TRY_OR(st, done, td__text_status(&model));
    if ((int64_t)model.used > MOST_BYTES)
        st = TD_FAIL(TD_ENOTSUP, "%s: an ONNX file has at most 2 GiB, this would be larger", path);
    else
        st = td__file_save(path, model.data, model.used);
done:
    td__text_fini(&model);
    return st;
}

td_status td__export_onnx(const td__export *e, const char *path)
{
    td__onnx x = {.e = e};
    td__export_node *at;
    int n;

    TD_TRY(td__export_walk(e, &at, &n));
    td_status st = add_all(&x, at, n);
    if (!st)
        st = save(&x, path);
    td__free(at);
    td__text_fini(&x.graph);
    td__text_fini(&x.attrs);
    td__text_fini(&x.node);
    td__text_fini(&x.part);
    td__text_fini(&x.inner);
    return st;
}
