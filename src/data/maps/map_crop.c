/* map_crop.c -- a window of the last two axes (size, size2: a square with size alone, the whole
 * without), after `pad` zeros on every side: at a random place in training, in the middle in
 * evaluation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "data/map.h"

enum { MAX_PAD = 1 << 16 };

static td_status crop_open(td__map *m, td__dataset *train)
{
    td__map_opts *o = &m->opts;
    int ndim = m->in.shape.ndim;

    (void)train;
    if (ndim < 2)
        return TD_FAIL(TD_EINVAL, "crop: field %s is not an image", m->in.name);
    int64_t *high = &m->out.shape.dim[ndim - 2], *wide = &m->out.shape.dim[ndim - 1];
    if (!o->size2)
        o->size2 = o->size ? o->size : *wide;
    if (!o->size)
        o->size = *high;
    if (o->pad < 0 || o->pad > MAX_PAD || o->size < 1 || o->size > *high + 2 * o->pad ||
        o->size2 < 1 || o->size2 > *wide + 2 * o->pad)
        return TD_FAIL(TD_EINVAL,
                       "crop: %" PRId64 " x %" PRId64 " of an image of %" PRId64 " x %" PRId64
                       " with pad %" PRId64,
                       o->size, o->size2, *high, *wide, o->pad);
    *high = o->size;
    *wide = o->size2;
    return TD_OK;
}

/* Copies what the window at (top, left), in pixels of the unpadded image, sees of one plane. */
static void crop_plane(const td__map *m, const char *x, char *y, int64_t top, int64_t left)
{
    const td_shape *in = &m->in.shape;
    int64_t high = in->dim[in->ndim - 2], wide = in->dim[in->ndim - 1];
    size_t size = td_dtype_size(m->in.dtype);
    int64_t begin = left < 0 ? -left : 0;
    int64_t end = wide - left < m->opts.size2 ? wide - left : m->opts.size2;

    for (int64_t line = 0; line < m->opts.size; line++, y += (size_t)m->opts.size2 * size) {
        int64_t from = top + line;
        if (from < 0 || from >= high || begin >= end) {
            memset(y, 0, (size_t)m->opts.size2 * size);
            continue;
        }
        memset(y, 0, (size_t)begin * size);
        memcpy(y + (size_t)begin * size, x + (size_t)(from * wide + left + begin) * size,
               (size_t)(end - begin) * size);
        memset(y + (size_t)end * size, 0, (size_t)(m->opts.size2 - end) * size);
    }
}

static void crop_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                       const void *x, void *y)
{
    const td_shape *in = &m->in.shape;
    size_t size = td_dtype_size(m->in.dtype);
    int64_t high = in->dim[in->ndim - 2], wide = in->dim[in->ndim - 1], planes = 1;
    size_t in_plane = (size_t)(high * wide) * size;
    size_t out_plane = (size_t)(m->opts.size * m->opts.size2) * size;
    uint64_t tops = (uint64_t)(high + 2 * m->opts.pad - m->opts.size) + 1;
    uint64_t lefts = (uint64_t)(wide + 2 * m->opts.pad - m->opts.size2) + 1;

    for (int i = 0; i < in->ndim - 2; i++)
        planes *= in->dim[i];
    for (int64_t i = 0; i < n; i++) {
        int64_t top = (int64_t)(tops - 1) / 2, left = (int64_t)(lefts - 1) / 2;
        if (draw) {
            td__rng_key key = td__map_key(m, draw, index[i]);
            top = (int64_t)(td__rng_u32(&key, 0) * tops >> 32);
            left = (int64_t)(td__rng_u32(&key, 1) * lefts >> 32);
        }
        for (int64_t p = i * planes; p < (i + 1) * planes; p++)
            crop_plane(m, (const char *)x + (size_t)p * in_plane, (char *)y + (size_t)p * out_plane,
                       top - m->opts.pad, left - m->opts.pad);
    }
}

const td__map_def td__map_crop = {
    .name = "crop",
    .help = "random crop of size x width after zero padding; center crop in evaluation",
    .reads = "size size2 pad",
    .draws = true,
    .open = crop_open,
    .apply = crop_apply,
};
