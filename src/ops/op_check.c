/* op_check.c -- shared checks of infer rules; see op_check.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_check.h"

enum { TEXT = 128 }; /* td_shape_text never needs more */

td_status td__want_float(const td_op_args *a, int i, const char *what)
{
    if (!td_dtype_is_float(a->in_desc[i]->dtype))
        return TD_FAIL(TD_EINVAL, "%s must be floating, not %s", what,
                       td_dtype_name(a->in_desc[i]->dtype));
    return TD_OK;
}

td_status td__want_same_dtype(const td_op_args *a, int i, const char *what)
{
    td_dtype want = a->in_desc[0]->dtype, have = a->in_desc[i]->dtype;

    if (have != want)
        return TD_FAIL(TD_EINVAL, "%s is %s where the first input is %s", what, td_dtype_name(have),
                       td_dtype_name(want));
    return TD_OK;
}

td_status td__want_weight(const td_op_args *a, int i, const char *what)
{
    td_dtype t = a->in_desc[0]->dtype, have = a->in_desc[i]->dtype;

    if (have != t && have != TD_F32)
        return TD_FAIL(TD_EINVAL, "%s is %s; beside %s activations it must be %s or f32", what,
                       td_dtype_name(have), td_dtype_name(t), td_dtype_name(t));
    return TD_OK;
}

td_status td__want_index(const td_op_args *a, int i, const char *what)
{
    td_dtype have = a->in_desc[i]->dtype;

    if (have != TD_I32 && have != TD_I64)
        return TD_FAIL(TD_EINVAL, "%s must be i32 or i64, not %s", what, td_dtype_name(have));
    return TD_OK;
}

td_status td__want_ndim(const td_op_args *a, int i, const char *what, int ndim)
{
    const td_shape *s = &a->in_desc[i]->shape;
    char text[TEXT];

    if (s->ndim != ndim)
        return TD_FAIL(TD_EINVAL, "%s must have %d axes, not the shape %s", what, ndim,
                       td_shape_text(s, text, sizeof text));
    return TD_OK;
}

td_status td__want_min_ndim(const td_op_args *a, int i, const char *what, int ndim)
{
    const td_shape *s = &a->in_desc[i]->shape;
    char text[TEXT];

    if (s->ndim < ndim)
        return TD_FAIL(TD_EINVAL, "%s must have at least %d axes, not the shape %s", what, ndim,
                       td_shape_text(s, text, sizeof text));
    return TD_OK;
}

td_status td__want_shape(const td_op_args *a, int i, const char *what, const td_shape *shape)
{
    const td_shape *s = &a->in_desc[i]->shape;
    char have[TEXT], want[TEXT];

    if (!td_shape_equal(s, shape))
        return TD_FAIL(TD_EINVAL, "%s has the shape %s; it must be %s", what,
                       td_shape_text(s, have, sizeof have),
                       td_shape_text(shape, want, sizeof want));
    return TD_OK;
}

td_status td__want_vector(const td_op_args *a, int i, const char *what, int64_t n)
{
    td_shape shape = TD_SHAPE(n);

    return td__want_shape(a, i, what, &shape);
}

td_status td__want_activation(const td_op_args *a, int i, const char *what, const td_shape *shape)
{
    TD_TRY(td__want_same_dtype(a, i, what));
    return td__want_shape(a, i, what, shape);
}

td_status td__want_weight_shape(const td_op_args *a, int i, const char *what, const td_shape *shape)
{
    TD_TRY(td__want_weight(a, i, what));
    return td__want_shape(a, i, what, shape);
}

td_status td__want_weight_vector(const td_op_args *a, int i, const char *what, int64_t n)
{
    return td__want_weight_shape(a, i, what, &TD_SHAPE(n));
}

td_status td__want_same_layout(const td_op_args *a, int i, const char *what)
{
    if (a->in_desc[i]->layout != a->in_desc[0]->layout)
        return TD_FAIL(TD_EINVAL, "%s and the first input differ in memory layout", what);
    return TD_OK;
}

td_status td__want_float_dtype(td_dtype t, const char *what)
{
    if (!td_dtype_is_float(t))
        return TD_FAIL(TD_EINVAL, "%s must be a floating type, not %s", what, td_dtype_name(t));
    return TD_OK;
}

td_status td__want_count(const td_shape *s, const char *what)
{
    if (s->ndim < 0 || s->ndim > TD_MAX_DIMS || td_shape_count(s) < 0)
        return TD_FAIL(TD_EINVAL, "the shape of %s has a negative size or is too large", what);
    return TD_OK;
}

td_shape td__shape_rows(const td_shape *s)
{
    td_shape rows = *s;

    if (rows.ndim > 0) {
        rows.ndim--;
        rows.dim[rows.ndim] = 0; /* unused sizes stay zero: shapes compare as bytes */
    }
    return rows;
}

int64_t td__row_count(const td_shape *s)
{
    td_shape rows = td__shape_rows(s);

    return td_shape_count(&rows);
}

int64_t td__last_dim(const td_shape *s)
{
    return s->ndim > 0 ? s->dim[s->ndim - 1] : 1;
}
