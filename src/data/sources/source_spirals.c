/* source_spirals.c -- points on interleaved spiral arms: data without files, for the smallest
 * models.
 *
 * Arm c of C:  angle = 2 pi c/C + 2 pi turns r,  r uniform in 0.05 .. 1,  turns = 0.75
 *              x = (r cos angle, r sin angle) + noise * normal
 *
 * x is (2), y the arm. `noise` is 0.03 by default, `classes` 3. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/generator.h"

enum { DEFAULT_COUNT = 3000, DEFAULT_CLASSES = 3, MAX_CLASSES = 100 };

#define TWO_PI 6.283185307179586
#define TURNS 0.75
#define DEFAULT_NOISE 0.03

typedef struct spirals {
    td__dataset head;
    uint64_t seed;
    uint32_t part;
    double noise;
} spirals;

static void spirals_destroy(td__dataset *d)
{
    td__free(d);
}

/* Elements of a sample's random stream. */
enum { AT_ARM = 0, AT_RADIUS = 1, AT_NORMAL = 4 };

static td_status spirals_read(td__dataset *head, const int64_t *index, int64_t n,
                              const td__draw *draw, void *const *out)
{
    const spirals *s = (const spirals *)head;
    int64_t classes = head->fields[1].classes;
    float *x = out[0];   /* (n, 2) */
    int32_t *y = out[1]; /* (n) */

    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        td__rng_key key = td__generator_key(s->seed, s->part, index[i]);
        int32_t arm = (int32_t)((double)td__rng_uniform(&key, AT_ARM) * (double)classes);
        double r = 0.05 + 0.95 * (double)td__rng_uniform(&key, AT_RADIUS);
        double angle = TWO_PI * ((double)arm / (double)classes + TURNS * r);
        x[2 * i] = (float)(r * cos(angle) + s->noise * (double)td__rng_normal(&key, AT_NORMAL));
        x[2 * i + 1] =
            (float)(r * sin(angle) + s->noise * (double)td__rng_normal(&key, AT_NORMAL + 1));
        y[i] = arm;
    }
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = spirals_destroy, .read = spirals_read};

static td_status spirals_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    int64_t count, classes = o->classes ? o->classes : DEFAULT_CLASSES;
    uint32_t number;

    *out = NULL;
    TD_TRY(td__generator_part("spirals", o, part, DEFAULT_COUNT, &count, &number));
    if (classes < 2 || classes > MAX_CLASSES)
        return TD_FAIL(TD_EINVAL, "spirals: classes is %" PRId64 ", expected 2 to %d", classes,
                       MAX_CLASSES);
    spirals *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for spirals");
    s->head = (td__dataset){.ops = &OPS,
                            .count = count,
                            .n_fields = 2,
                            .fields = {{.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(2)},
                                       {.name = "y", .dtype = TD_I32, .classes = classes}}};
    s->seed = o->seed;
    s->part = number;
    s->noise = o->noise > 0 ? o->noise : DEFAULT_NOISE;
    *out = &s->head;
    return TD_OK;
}

const td__source_def td__source_spirals = {
    .name = "spirals",
    .help = "generated points (2) on interleaved spiral arms; needs no files",
    .reads = "count classes noise seed",
    .open = spirals_open,
};
