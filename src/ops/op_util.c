/* op_util.c -- helpers for operator files; see op_util.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/narrow.h"

td_desc td__desc(td_dtype dtype, td_shape shape)
{
    return (td_desc){.dtype = dtype, .layout = TD_LAYOUT_PLAIN, .shape = shape};
}

td_dtype td__acc_dtype(td_dtype in)
{
    return in == TD_F64 ? TD_F64 : TD_F32;
}

td_dtype td__out_dtype(td_dtype in, td_dtype asked)
{
    return in == TD_F64 ? TD_F64 : asked;
}

int64_t td__count_range(const td_shape *s, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= s->dim[i];
    return n;
}

int64_t td__count(const td_shape *s)
{
    return td__count_range(s, 0, s->ndim);
}

td_status td__broadcast(const td_shape *a, const td_shape *b, td_shape *out)
{
    td_shape r = {.ndim = a->ndim > b->ndim ? a->ndim : b->ndim};
    for (int i = 1; i <= r.ndim; i++) { /* from the last axis */
        int64_t da = i <= a->ndim ? a->dim[a->ndim - i] : 1;
        int64_t db = i <= b->ndim ? b->dim[b->ndim - i] : 1;
        if (da != db && da != 1 && db != 1) {
            char ta[128], tb[128];
            return TD_FAIL(TD_EINVAL,
                           "shapes %s and %s do not broadcast: %lld against %lld in axis -%d",
                           td_shape_text(a, ta, sizeof ta), td_shape_text(b, tb, sizeof tb),
                           (long long)da, (long long)db, i);
        }
        r.dim[r.ndim - i] = da == 1 ? db : da;
    }
    *out = r;
    return TD_OK;
}

td_status td__need_float(const td_op_args *a, int i)
{
    td_dtype t = a->in_desc[i]->dtype;
    if (!td_dtype_is_float(t))
        return TD_FAIL(TD_EINVAL, "input %d is %s, but must be floating", i, td_dtype_name(t));
    return TD_OK;
}

td_status td__need_index(const td_op_args *a, int i)
{
    td_dtype t = a->in_desc[i]->dtype;
    if (t != TD_I32 && t != TD_I64)
        return TD_FAIL(TD_EINVAL, "input %d is %s, but indices are i32 or i64", i,
                       td_dtype_name(t));
    return TD_OK;
}

td_status td__need_ndim(const td_op_args *a, int i, int ndim)
{
    char text[128];
    const td_shape *s = &a->in_desc[i]->shape;
    if (s->ndim != ndim)
        return TD_FAIL(TD_EINVAL, "input %d of shape %s has %d axes, but must have %d", i,
                       td_shape_text(s, text, sizeof text), s->ndim, ndim);
    return TD_OK;
}

td_status td__need_shape(const td_op_args *a, int i, const td_shape *shape)
{
    const td_shape *s = &a->in_desc[i]->shape;
    if (!td_shape_equal(s, shape)) {
        char is[128], must[128];
        return TD_FAIL(TD_EINVAL, "input %d has shape %s, but must have %s", i,
                       td_shape_text(s, is, sizeof is), td_shape_text(shape, must, sizeof must));
    }
    return TD_OK;
}

td_status td__need_dtype(const td_op_args *a, int i, td_dtype dtype)
{
    td_dtype t = a->in_desc[i]->dtype;
    if (t != dtype)
        return TD_FAIL(TD_EINVAL, "input %d is %s, but must be %s", i, td_dtype_name(t),
                       td_dtype_name(dtype));
    return TD_OK;
}

td_status td__need_same_dtype(const td_op_args *a, int i, int j)
{
    td_dtype ti = a->in_desc[i]->dtype, tj = a->in_desc[j]->dtype;
    if (ti != tj)
        return TD_FAIL(TD_EINVAL, "input %d is %s and input %d is %s: cast one of them", i,
                       td_dtype_name(ti), j, td_dtype_name(tj));
    return TD_OK;
}

td_status td__need_same(const td_op_args *a, int i, int j)
{
    TD_TRY(td__need_same_dtype(a, i, j));
    return td__need_shape(a, j, &a->in_desc[i]->shape);
}

td_status td__need_axis(const td_op_args *a, int i, int axis)
{
    char text[128];
    const td_shape *s = &a->in_desc[i]->shape;
    if (axis < 0 || axis >= s->ndim)
        return TD_FAIL(TD_EINVAL, "axis %d is not one of the %d axes of %s", axis, s->ndim,
                       td_shape_text(s, text, sizeof text));
    return TD_OK;
}

td_status td__need_valid_shape(const td_shape *s)
{
    if (s->ndim < 0 || s->ndim > TD_MAX_DIMS)
        return TD_FAIL(TD_EINVAL, "a shape of %d axes: 0 to %d are possible", s->ndim, TD_MAX_DIMS);
    for (int i = 0; i < s->ndim; i++)
        if (s->dim[i] < 0)
            return TD_FAIL(TD_EINVAL, "axis %d has negative size %lld", i, (long long)s->dim[i]);
    /* Eight bytes per element must fit too: nothing later checks byte counts again. */
    int64_t n = td_shape_count(s);
    if (n < 0 || n > INT64_MAX / 16) {
        char text[128];
        return TD_FAIL(TD_EINVAL, "shape %s has too many elements",
                       td_shape_text(s, text, sizeof text));
    }
    return TD_OK;
}

td_status td__infer_broadcast(const td_op_args *a, td_desc *out)
{
    td_shape shape = a->in_desc[0]->shape;
    int image = -1; /* the first input of 4 axes */
    for (int i = 0; i < a->n_in; i++) {
        const td_desc *d = a->in_desc[i];
        TD_TRY(td__broadcast(&shape, &d->shape, &shape));
        if (d->shape.ndim != 4)
            continue;
        if (image < 0)
            image = i;
        else if (a->in_desc[image]->layout != d->layout)
            return TD_FAIL(TD_EINVAL, "inputs %d and %d differ in memory layout", image, i);
    }
    TD_TRY(td__need_valid_shape(&shape));
    out->shape = shape;
    out->layout = image < 0 ? TD_LAYOUT_PLAIN : a->in_desc[image]->layout;
    if (out->layout != TD_LAYOUT_PLAIN && shape.ndim != 4)
        return TD_FAIL(TD_EINVAL, "an NHWC image cannot be broadcast to %d axes", shape.ndim);
    return TD_OK;
}

td_status td__infer_unary(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__need_float(a, 0));
    out[0] = *a->in_desc[0];
    *n_out = 1;
    return TD_OK;
}

td_status td__infer_float(const td_op_args *a, td_desc *out, int *n_out)
{
    for (int i = 0; i < a->n_in; i++) {
        TD_TRY(td__need_float(a, i));
        TD_TRY(td__need_same_dtype(a, 0, i));
    }
    out[0].dtype = a->in_desc[0]->dtype;
    *n_out = 1;
    return td__infer_broadcast(a, &out[0]);
}

td_status td__infer_number(const td_op_args *a, td_desc *out, int *n_out)
{
    for (int i = 0; i < a->n_in; i++) {
        if (a->in_desc[i]->dtype == TD_BOOL)
            return TD_FAIL(TD_EINVAL, "input %d is bool, but must be a number", i);
        TD_TRY(td__need_same_dtype(a, 0, i));
    }
    out[0].dtype = a->in_desc[0]->dtype;
    *n_out = 1;
    return td__infer_broadcast(a, &out[0]);
}

td_status td__infer_same(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__need_float(a, 0));
    for (int i = 1; i < a->n_in; i++)
        TD_TRY(td__need_same(a, 0, i));
    out[0].dtype = a->in_desc[0]->dtype;
    *n_out = 1;
    return td__infer_broadcast(a, &out[0]);
}

void td__strides(const td_shape *s, int64_t stride[TD_MAX_DIMS])
{
    int64_t n = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        stride[i] = n;
        n *= s->dim[i];
    }
}

void td__broadcast_strides(const td_shape *from, const td_shape *to, int64_t stride[TD_MAX_DIMS])
{
    int64_t own[TD_MAX_DIMS] = {0};
    int shift = to->ndim - from->ndim;
    td__strides(from, own);
    for (int i = 0; i < to->ndim; i++)
        stride[i] = i < shift || from->dim[i - shift] == 1 ? 0 : own[i - shift];
}

void td__next_index(const td_shape *s, int64_t index[TD_MAX_DIMS])
{
    for (int i = s->ndim - 1; i >= 0; i--) {
        if (++index[i] < s->dim[i])
            return;
        index[i] = 0;
    }
}

int64_t td__offset(int ndim, const int64_t *index, const int64_t *stride)
{
    int64_t at = 0;
    for (int i = 0; i < ndim; i++)
        at += index[i] * stride[i];
    return at;
}

double td__logistic(double x)
{
    return 1 / (1 + exp(-x));
}

size_t td__ref_size(td_dtype t)
{
    return td_dtype_is_float(t) ? sizeof(double) : td_dtype_size(t);
}

double td__ref_get(td_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TD_I32: return ((const int32_t *)p)[i];
    case TD_I64: return (double)((const int64_t *)p)[i];
    case TD_U8: return ((const uint8_t *)p)[i];
    case TD_BOOL: return ((const uint8_t *)p)[i] != 0;
    default: return ((const double *)p)[i];
    }
}

void td__ref_set(td_dtype t, void *p, int64_t i, double v)
{
    switch (t) {
    case TD_I32: ((int32_t *)p)[i] = (int32_t)td__int_from_f64(v, INT32_MIN, INT32_MAX); break;
    case TD_I64: ((int64_t *)p)[i] = td__int_from_f64(v, INT64_MIN, INT64_MAX); break;
    case TD_U8: ((uint8_t *)p)[i] = (uint8_t)td__int_from_f64(v, 0, UINT8_MAX); break;
    case TD_BOOL: ((uint8_t *)p)[i] = v < 0 || v > 0 || isnan(v); break;
    default: ((double *)p)[i] = v; break;
    }
}

int64_t td__ref_index(td_dtype t, const void *p, int64_t i)
{
    return t == TD_I32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

bool td__norm_axis(td_graph *g, const char *call, const td_node *x, int axis, int *out)
{
    char text[128];
    const td_shape *s = &x->out[0].shape;
    int at = axis < 0 ? axis + s->ndim : axis;
    if (at < 0 || at >= s->ndim) {
        td__graph_fail(g, TD_EINVAL, call, "axis %d is out of range for %s of shape %s", axis,
                       x->name, td_shape_text(s, text, sizeof text));
        return false;
    }
    *out = at;
    return true;
}

bool td__axes_mask(td_graph *g, const char *call, const td_node *x, const int *axes, int n_axes,
                   unsigned *mask)
{
    unsigned m = 0;
    if (n_axes < 0 || n_axes > TD_MAX_DIMS || (n_axes > 0 && !axes)) {
        td__graph_fail(g, TD_EINVAL, call, "%d axes given for %s", n_axes, x->name);
        return false;
    }
    for (int i = 0; i < n_axes; i++) {
        int at;
        if (!td__norm_axis(g, call, x, axes[i], &at))
            return false;
        if (m & 1u << at) {
            td__graph_fail(g, TD_EINVAL, call, "axis %d is given twice for %s", axes[i], x->name);
            return false;
        }
        m |= 1u << at;
    }
    *mask = n_axes ? m : (1u << x->out[0].shape.ndim) - 1;
    return true;
}

td_node *td__cast_to(td_graph *g, td_node *x, td_dtype dtype)
{
    return x && x->out[0].dtype != dtype ? td_cast(g, x, dtype) : x;
}

td_node *td__sum_to(td_graph *g, td_node *dy, const td_node *like)
{
    if (!dy || !like)
        return NULL;
    const td_shape *from = &dy->out[0].shape, *to = &like->out[0].shape;
    int axes[TD_MAX_DIMS], n = 0, shift = from->ndim - to->ndim;
    for (int i = 0; i < from->ndim; i++)
        if (i < shift || (to->dim[i - shift] == 1 && from->dim[i] != 1))
            axes[n++] = i;
    if (n > 0)
        dy = td_sum(g, dy, axes, n, true);
    if (shift > 0)
        dy = td_reshape(g, dy, *to);
    return td__cast_to(g, dy, like->out[0].dtype);
}

td_node *td__scalar_like(td_graph *g, const td_node *n, double value)
{
    if (!n)
        return NULL;
    td_dtype t = n->out[0].dtype;
    float f = (float)value;
    td_bf16 b = td__bf16_from_f32(f);
    td_f16 h = td__f16_from_f32(f);
    const void *data = t == TD_F64    ? (const void *)&value
                       : t == TD_BF16 ? (const void *)&b
                       : t == TD_F16  ? (const void *)&h
                                      : (const void *)&f;
    return td_constant(g, t, TD_SCALAR, data);
}

td_node *td__zeros_like(td_graph *g, const td_node *n)
{
    if (!n)
        return NULL;
    return td_expand(g, td_constant(g, n->out[0].dtype, TD_SCALAR, NULL), n->out[0].shape);
}
