/* map_normalize.c -- y = (s x - mean) / std, as f32; s is 1/255 for bytes, else 1.
 *
 * Without mean and std (both 0) they are measured on the train part: on all its samples, or where
 * reading one takes work (it is decoded, or a program makes it) on 10,000 that are spread evenly
 * over the part. Measured are a mean and a std per channel of images (the first of three axes), per
 * feature of plain vectors, per column of windows over a table, else over all elements. What does
 * not vary has std 1.
 *
 * A value belongs to a group: element i of a sample to group i / inner % groups. Windows of `time`
 * rows go through the groups `time` times (repeats). */
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
    bool in_rows;                   /* groups are the columns of windows over a table */
    int64_t repeats, groups, inner; /* elements of a sample = the product of the three */
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

/* What elements begin .. begin + inner - 1, all of one group, add. */
static double add_run(const measurement *w, const void *x, int64_t begin, double mean, double sum)
{
    td_dtype dtype = w->map->in.dtype;
    double scale = unit(dtype);

    for (int64_t i = begin; i < begin + w->s->inner; i++) {
        double value = td__element(x, dtype, i) * scale;
        sum += w->pass == 0 ? value * w->share : (value - mean) * (value - mean) * w->share;
    }
    return sum;
}

static td_status see(void *context, int64_t begin, int64_t n, const void *x)
{
    measurement *w = context;
    double *sum = w->pass == 0 ? w->mean : w->square;
    int64_t at = 0;

    (void)begin;
    for (int64_t r = 0; r < n * w->s->repeats; r++)
        for (int64_t g = 0; g < w->s->groups; g++, at += w->s->inner)
            sum[g] = add_run(w, x, at, w->mean[g], sum[g]);
    return TD_OK;
}

static td_status measure(const td__map *m, state *s, td__dataset *train)
{
    int64_t most = train->costly ? MEASURED : INT64_MAX;
    int64_t n = train->count < most ? train->count : most;
    td_status st = TD_OK;
    measurement w = {.map = m, .s = s};

    w.share = 1 / ((double)n * (double)(s->inner * s->repeats));
    w.mean = td__calloc((size_t)s->groups * 2 + 1, sizeof *w.mean);
    if (!w.mean)
        return TD_FAIL(TD_ENOMEM, "normalize: no memory for %lld means", (long long)s->groups);
    w.square = w.mean + s->groups;
    for (; w.pass < 2; w.pass++)
        TD_TRY_OR(st, done, td__map_walk(train, m->field, most, see, &w));
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

/* Channels or features. */
static int64_t neighbours_of(const td__field *f)
{
    return f->shape.ndim == 1 || f->shape.ndim == 3 ? f->shape.dim[0] : 1;
}

/* How many means a field has. */
static int64_t groups_of(const td__field *f)
{
    if (!f->in_time)
        return neighbours_of(f);
    return f->shape.dim[0] ? td_shape_count(&f->shape) / f->shape.dim[0] : 0;
}

/* The state with room for its groups: of neighbours, or in rows, which repeat them. */
static td_status prepare(td__map *m, int64_t groups, bool in_rows, state **out)
{
    int64_t count = td_shape_count(&m->in.shape);
    bool given = m->opts.a != 0 || m->opts.b != 0;
    td__isa isa = td__cpu_isa();

    if (m->in.dtype == TD_BF16 || m->in.dtype == TD_F16)
        return TD_FAIL(TD_ENOTSUP, "normalize: field %s is %s", m->in.name,
                       td_dtype_name(m->in.dtype));
    if (!isfinite(m->opts.a) || !isfinite(m->opts.b) || (given && !(m->opts.b > 0)))
        return TD_FAIL(TD_EINVAL, "normalize: mean %g, std %g: std must be above 0", m->opts.a,
                       m->opts.b);
    groups = given ? 1 : groups;
    in_rows = in_rows && !given;
    state *s = td__calloc(1, sizeof *s + (size_t)groups * 2 * (sizeof(double) + sizeof(float)));
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for normalize");
    m->state = *out = s;
    s->groups = groups;
    s->in_rows = in_rows;
    s->repeats = in_rows && groups ? count / groups : 1;
    s->inner = !groups ? 0 : in_rows ? 1 : count / groups;
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

    TD_TRY(prepare(m, groups_of(&m->in), m->in.in_time, &s));
    if (!given)
        TD_TRY(measure(m, s, train));
    describe(m);
    return TD_OK;
}

static json_t *normalize_save(const td__map *m)
{
    const state *s = m->state;
    json_t *to = json_pack("{s:o, s:o}", "mean", td__fit_save_numbers(s->mean, s->groups), "std",
                           td__fit_save_numbers(s->std, s->groups));

    if (s->in_rows)
        json_object_set_new(to, "in_rows", json_true());
    return to;
}

static td_status normalize_open_fitted(td__map *m, const td__fit *where, const json_t *from)
{
    const json_t *mean = json_object_get(from, "mean");
    bool in_rows = json_is_true(json_object_get(from, "in_rows"));
    int64_t groups = (int64_t)json_array_size(mean), count = td_shape_count(&m->in.shape);
    state *s;

    /* Runs of older versions have one mean for all columns of a window. */
    bool known = in_rows ? groups > 0 && count % groups == 0
                         : groups == 1 || groups == neighbours_of(&m->in);
    if (!known)
        return td__fit_bad(where, "the means of normalize");
    TD_TRY(prepare(m, groups, in_rows, &s));
    if (!td__fit_load_numbers(mean, s->mean, s->groups) ||
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
    size_t inner = (size_t)s->inner, groups = (size_t)s->groups;
    size_t runs = (size_t)(n * s->repeats) * groups;
    float *to = y;

    (void)index;
    (void)draw;
    if (groups == 1) {
        inner *= (size_t)(n * s->repeats);
        runs = inner ? 1 : 0;
    }
    for (size_t r = 0; r < runs; r++, to += inner) {
        size_t g = r % groups;
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
        "(x - mean) / std as f32, bytes scaled by 1/255 first; if not given, measured per channel "
        "of images, per column of tables and time series, else over all elements",
    .reads = "a b",
    .open = normalize_open,
    .save = normalize_save,
    .open_fitted = normalize_open_fitted,
    .apply = normalize_apply,
};
