/* map_normalize.c -- y = (s x - mean) / std, as f32; s is 1/255 for bytes, else 1.
 *
 * Without mean and std (both 0) they are measured on the train part, in its first 10,000 samples at
 * most: per channel of images (the first of three axes), per feature of plain vectors, else over
 * all elements. What does not vary has std 1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/fit_json.h"
#include "data/kernels/image.h"
#include "data/map.h"

enum { MEASURED = 10000 };

typedef struct state {
    int64_t groups, inner; /* elements = groups * inner; a group shares scale and shift */
    void (*u8)(float *restrict y, const uint8_t *restrict x, size_t n, float scale, float shift);
    void (*f32)(float *restrict y, const float *restrict x, size_t n, float scale, float shift);
    double *mean, *std;   /* (groups) */
    float *scale, *shift; /* (groups) */
    double values[];
} state;

static double unit(td_dtype dtype)
{
    return dtype == TD_U8 ? 1.0 / 255.0 : 1.0;
}

static void set_group(state *s, int64_t g, td_dtype dtype, double mean, double std)
{
    s->mean[g] = mean;
    s->std[g] = std;
    s->scale[g] = (float)(unit(dtype) / std);
    s->shift[g] = (float)(-mean / std);
}

/* Means first, then mean squares of the differences: two passes lose no digits. */
typedef struct measurement {
    const td__map *map;
    const state *s;
    int pass;
    double share;          /* of one element in its group's mean */
    double *mean, *square; /* (groups) */
} measurement;

static td_status see(void *context, int64_t begin, int64_t n, const void *x)
{
    measurement *w = context;
    td_dtype dtype = w->map->in.dtype;

    (void)begin;
    for (int64_t i = 0; i < n * w->s->groups * w->s->inner; i++) {
        int64_t g = i / w->s->inner % w->s->groups;
        double value = td__element(x, dtype, i) * unit(dtype);
        if (w->pass == 0)
            w->mean[g] += value * w->share;
        else
            w->square[g] += (value - w->mean[g]) * (value - w->mean[g]) * w->share;
    }
    return TD_OK;
}

static td_status measure(const td__map *m, state *s, td__dataset *train)
{
    int64_t n = train->count < MEASURED ? train->count : MEASURED;
    td_status st = TD_OK;
    measurement w = {.map = m, .s = s, .share = 1 / ((double)n * (double)s->inner)};

    w.mean = td__calloc((size_t)s->groups * 2 + 1, sizeof *w.mean);
    if (!w.mean)
        return TD_FAIL(TD_ENOMEM, "normalize: no memory for %lld means", (long long)s->groups);
    w.square = w.mean + s->groups;
    for (; w.pass < 2; w.pass++)
        TD_TRY_OR(st, done, td__map_walk(train, m->field, MEASURED, see, &w));
    for (int64_t g = 0; g < s->groups; g++) {
        double std = sqrt(w.square[g]);
        if (!isfinite(w.mean[g]) || !isfinite(std)) {
            st = TD_FAIL(TD_EINVAL, "normalize: field %s holds values that are not finite",
                         m->in.name);
            goto done;
        }
        set_group(s, g, m->in.dtype, w.mean[g], std > 1e-12 ? std : 1);
    }
done:
    td__free(w.mean);
    return st;
}

/* The state with room for its groups. */
static td_status prepare(td__map *m, state **out)
{
    const td_shape *shape = &m->in.shape;
    bool given = m->opts.a != 0 || m->opts.b != 0;
    td__isa isa = td__cpu_isa();

    if (m->in.dtype == TD_BF16 || m->in.dtype == TD_F16)
        return TD_FAIL(TD_ENOTSUP, "normalize: field %s is %s", m->in.name,
                       td_dtype_name(m->in.dtype));
    if (!isfinite(m->opts.a) || !isfinite(m->opts.b) || (given && !(m->opts.b > 0)))
        return TD_FAIL(TD_EINVAL, "normalize: mean %g, std %g: std must be above 0", m->opts.a,
                       m->opts.b);
    int64_t groups = given              ? 1
                     : shape->ndim == 1 ? shape->dim[0]
                     : shape->ndim == 3 ? shape->dim[0]
                                        : 1;
    state *s = td__calloc(1, sizeof *s + (size_t)groups * 2 * (sizeof(double) + sizeof(float)));
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for normalize");
    m->state = *out = s;
    s->groups = groups;
    s->inner = groups ? td_shape_count(shape) / groups : 0;
    s->mean = s->values;
    s->std = s->mean + groups;
    s->scale = (float *)(void *)(s->std + groups);
    s->shift = s->scale + groups;
    s->u8 = TD_ISA_PICK(isa, td__scale_u8);
    s->f32 = TD_ISA_PICK(isa, td__scale_f32);
    if (given)
        set_group(s, 0, m->in.dtype, m->opts.a, m->opts.b);
    return TD_OK;
}

static void describe(td__map *m)
{
    const state *s = m->state;
    bool bytes = m->in.dtype == TD_U8;

    m->out.dtype = TD_F32;
    m->out.classes = 0;
    m->out.class_names = NULL;
    /* Bytes are pixels, which nobody wants back; of a field normalized twice only the last stage
     * could be undone. */
    m->out.units =
        bytes || m->in.units.n ? (td__units){0} : (td__units){s->mean, s->std, s->groups, s->inner};
}

static td_status normalize_open(td__map *m, td__dataset *train)
{
    bool given = m->opts.a != 0 || m->opts.b != 0;
    state *s;

    TD_TRY(prepare(m, &s));
    if (!given)
        TD_TRY(measure(m, s, train));
    describe(m);
    return TD_OK;
}

static json_t *normalize_save(const td__map *m)
{
    const state *s = m->state;
    return json_pack("{s:o, s:o}", "mean", td__fit_save_numbers(s->mean, s->groups), "std",
                     td__fit_save_numbers(s->std, s->groups));
}

static td_status normalize_open_fitted(td__map *m, const td__fit *where, const json_t *from)
{
    state *s;

    TD_TRY(prepare(m, &s));
    if (!td__fit_load_numbers(json_object_get(from, "mean"), s->mean, s->groups) ||
        !td__fit_load_numbers(json_object_get(from, "std"), s->std, s->groups))
        return td__fit_bad(where, "the means of normalize");
    for (int64_t g = 0; g < s->groups; g++)
        set_group(s, g, m->in.dtype, s->mean[g], s->std[g]);
    describe(m);
    return TD_OK;
}

static void normalize_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                            const void *x, void *y)
{
    const state *s = m->state;
    size_t inner = (size_t)s->inner, runs = (size_t)(n * s->groups);
    float *to = y;

    (void)index;
    (void)draw;
    if (s->groups == 1) {
        inner *= (size_t)n;
        runs = inner ? 1 : 0;
    }
    for (size_t r = 0; r < runs; r++, to += inner) {
        size_t g = r % (size_t)s->groups;
        float scale = s->scale[g], shift = s->shift[g];
        if (m->in.dtype == TD_U8)
            s->u8(to, (const uint8_t *)x + r * inner, inner, scale, shift);
        else if (m->in.dtype == TD_F32)
            s->f32(to, (const float *)x + r * inner, inner, scale, shift);
        else
            for (size_t i = 0; i < inner; i++)
                to[i] =
                    (float)td__element(x, m->in.dtype, (int64_t)(r * inner + i)) * scale + shift;
    }
}

const td__map_def td__map_normalize = {
    .name = "normalize",
    .help =
        "(x - mean) / std as f32, bytes scaled by 1/255 first; measured per channel if not given",
    .reads = "a b",
    .open = normalize_open,
    .save = normalize_save,
    .open_fitted = normalize_open_fitted,
    .apply = normalize_apply,
};
