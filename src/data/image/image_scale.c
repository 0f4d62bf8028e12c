/* image_scale.c -- scaling with a triangle filter, in whole numbers, bit for bit as Pillow's
 * Image.resize(..., BILINEAR).
 *
 * Output o of `out` is centred at (o + 1/2) s in the input, s = in / out. Its weights are a
 * triangle that is max(s, 1) wide on either side: between two pixels when enlarging, a mean over
 * all that the new pixel covers when shrinking. Weights are rounded to 22 bits; sums are rounded
 * and cut to 0 .. 255. Lines first, then columns, with bytes in between. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/image/image.h"

enum { BITS = 32 - 8 - 2 };

struct td__resampler {
    int64_t out, taps; /* weights of each output, at most */
    int64_t *first;    /* (out) */
    int *n;            /* (out) weights */
    int32_t *weight;   /* (out, taps) */
};

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

void td__resampler_destroy(td__resampler *r)
{
    if (!r)
        return;
    td__free(r->first);
    td__free(r->n);
    td__free(r->weight);
    td__free(r);
}

static void set_weights(td__resampler *r, int64_t o, int64_t in, double scale, double *w)
{
    double wide = scale < 1 ? 1 : scale, center = ((double)o + 0.5) * scale, sum = 0;
    int64_t begin = (int64_t)(center - wide + 0.5), end = (int64_t)(center + wide + 0.5);

    begin = begin < 0 ? 0 : begin;
    end = end > in ? in : end;
    r->first[o] = begin;
    r->n[o] = (int)(end - begin);
    for (int64_t i = begin; i < end; i++)
        sum += w[i - begin] = triangle(((double)i - center + 0.5) * (1 / wide));
    for (int k = 0; k < r->n[o]; k++) {
        double x = sum != 0 ? w[k] / sum : w[k];
        r->weight[o * r->taps + k] = (int32_t)(0.5 + x * (1 << BITS));
    }
}

td_status td__resampler_create(int64_t in, int64_t out, td__resampler **result)
{
    double scale = (double)in / (double)out, wide = scale < 1 ? 1 : scale, *w = NULL;
    td__resampler *r = *result = td__calloc(1, sizeof *r);
    size_t count;

    if (!r)
        return TD_FAIL(TD_ENOMEM, "no memory to scale images");
    r->out = out;
    r->taps = (int64_t)ceil(wide) * 2 + 1;
    if (td__size_mul((size_t)out, (size_t)r->taps, &count)) {
        r->first = td__calloc((size_t)out, sizeof *r->first);
        r->n = td__calloc((size_t)out, sizeof *r->n);
        r->weight = td__calloc(count, sizeof *r->weight);
        w = td__calloc((size_t)r->taps, sizeof *w);
    }
    if (!r->first || !r->n || !r->weight || !w) {
        td__free(w);
        td__resampler_destroy(r);
        *result = NULL;
        return TD_FAIL(TD_ENOMEM, "no memory to scale images");
    }
    for (int64_t o = 0; o < out; o++)
        set_weights(r, o, in, scale, w);
    td__free(w);
    return TD_OK;
}

static uint8_t to_byte(int32_t sum)
{
    int32_t v = sum >> BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

uint8_t td__resample_at(const td__resampler *r, int64_t o, const uint8_t *x, int64_t step)
{
    const int32_t *w = r->weight + o * r->taps;
    const uint8_t *from = x + r->first[o] * step;
    int32_t sum = 1 << (BITS - 1);

    for (int k = 0; k < r->n[o]; k++)
        sum += w[k] * from[k * step];
    return to_byte(sum);
}

/* Three interleaved colours at a time: most of the time of an image after its decoding. */
static void resample_rgb(const td__resampler *r, uint8_t *y, const uint8_t *x)
{
    for (int64_t o = 0; o < r->out; o++, y += 3) {
        const int32_t *w = r->weight + o * r->taps;
        const uint8_t *from = x + r->first[o] * 3;
        int32_t red = 1 << (BITS - 1), green = red, blue = red;
        for (int k = 0; k < r->n[o]; k++, from += 3) {
            red += w[k] * from[0];
            green += w[k] * from[1];
            blue += w[k] * from[2];
        }
        y[0] = to_byte(red);
        y[1] = to_byte(green);
        y[2] = to_byte(blue);
    }
}

/* One output line from lines of n bytes: added up line by line, as memory lies. */
static void resample_column(const td__resampler *r, int64_t o, const uint8_t *x, size_t n,
                            int32_t *sum, uint8_t *y)
{
    const int32_t *w = r->weight + o * r->taps;

    for (size_t i = 0; i < n; i++)
        sum[i] = 1 << (BITS - 1);
    for (int k = 0; k < r->n[o]; k++) {
        const uint8_t *line = x + (size_t)(r->first[o] + k) * n;
        for (size_t i = 0; i < n; i++)
            sum[i] += w[k] * line[i];
    }
    for (size_t i = 0; i < n; i++)
        y[i] = to_byte(sum[i]);
}

static void to_planes(const uint8_t *rgb, int64_t pixels, int64_t channels, int64_t all,
                      uint8_t *out)
{
    for (int64_t i = 0; i < pixels; i++, rgb += 3) {
        if (channels == 1) {
            out[i] = td__grey(rgb[0], rgb[1], rgb[2]);
            continue;
        }
        out[i] = rgb[0];
        out[all + i] = rgb[1];
        out[2 * all + i] = rgb[2];
    }
}

/* What scaling needs, in one piece of memory. */
typedef struct work {
    td__resampler *across, *down; /* NULL: that side stays as it is */
    uint8_t *narrow;              /* (box height, width, 3) */
    uint8_t *line;                /* (width, 3) */
    int32_t *sum;                 /* (width, 3) */
} work;

static void work_fini(work *w)
{
    td__resampler_destroy(w->across);
    td__resampler_destroy(w->down);
    td__free(w->narrow);
    td__free(w->line);
    td__free(w->sum);
}

static td_status work_init(work *w, const td__box *box, int64_t width, int64_t height)
{
    size_t line = (size_t)width * 3, nbytes;

    if (box->width != width)
        TD_TRY(td__resampler_create(box->width, width, &w->across));
    if (box->height != height)
        TD_TRY(td__resampler_create(box->height, height, &w->down));
    if (td__size_mul(line, (size_t)box->height, &nbytes))
        w->narrow = td__malloc(nbytes);
    w->line = td__malloc(line);
    w->sum = td__calloc(line, sizeof *w->sum);
    return w->narrow && w->line && w->sum ? TD_OK
                                          : TD_FAIL(TD_ENOMEM, "no memory to scale an image");
}

td_status td__image_scale(const td__image *m, const td__box *box, int64_t width, int64_t height,
                          int64_t channels, uint8_t *out)
{
    size_t line = (size_t)width * 3;
    work w = {0};
    td_status st = TD_OK;

    TD_TRY_OR(st, done, work_init(&w, box, width, height));
    for (int64_t y = 0; y < box->height; y++) {
        const uint8_t *from = m->rgb + (size_t)((box->top + y) * m->width + box->left) * 3;
        if (w.across)
            resample_rgb(w.across, w.narrow + (size_t)y * line, from);
        else
            memcpy(w.narrow + (size_t)y * line, from, line);
    }
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *from = w.line;
        if (w.down)
            resample_column(w.down, y, w.narrow, line, w.sum, w.line);
        else
            from = w.narrow + (size_t)y * line;
        to_planes(from, width, channels, width * height, out + y * width);
    }
done:
    work_fini(&w);
    return st;
}
