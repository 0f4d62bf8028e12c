/* map_one_hot.c -- a class c becomes f32 with 1 at place c of a new last axis; `size` says how many
 * places there are where the field does not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "data/map.h"

enum { MAX_CLASSES = 1 << 20 };

static td_status one_hot_open(td__map *m, td__dataset *train)
{
    int64_t classes = m->opts.size ? m->opts.size : m->in.classes;

    (void)train;
    if (td_dtype_is_float(m->in.dtype))
        return TD_FAIL(TD_EINVAL, "one_hot: field %s is %s, expected integers", m->in.name,
                       td_dtype_name(m->in.dtype));
    if (classes < 1 || classes > MAX_CLASSES || classes < m->in.classes)
        return TD_FAIL(TD_EINVAL,
                       "one_hot: size is %" PRId64 " for field %s, expected %" PRId64 " to %d",
                       classes, m->in.name, m->in.classes ? m->in.classes : 1, MAX_CLASSES);
    if (m->in.shape.ndim == TD_MAX_DIMS)
        return TD_FAIL(TD_EINVAL, "one_hot: field %s has no room for an axis", m->in.name);
    m->opts.size = classes;
    m->out.dtype = TD_F32;
    m->out.classes = 0;
    m->out.class_names = NULL;
    m->out.shape.dim[m->out.shape.ndim++] = classes;
    int64_t count = td_shape_count(&m->out.shape);
    if (count < 0 || count > INT32_MAX)
        return TD_FAIL(TD_EINVAL, "one_hot: field %s becomes too large", m->in.name);
    return TD_OK;
}

/* A number that is no class leaves zeros: the source gave a range, and holds it. */
static void one_hot_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                          const void *x, void *y)
{
    int64_t values = td_shape_count(&m->in.shape) * n;

    (void)index;
    (void)draw;
    memset(y, 0, td__field_nbytes(&m->out) * (size_t)n);
    for (int64_t i = 0; i < values; i++) {
        double class = td__element(x, m->in.dtype, i);
        if (class >= 0 && class < (double)m->opts.size)
            ((float *)y)[i * m->opts.size + (int64_t) class] = 1;
    }
}

const td__map_def td__map_one_hot = {
    .name = "one_hot",
    .help = "one-hot encoding of a class, f32, along a new last axis",
    .reads = "size",
    .open = one_hot_open,
    .apply = one_hot_apply,
};
