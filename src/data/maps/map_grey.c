/* map_grey.c -- images of three colours, (3, height, width), in grey, (1, height, width). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "data/image/image.h"
#include "data/map.h"

static td_status grey_open(td__map *m, td__dataset *train)
{
    (void)train;
    if (m->in.shape.ndim != 3 || m->in.shape.dim[0] != 3 || m->in.dtype != TD_U8 || m->in.classes)
        return TD_FAIL(TD_EINVAL, "grey: field %s is not an image of bytes in three colours",
                       m->in.name);
    m->out.shape.dim[0] = 1;
    return TD_OK;
}

static void grey_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                       const void *x, void *y)
{
    int64_t pixels = m->in.shape.dim[1] * m->in.shape.dim[2];
    const uint8_t *from = x;
    uint8_t *to = y;

    (void)index;
    (void)draw;
    for (int64_t i = 0; i < n; i++, from += 3 * pixels, to += pixels)
        for (int64_t p = 0; p < pixels; p++)
            to[p] = td__grey(from[p], from[pixels + p], from[2 * pixels + p]);
}

const td__map_def td__map_grey = {
    .name = "grey",
    .help = "colour images in grey",
    .reads = "",
    .open = grey_open,
    .apply = grey_apply,
};
