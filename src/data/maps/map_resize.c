/* map_resize.c -- the last two axes of images of bytes scaled to size x size2 (a square with size
 * alone), as image_scale.c does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/image/image.h"
#include "data/map.h"

enum { MOST = 16384 };

typedef struct state {
    td__resampler *across, *down;
    int64_t high, wide, new_high, new_wide, planes;
} state;

static void resize_close(td__map *m)
{
    state *s = m->state;

    if (s) {
        td__resampler_destroy(s->across);
        td__resampler_destroy(s->down);
    }
}

static td_status resize_open(td__map *m, td__dataset *train)
{
    int ndim = m->in.shape.ndim;
    int64_t size2 = m->opts.size2 ? m->opts.size2 : m->opts.size;

    (void)train;
    if (ndim < 2 || m->in.dtype != TD_U8 || m->in.classes)
        return TD_FAIL(TD_EINVAL,
                       "resize: field %s is not an image of bytes: it comes before "
                       "normalize",
                       m->in.name);
    if (m->opts.size < 1 || m->opts.size > MOST || size2 < 1 || size2 > MOST)
        return TD_FAIL(TD_EINVAL, "resize: to %" PRId64 " x %" PRId64 ": expected 1 to %d",
                       m->opts.size, size2, MOST);
    state *s = m->state = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for resize");
    *s = (state){.high = m->in.shape.dim[ndim - 2],
                 .wide = m->in.shape.dim[ndim - 1],
                 .new_high = m->opts.size,
                 .new_wide = size2,
                 .planes = 1};
    for (int i = 0; i < ndim - 2; i++)
        s->planes *= m->in.shape.dim[i];
    if (s->high < 1 || s->wide < 1 || s->high > MOST)
        return TD_FAIL(TD_EINVAL, "resize: field %s is empty, or higher than %d", m->in.name, MOST);
    m->out.shape.dim[ndim - 2] = s->new_high;
    m->out.shape.dim[ndim - 1] = s->new_wide;
    TD_TRY(td__resampler_create(s->wide, s->new_wide, &s->across));
    return td__resampler_create(s->high, s->new_high, &s->down);
}

/* A column of the new width at a time: what is between the two passes fits on the stack. */
static void resize_plane(const state *s, const uint8_t *x, uint8_t *y)
{
    uint8_t column[MOST];

    for (int64_t at = 0; at < s->new_wide; at++) {
        for (int64_t row = 0; row < s->high; row++)
            column[row] = td__resample_at(s->across, at, x + row * s->wide, 1);
        for (int64_t row = 0; row < s->new_high; row++)
            y[row * s->new_wide + at] = td__resample_at(s->down, row, column, 1);
    }
}

static void resize_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                         const void *x, void *y)
{
    const state *s = m->state;

    (void)index;
    (void)draw;
    for (int64_t i = 0; i < n * s->planes; i++)
        resize_plane(s, (const uint8_t *)x + i * s->high * s->wide,
                     (uint8_t *)y + i * s->new_high * s->new_wide);
}

const td__map_def td__map_resize = {
    .name = "resize",
    .help = "images scaled to size x width, as Pillow's bilinear resize",
    .reads = "size size2",
    .open = resize_open,
    .close = resize_close,
    .apply = resize_apply,
};
