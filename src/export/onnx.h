/* onnx.h -- an ONNX file in the making: messages of onnx.proto3, written field by field. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_EXPORT_ONNX_H
#define TD_EXPORT_ONNX_H

#include "base/wire.h"
#include "export/export_impl.h"

typedef struct td__onnx {
    const td__export *e;
    td__text graph; /* GraphProto */
    td__text attrs; /* of the next node */
    td__text node, part, inner;
    int temps;
    td_status status; /* the first failure */
} td__onnx;

/* A value's name: of a node, or of a step on the way to one. */
typedef struct td__onnx_name {
    char text[300];
} td__onnx_name;

/* ONNX's number for a type; 0: it has none. */
int td__onnx_type(td_dtype t);
/* Attributes of the node that is added next. */
void td__onnx_int(td__onnx *x, const char *name, int64_t v);
void td__onnx_ints(td__onnx *x, const char *name, const int64_t *v, int n);
void td__onnx_real(td__onnx *x, const char *name, double v);
/* A node; `out` NULL: a name is made. The result's name. */
td__onnx_name td__onnx_node(td__onnx *x, const char *type, const char *out, int n_in,
                            const char *const *in);
#define TD_ONNX(x, type, out, ...)                                                     \
    td__onnx_node((x), (type), (out),                                                  \
                  (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)), \
                  (const char *const[]){__VA_ARGS__})
/* Constants. */
void td__onnx_tensor(td__onnx *x, const char *name, td_dtype t, const int64_t *dims, int n_dims,
                     const void *data, size_t nbytes);
td__onnx_name td__onnx_longs(td__onnx *x, const int64_t *v, int n); /* (n) of i64 */
td__onnx_name td__onnx_number(td__onnx *x, double v);               /* a scalar, f32 */

/* One node of the model (onnx_ops.c, onnx_layers.c). */
td_status td__onnx_add(td__onnx *x, const td__export_node *at);
/* Operators that become several nodes; TD_ENOTSUP where it is none of them. */
td_status td__onnx_add_layer(td__onnx *x, const td__export_node *at);

#endif
