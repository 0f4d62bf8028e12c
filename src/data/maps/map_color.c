/* map_color.c -- images of bytes with other brightness and contrast in training, each drawn for
 * every sample:
 *
 *     y = c (b x - m) + m      b in 1 - brightness .. 1 + brightness, c likewise,
 *                              m the mean grey of b x
 *
 * rounded and kept in 0 .. 255. Left out in evaluation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "data/map.h"

static td_status color_open(td__map *m, td__dataset *train)
{
    (void)train;
    if (m->in.shape.ndim != 3 || m->in.dtype != TD_U8 || m->in.classes)
        return TD_FAIL(TD_EINVAL,
                       "color: field %s is not an image of bytes: it comes before "
                       "normalize",
                       m->in.name);
    if (!(m->opts.a >= 0 && m->opts.a <= 1 && m->opts.b >= 0 && m->opts.b <= 1))
        return TD_FAIL(TD_EINVAL, "color: brightness %g, contrast %g: expected 0 to 1", m->opts.a,
                       m->opts.b);
    return TD_OK;
}

static uint8_t to_byte(double v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v + 0.5);
}

/* The mean grey of an image: of its first three planes, or of all of its only one. */
static double mean_grey(const uint8_t *x, int64_t planes, int64_t pixels)
{
    static const double SHARE[] = {0.299, 0.587, 0.114};
    double mean = 0;

    for (int64_t c = 0; c < planes && c < 3; c++) {
        uint64_t sum = 0;
        for (int64_t p = 0; p < pixels; p++)
            sum += x[c * pixels + p];
        mean += (planes < 3 ? 1.0 / (double)planes : SHARE[c]) * (double)sum / (double)pixels;
    }
    return mean;
}

static void color_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                        const void *x, void *y)
{
    int64_t planes = m->in.shape.dim[0], pixels = m->in.shape.dim[1] * m->in.shape.dim[2];
    size_t each = td__field_nbytes(&m->in);

    for (int64_t i = 0; i < n; i++) {
        const uint8_t *from = (const uint8_t *)x + (size_t)i * each;
        uint8_t *to = (uint8_t *)y + (size_t)i * each;
        if (!draw) {
            memcpy(to, from, each);
            continue;
        }
        td__rng_key key = td__map_key(m, draw, index[i]);
        double b = 1 + m->opts.a * (2 * (double)td__rng_uniform(&key, 0) - 1);
        double c = 1 + m->opts.b * (2 * (double)td__rng_uniform(&key, 1) - 1);
        double mean = b * mean_grey(from, planes, pixels);
        uint8_t table[256];
        for (int v = 0; v < 256; v++)
            table[v] = to_byte(c * (b * v - mean) + mean);
        for (size_t p = 0; p < each; p++)
            to[p] = table[from[p]];
    }
}

const td__map_def td__map_color = {
    .name = "color",
    .help = "random brightness and contrast of images, in training only",
    .reads = "a b",
    .draws = true,
    .open = color_open,
    .apply = color_apply,
};
