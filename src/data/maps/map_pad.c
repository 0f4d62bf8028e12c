/* map_pad.c -- images get `pad` pixels of value a on every side of the last two axes; vectors are
 * made `size` long, with a at the end, or cut. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/map.h"
#include "tandem/tensor.h"

enum { MAX_SIZE = 1 << 24 };

static td_status pad_open(td__map *m, td__dataset *train)
{
    td_shape *out = &m->out.shape;
    const td__map_opts *o = &m->opts;

    (void)train;
    if (out->ndim < 1)
        return TD_FAIL(TD_EINVAL, "pad: field %s has no axis", m->in.name);
    if (out->ndim == 1 && (o->size < 1 || o->size > MAX_SIZE))
        return TD_FAIL(TD_EINVAL, "pad: size is %" PRId64 ", expected 1 to %d", o->size, MAX_SIZE);
    if (out->ndim > 1 && (o->pad < 1 || o->pad > MAX_SIZE))
        return TD_FAIL(TD_EINVAL, "pad: pad is %" PRId64 ", expected 1 to %d", o->pad, MAX_SIZE);
    if (out->ndim == 1) {
        out->dim[0] = o->size;
    } else {
        out->dim[out->ndim - 2] += 2 * o->pad;
        out->dim[out->ndim - 1] += 2 * o->pad;
    }
    int64_t count = td_shape_count(out);
    if (count < 0 || count > INT32_MAX)
        return TD_FAIL(TD_EINVAL, "pad: field %s becomes too large", m->in.name);
    /* The value in the field's own type. */
    m->state = td__calloc(1, sizeof(double));
    if (!m->state)
        return TD_FAIL(TD_ENOMEM, "no memory for pad");
    td_tensor from, to;
    double value = o->a;
    TD_TRY(td_tensor_wrap(&from, TD_F64, TD_SCALAR, &value));
    TD_TRY(td_tensor_wrap(&to, m->in.dtype, TD_SCALAR, m->state));
    return td_tensor_copy(&from, &to);
}

static void pad_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                      const void *x, void *y)
{
    const td_shape *in = &m->in.shape, *out = &m->out.shape;
    size_t size = td_dtype_size(m->in.dtype), values = td__field_nbytes(&m->out) / size * (size_t)n;
    int64_t wide = in->dim[in->ndim - 1], to_wide = out->dim[out->ndim - 1];
    int64_t high = in->ndim > 1 ? in->dim[in->ndim - 2] : 1;
    int64_t to_high = in->ndim > 1 ? out->dim[out->ndim - 2] : 1;
    int64_t before = in->ndim > 1 ? m->opts.pad : 0;
    int64_t taken = wide < to_wide ? wide : to_wide;
    const char *from = x;
    char *to = y;

    (void)index;
    (void)draw;
    for (size_t i = 0; i < values; i++)
        memcpy(to + i * size, m->state, size);
    int64_t planes = wide > 0 && high > 0 ? td_shape_count(in) / (wide * high) * n : 0;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t line = 0; line < high; line++)
            memcpy(to + (size_t)((p * to_high + before + line) * to_wide + before) * size,
                   from + (size_t)((p * high + line) * wide) * size, (size_t)taken * size);
}

const td__map_def td__map_pad = {
    .name = "pad",
    .help = "images: adds a border of pad pixels; vectors: pads or truncates to size",
    .reads = "a size pad",
    .open = pad_open,
    .apply = pad_apply,
};
