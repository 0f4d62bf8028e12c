/* source_digits.c -- handwritten-like digits, drawn from strokes: data without files.
 *
 * A sample is a pure function of (seed, part, number): class and style, a random affine map,
 * trembling control points, a pen of some thickness, then what makes it hard: a few foreign strokes
 * across the image, grain, and contrast. Curves are cut into short segments, and a pixel's ink is
 * how much of it a round pen covers, from its distance to the nearest segment.
 *
 * x is (1, 28, 28) in 0 .. 1, ink bright on dark ground; y is the digit. `noise` scales foreign
 * strokes and grain; the default is 1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/rng.h"
#include "data/sources/digit_strokes.h"
#include "data/generator.h"
#include "data/kernels/image.h"
#include "data/source.h"

enum {
    SIDE = 28,
    PIXELS = SIDE * SIDE,
    CLASSES = 10,
    DEFAULT_COUNT = 20000,
    STEPS = 4,   /* segments from one control point to the next */
    FOREIGN = 3, /* strokes that do not belong to the digit, at most */
    DRAWS = 64 + 2 * TD__STYLE_STROKES * TD__STROKE_POINTS,
    GRAIN_BLOCK = 1 << 16, /* blocks of the random stream from which the grain is taken */
};

typedef struct canvas {
    float d2[TD__CANVAS][TD__CANVAS]; /* squared distance from the pen's path; 28 lines are used */
} canvas;

typedef struct digits {
    td__dataset head;
    uint64_t seed;
    uint32_t part;
    float noise;
    void (*distance)(float (*restrict d2)[TD__CANVAS], const td__segment *s, int first, int last);
    void (*pen)(float *restrict ink, const float *restrict d2, size_t n, float radius,
                float strength);
    void (*develop)(float *restrict y, const float *restrict ink, const uint8_t *restrict random,
                    size_t n, float gain, float base, float noise);
} digits;

/* Random numbers of one sample, in the order of asking. */
typedef struct draws {
    uint32_t word[DRAWS];
    int next;
} draws;

static float between(draws *r, float lo, float hi)
{
    return lo + (hi - lo) * ((float)(r->word[r->next++] >> 8) * 0x1p-24f);
}

static void clear(canvas *c)
{
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < TD__CANVAS; x++)
            c->d2[y][x] = 1e6f;
}

static void draw_segment(const digits *d, canvas *c, const td__segment *s, float reach)
{
    float top = fminf(s->y0, s->y1) - reach, bottom = fmaxf(s->y0, s->y1) + reach;

    if (bottom < 0 || top > SIDE - 1)
        return;
    d->distance(c->d2, s, top > 0 ? (int)top : 0, bottom < SIDE - 1 ? (int)bottom + 1 : SIDE - 1);
}

/* A Catmull-Rom curve through p[0..n). */
static void draw_curve(const digits *d, canvas *c, float (*p)[2], int n, float reach)
{
    td__segment s = {.x1 = p[0][0], .y1 = p[0][1]};

    for (int i = 0; i + 1 < n; i++) {
        const float *a = p[i > 0 ? i - 1 : 0], *b = p[i], *e = p[i + 1];
        const float *f = p[i + 2 < n ? i + 2 : n - 1];
        for (int k = 1; k <= STEPS; k++) {
            float t = (float)k / STEPS, t2 = t * t, t3 = t2 * t, q[2];
            for (int j = 0; j < 2; j++)
                q[j] = 0.5f * (2 * b[j] + (e[j] - a[j]) * t +
                               (2 * a[j] - 5 * b[j] + 4 * e[j] - f[j]) * t2 +
                               (3 * b[j] - a[j] - 3 * e[j] + f[j]) * t3);
            s = (td__segment){s.x1, s.y1, q[0], q[1]};
            draw_segment(d, c, &s, reach);
        }
    }
}

static void draw_digit(const digits *d, draws *r, canvas *c, int digit, float reach)
{
    const td__digit *all = &td__digits[digit];
    const td__digit_style *style = &all->style[(int)between(r, 0, (float)all->styles)];
    double turn = (double)between(r, -0.25f, 0.25f);
    float wide = between(r, 13, 19), high = between(r, 16, 22), slant = between(r, -0.32f, 0.25f);
    float tremble = between(r, 0.012f, 0.05f);
    float at_x = 13.5f + between(r, -2.4f, 2.4f), at_y = 13.5f + between(r, -2.0f, 2.0f);
    float cosine = (float)cos(turn), sine = (float)sin(turn);

    for (int k = 0; k < TD__STYLE_STROKES; k++) {
        const td__stroke *stroke = &style->stroke[k];
        float p[TD__STROKE_POINTS][2];
        for (int i = 0; i < stroke->n; i++) {
            float x = (float)stroke->point[i][0] * 0.01f - 0.5f;
            float y = (float)stroke->point[i][1] * 0.01f - 0.5f;
            if (i > 0 && memcmp(stroke->point[i], stroke->point[i - 1], 2) == 0) {
                memcpy(p[i], p[i - 1], sizeof p[i]); /* a corner stays one */
                continue;
            }
            x = (x + between(r, -tremble, tremble) - slant * y) * wide;
            y = (y + between(r, -tremble, tremble)) * high;
            p[i][0] = at_x + cosine * x - sine * y;
            p[i][1] = at_y + sine * x + cosine * y;
        }
        if (stroke->n)
            draw_curve(d, c, p, stroke->n, reach);
    }
}

/* Lines that run across the image, from edge to edge or short. */
static void draw_foreign(const digits *d, draws *r, canvas *c)
{
    int n = (int)(between(r, 0, FOREIGN + 0.999f) * fminf(d->noise, 1.0f));

    for (int i = 0; i < n; i++) {
        td__segment s = {.x0 = between(r, 0, SIDE), .y0 = between(r, 0, SIDE)};
        s.x1 = s.x0 + between(r, -16, 16);
        s.y1 = s.y0 + between(r, -16, 16);
        draw_segment(d, c, &s, 3);
    }
}

static int draw_class(const digits *d, int64_t number, draws *r)
{
    td__rng_key key = td__generator_key(d->seed, d->part, number);

    for (uint32_t b = 0; b < DRAWS / 4; b++)
        td__philox4(&key, b, r->word + 4 * b);
    r->next = 0;
    return (int)between(r, 0, CLASSES);
}

static void draw_sample(const digits *d, int64_t number, float *x, int32_t *y)
{
    td__rng_key key = td__generator_key(d->seed, d->part, number);
    uint32_t grain[PIXELS / 4];
    float ink[SIDE][TD__CANVAS] = {{0}}, flat[PIXELS];
    draws r;
    canvas c;

    int digit = draw_class(d, number, &r);
    float radius = between(&r, 0.5f, 1.5f);
    clear(&c);
    draw_digit(d, &r, &c, digit, radius + 1);
    d->pen(&ink[0][0], &c.d2[0][0], SIDE * TD__CANVAS, radius, 1);
    float foreign = between(&r, 0.3f, 0.8f);
    clear(&c);
    draw_foreign(d, &r, &c);
    d->pen(&ink[0][0], &c.d2[0][0], SIDE * TD__CANVAS, between(&r, 0.2f, 0.7f), foreign);
    for (int line = 0; line < SIDE; line++)
        memcpy(flat + line * SIDE, ink[line], SIDE * sizeof(float));
    for (uint32_t b = 0; b < PIXELS / 16; b++)
        td__philox4(&key, GRAIN_BLOCK + b, grain + 4 * b);
    float gain = between(&r, 0.55f, 1.0f), ground = between(&r, 0, 0.12f) * d->noise;
    d->develop(x, flat, (const uint8_t *)grain, PIXELS, gain - ground, ground,
               between(&r, 0.05f, 0.35f) * d->noise / 255);
    *y = digit;
}

static void digits_destroy(td__dataset *d)
{
    td__free(d);
}

static td_status digits_read(td__dataset *head, const int64_t *index, int64_t n,
                             const td__draw *draw, void *const *out)
{
    float *x = out[0];
    int32_t *y = out[1];

    (void)draw;
    for (int64_t i = 0; i < n; i++)
        draw_sample((const digits *)head, index[i], x + i * PIXELS, y + i);
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = digits_destroy, .read = digits_read};

static const char *const NAMES[CLASSES] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

static td_status digits_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    td__isa isa = td__cpu_isa();
    int64_t count;
    uint32_t number;

    *out = NULL;
    TD_TRY(td__generator_part("digits", o, part, DEFAULT_COUNT, &count, &number));
    digits *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for digits");
    d->head = (td__dataset){
        .ops = &OPS,
        .count = count,
        .n_fields = 2,
        .fields = {{.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(1, SIDE, SIDE)},
                   {.name = "y", .dtype = TD_I32, .classes = CLASSES, .class_names = NAMES}}};
    d->seed = o->seed;
    d->part = number;
    d->noise = o->noise > 0 ? (float)o->noise : 1;
    d->distance = TD_ISA_PICK(isa, td__segment_distance);
    d->pen = TD_ISA_PICK(isa, td__pen);
    d->develop = TD_ISA_PICK(isa, td__develop);
    *out = &d->head;
    return TD_OK;
}

const td__source_def td__source_digits = {
    .name = "digits",
    .help = "generated images of digits (1, 28, 28); needs no files",
    .reads = "count noise seed",
    .open = digits_open,
};
