/* tensor.c -- storage, views and the arithmetic of strides.
 *
 * An empty tensor (a size of 0) has strides 0: no element is ever reached, and no offset can
 * overflow. For all others every reachable offset fits, because the storage that holds it did. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tandem/tensor.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "tensor/strided.h"

struct td_storage {
    atomic_int refs;
    void *block;
    size_t nbytes;
};

static td_status storage_create(size_t nbytes, td_storage **out)
{
    td_storage *s = td__malloc(sizeof *s);
    void *block = s ? td__alloc_block(nbytes) : NULL;
    if (!block) {
        td__free(s);
        return TD_FAIL(TD_ENOMEM, "no memory for a tensor of %zu bytes", nbytes);
    }
    atomic_init(&s->refs, 1);
    s->block = block;
    s->nbytes = nbytes;
    *out = s;
    return TD_OK;
}

static void storage_release(td_storage *s)
{
    if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) {
        td__free_block(s->block, s->nbytes);
        td__free(s);
    }
}

void td__row_major(const td_shape *shape, int64_t *stride)
{
    int64_t step = td_shape_count(shape) ? 1 : 0;
    for (int i = shape->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape->dim[i];
    }
}

/* Bytes of a dense tensor; TD_EINVAL if dtype or shape is impossible. */
static td_status dense_nbytes(td_dtype dtype, const td_shape *shape, size_t *nbytes)
{
    int64_t count = td_shape_count(shape);
    char text[128];

    if (!td_dtype_size(dtype))
        return TD_FAIL(TD_EINVAL, "unknown dtype %d", (int)dtype);
    if (count < 0 || !td__size_mul((size_t)count, td_dtype_size(dtype), nbytes) ||
        *nbytes > PTRDIFF_MAX)
        return TD_FAIL(TD_EINVAL, "impossible shape %s of %s",
                       td_shape_text(shape, text, sizeof text), td_dtype_name(dtype));
    return TD_OK;
}

td_status td_tensor_wrap(td_tensor *out, td_dtype dtype, td_shape shape, void *data)
{
    size_t nbytes;

    *out = (td_tensor){0};
    TD_TRY(dense_nbytes(dtype, &shape, &nbytes));
    *out = (td_tensor){.dtype = dtype, .shape = shape, .data = data};
    td__row_major(&shape, out->stride);
    return TD_OK;
}

td_status td_tensor_init(td_tensor *out, td_dtype dtype, td_shape shape)
{
    td_storage *s = NULL;
    size_t nbytes;

    *out = (td_tensor){0};
    TD_TRY(dense_nbytes(dtype, &shape, &nbytes));
    TD_TRY(storage_create(nbytes, &s));
    *out = (td_tensor){.dtype = dtype, .shape = shape, .data = s->block, .storage = s};
    td__row_major(&shape, out->stride);
    return TD_OK;
}

void td_tensor_fini(td_tensor *t)
{
    storage_release(t->storage);
    *t = (td_tensor){0};
}

int64_t td_tensor_count(const td_tensor *t)
{
    return td_shape_count(&t->shape);
}

size_t td_tensor_nbytes(const td_tensor *t)
{
    return (size_t)td_shape_count(&t->shape) * td_dtype_size(t->dtype);
}

bool td_tensor_is_contiguous(const td_tensor *t)
{
    int64_t step = 1;

    if (td_tensor_count(t) == 0)
        return true;
    for (int i = t->shape.ndim - 1; i >= 0; i--) {
        if (t->shape.dim[i] != 1 &&
            t->stride[i] != step) /* the stride of one element is no matter */
            return false;
        step *= t->shape.dim[i];
    }
    return true;
}

void td_tensor_view(const td_tensor *t, td_tensor *out)
{
    *out = *t;
    if (out->storage)
        atomic_fetch_add_explicit(&out->storage->refs, 1, memory_order_relaxed);
}

/* An axis as given by the user to 0 .. ndim-1; -1 if there is none. */
static int resolve_axis(const td_tensor *t, int axis)
{
    int a = axis < 0 ? axis + t->shape.ndim : axis;
    return a >= 0 && a < t->shape.ndim ? a : -1;
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

td_status td_tensor_slice(const td_tensor *t, int axis, int64_t start, int64_t stop, int64_t step,
                          td_tensor *out)
{
    int a = resolve_axis(t, axis);
    char text[128];

    *out = (td_tensor){0};
    if (a < 0)
        return TD_FAIL(TD_EINVAL, "slice: no axis %d in shape %s", axis,
                       td_shape_text(&t->shape, text, sizeof text));
    if (step == 0 || step == INT64_MIN)
        return TD_FAIL(TD_EINVAL, "slice: bad step");

    /* Python's rule: add n to negative bounds, then clamp to what the direction can reach. */
    int64_t n = t->shape.dim[a], lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    start = clamp(start < 0 ? start + n : start, lo, hi);
    stop = clamp(stop < 0 ? stop + n : stop, lo, hi);
    int64_t distance = step > 0 ? stop - start : start - stop;
    int64_t size = step > 0 ? step : -step;
    int64_t count = distance > 0 ? (distance - 1) / size + 1 : 0;

    td_tensor_view(t, out);
    out->shape.dim[a] = count;
    if (td_tensor_count(out) == 0) {
        td__row_major(&out->shape, out->stride);
        return TD_OK;
    }
    out->data = (char *)t->data + start * t->stride[a] * (int64_t)td_dtype_size(t->dtype);
    out->stride[a] = count > 1 ? t->stride[a] * step : 1;
    return TD_OK;
}

td_status td_tensor_permute(const td_tensor *t, const int *axes, td_tensor *out)
{
    unsigned seen = 0;
    char text[128];

    *out = (td_tensor){0};
    for (int i = 0; i < t->shape.ndim; i++) {
        int a = resolve_axis(t, axes[i]);
        if (a < 0 || (seen & 1u << a))
            return TD_FAIL(TD_EINVAL, "permute: axis %d is missing or twice in shape %s", axes[i],
                           td_shape_text(&t->shape, text, sizeof text));
        seen |= 1u << a;
    }
    td_tensor_view(t, out);
    for (int i = 0; i < t->shape.ndim; i++) {
        int a = resolve_axis(t, axes[i]);
        out->shape.dim[i] = t->shape.dim[a];
        out->stride[i] = t->stride[a];
    }
    return TD_OK;
}

/* Work out a size of -1; false if the counts cannot agree. */
static bool complete_shape(td_shape *s, int64_t count)
{
    int unknown = -1;
    td_shape known = *s;

    if (s->ndim < 0 || s->ndim > TD_MAX_DIMS)
        return false;
    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] != -1)
            continue;
        if (unknown >= 0)
            return false;
        unknown = i;
        known.dim[i] = 1;
    }
    int64_t rest = td_shape_count(&known);
    if (unknown < 0)
        return rest == count;
    if (rest <= 0 || count % rest)
        return false;
    s->dim[unknown] = count / rest;
    return true;
}

/* Strides of `shape` over t's elements without moving them: group the sizes of both from the left
 * into factors of equal product; inside a group t must be without gaps, and the new sizes then
 * divide its innermost stride. False if some group has gaps. */
static bool restride(const td_tensor *t, const td_shape *shape, int64_t *stride)
{
    int64_t dim[TD_MAX_DIMS], step[TD_MAX_DIMS];
    int n = 0, i = 0, k = 0;

    for (int a = 0; a < t->shape.ndim; a++) { /* sizes of 1 say nothing */
        if (t->shape.dim[a] == 1)
            continue;
        dim[n] = t->shape.dim[a];
        step[n++] = t->stride[a];
    }
    while (i < n) {
        int i0 = i, k0 = k;
        int64_t old = dim[i++], new = shape->dim[k++];
        while (old != new) {
            if (old < new)
                old *= dim[i++];
            else
                new *= shape->dim[k++];
        }
        for (int j = i0; j + 1 < i; j++)
            if (step[j] != step[j + 1] * dim[j + 1])
                return false;
        int64_t s = step[i - 1];
        for (int j = k - 1; j >= k0; j--) {
            stride[j] = s;
            s *= shape->dim[j];
        }
    }
    for (; k < shape->ndim; k++) /* only sizes of 1 are left */
        stride[k] = 1;
    return true;
}

td_status td_tensor_reshape(const td_tensor *t, td_shape shape, td_tensor *out)
{
    int64_t count = td_tensor_count(t), stride[TD_MAX_DIMS] = {0};
    char from[128], to[128];

    *out = (td_tensor){0};
    if (!complete_shape(&shape, count))
        return TD_FAIL(TD_EINVAL, "reshape: %s does not fit %s",
                       td_shape_text(&shape, to, sizeof to),
                       td_shape_text(&t->shape, from, sizeof from));
    if (count == 0)
        td__row_major(&shape, stride);
    else if (!restride(t, &shape, stride))
        return TD_FAIL(TD_ENOTSUP, "reshape: strided %s cannot be seen as %s without a copy",
                       td_shape_text(&t->shape, from, sizeof from),
                       td_shape_text(&shape, to, sizeof to));
    td_tensor_view(t, out);
    out->shape = shape;
    for (int i = 0; i < shape.ndim; i++)
        out->stride[i] = stride[i];
    return TD_OK;
}

td_status td_tensor_copy(const td_tensor *t, td_tensor *to)
{
    char a[128], b[128];

    if (!td_shape_equal(&t->shape, &to->shape))
        return TD_FAIL(TD_EINVAL, "copy: shapes %s and %s differ",
                       td_shape_text(&t->shape, a, sizeof a),
                       td_shape_text(&to->shape, b, sizeof b));
    if (!td_dtype_size(t->dtype) || !td_dtype_size(to->dtype))
        return TD_FAIL(TD_EINVAL, "copy: unknown dtype");
    td__strided_copy(to, t);
    return TD_OK;
}

td_status td_tensor_convert(const td_tensor *t, td_dtype dtype, td_tensor *out)
{
    TD_TRY(td_tensor_init(out, dtype, t->shape));
    td__strided_copy(out, t);
    return TD_OK;
}

td_status td_tensor_contiguous(const td_tensor *t, td_tensor *out)
{
    if (!td_tensor_is_contiguous(t))
        return td_tensor_convert(t, t->dtype, out);
    td_tensor_view(t, out);
    return TD_OK;
}
