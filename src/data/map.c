/* map.c -- map stages as views of datasets; see map.h.
 *
 * A view reads the field that changes into scratch memory, some samples at a time so that they stay
 * in the cache, and all other fields straight to where they are wanted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/map.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/fit_json.h"
#include "data/permute.h"
#include "data/scratch.h"

enum { SCRATCH_BYTES = 64 << 10, MAX_CHUNK = 256, WALK = 64 };

static const td__map_def *const MAPS[] = {
#define TD_MAP(name) &td__map_##name,
#include "data/maps.def"
#undef TD_MAP
};

const td__map_def *td__map_list(int i)
{
    return i >= 0 && i < TD_LEN(MAPS) ? MAPS[i] : NULL;
}

const td__map_def *td__map_find(const char *name)
{
    for (int i = 0; i < TD_LEN(MAPS); i++)
        if (strcmp(MAPS[i]->name, name) == 0)
            return MAPS[i];
    return NULL;
}

td__rng_key td__map_key(const td__map *m, const td__draw *draw, int64_t index)
{
    return (td__rng_key){.seed = draw->seed ^ (uint64_t)m->stage << 32 ^ (uint64_t)index >> 32,
                         .stream = TD__STREAM_DRAW,
                         .step = (uint32_t)draw->epoch,
                         .micro_batch = (uint32_t)index};
}

static td_status open_map(td__map *m, td__dataset *train, const td__fit *fit)
{
    if (!fit || !m->def->open_fitted)
        return m->def->open(m, train);
    const json_t *from = td__fit_map(fit, m->stage, m->def->name);
    return from ? m->def->open_fitted(m, fit, from) : td__fit_bad(fit, "other stages");
}

td_status td__map_open(const td__map_opts *o, int stage, td__dataset *train, const td__fit *fit,
                       td__map **out)
{
    const char *field = o->field ? o->field : "x";
    const td__map_def *def = o->def ? o->def : td__map_find(o->name);
    td_status st = TD_OK;

    *out = NULL;
    if (!def)
        return TD_FAIL(TD_EINVAL, "unknown map stage '%s'", o->name);
    int f = td__dataset_field(train, field);
    if (f < 0 && def->keep && !o->field)
        f = 0; /* the condition names its field */
    if (f < 0)
        return TD_FAIL(TD_EINVAL, "%s: samples have no field '%s'", o->name, field);
    td__map *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory for map stage '%s'", o->name);
    m->def = def;
    m->opts = *o;
    m->opts.name = def->name; /* the caller's texts may go; stages keep what they need in state */
    m->opts.field = train->fields[f].name;
    m->stage = stage;
    m->field = f;
    m->in = m->out = train->fields[f];
    TD_TRY_OR(st, fail, open_map(m, train, fit));
    if (!td_shape_equal(&m->out.shape, &m->in.shape))
        m->out.units = (td__units){0};
    m->opts.field = m->out.name;
    m->opts.text = NULL;
    *out = m;
    return TD_OK;
fail:
    td__map_close(m);
    return st;
}

void td__map_close(td__map *m)
{
    if (!m)
        return;
    if (m->def->close && m->state)
        m->def->close(m);
    td__free(m->state);
    td__free(m);
}

typedef struct view {
    td__dataset head;
    const td__map *map;
    td__dataset *base;
    int64_t chunk;            /* samples at a time */
    td__scratch_list scratch; /* `chunk` values of the field, before the stage */
} view;

static void view_destroy(td__dataset *d)
{
    view *v = (view *)d;

    td__scratch_fini(&v->scratch);
    td__free(v);
}

static td_status view_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                           void *const *out)
{
    view *v = (view *)d;
    void *at[TD__MAX_FIELDS];
    td_status st = TD_OK;

    td__scratch *s = td__scratch_take(&v->scratch);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for map stage '%s'", v->map->def->name);
    for (int64_t begin = 0; begin < n; begin += v->chunk) {
        int64_t k = n - begin < v->chunk ? n - begin : v->chunk;
        for (int f = 0; f < d->n_fields; f++)
            at[f] = (char *)out[f] + (size_t)begin * td__field_nbytes(&d->fields[f]);
        void *y = at[v->map->field];
        at[v->map->field] = s->data;
        TD_TRY_OR(st, done, td__dataset_read(v->base, index + begin, k, draw, at));
        v->map->def->apply(v->map, index + begin, k, draw, s->data, y);
    }
done:
    td__scratch_give(&v->scratch, s);
    return st;
}

static td_status view_read_field(td__dataset *d, int field, const int64_t *index, int64_t n,
                                 void *out)
{
    const view *v = (const view *)d;
    return field == v->map->field ? TD_ENOTSUP
                                  : td__dataset_read_field(v->base, field, index, n, out);
}

static const char *view_name(const td__dataset *d, int64_t i)
{
    return td__dataset_name(((const view *)d)->base, i);
}

static const td__dataset_ops VIEW = {
    .destroy = view_destroy, .read = view_read, .read_field = view_read_field, .name = view_name};

double td__element(const void *x, td_dtype dtype, int64_t i)
{
    switch (dtype) {
    case TD_F32: return (double)((const float *)x)[i];
    case TD_F64: return ((const double *)x)[i];
    case TD_I32: return (double)((const int32_t *)x)[i];
    case TD_I64: return (double)((const int64_t *)x)[i];
    default: return (double)((const uint8_t *)x)[i];
    }
}

/* Sample i of k that are spread evenly over n. */
static int64_t spread(int64_t i, int64_t k, int64_t n)
{
    return n / k * i + n % k * i / k;
}

td_status td__map_walk(td__dataset *d, int field, int64_t most, td__see see, void *context)
{
    int64_t count = d->count < most ? d->count : most, number[WALK];
    void *block[TD__MAX_FIELDS] = {0};
    td_status st = TD_OK;
    bool alone = true;

    for (int f = 0; f < d->n_fields; f++) {
        block[f] = td__malloc(td__field_nbytes(&d->fields[f]) * WALK + 1);
        if (!block[f]) {
            st = TD_FAIL(TD_ENOMEM, "no memory to look at %d samples", WALK);
            goto done;
        }
    }
    for (int64_t begin = 0; begin < count; begin += WALK) {
        int64_t k = count - begin < WALK ? count - begin : WALK;
        for (int64_t i = 0; i < k; i++)
            number[i] = count < d->count ? spread(begin + i, count, d->count) : begin + i;
        /* Without the other fields, where that saves work. */
        st = alone ? td__dataset_read_field(d, field, number, k, block[field]) : TD_ENOTSUP;
        alone = st != TD_ENOTSUP;
        TD_TRY_OR(st, done, alone ? st : td__dataset_read(d, number, k, NULL, block));
        TD_TRY_OR(st, done, see(context, begin, k, block[field]));
    }
done:
    for (int f = 0; f < d->n_fields; f++)
        td__free(block[f]);
    return st;
}

/* A filter at work: the samples that stay. */
typedef struct kept {
    const td__map *map;
    int64_t *index;
    int64_t n;
} kept;

static td_status see_filter(void *context, int64_t begin, int64_t n, const void *x)
{
    kept *k = context;
    bool keep[WALK];

    k->map->def->keep(k->map, n, x, keep);
    for (int64_t i = 0; i < n; i++)
        if (keep[i])
            k->index[k->n++] = begin + i;
    return TD_OK;
}

static td_status filtered(const td__map *m, td__dataset *base, td__dataset **out)
{
    kept k = {.map = m, .index = td__calloc((size_t)base->count + 1, sizeof *k.index)};
    td_status st = TD_OK;

    if (!k.index)
        return TD_FAIL(TD_ENOMEM, "no memory to filter %" PRId64 " samples", base->count);
    TD_TRY_OR(st, done, td__map_walk(base, m->field, INT64_MAX, see_filter, &k));
    TD_TRY_OR(st, done, td__dataset_subset(base, k.index, k.n, out));
done:
    td__free(k.index);
    return st;
}

td_status td__map_view(const td__map *m, td__dataset *base, td__dataset **out)
{
    *out = NULL;
    if (m->def->keep)
        return filtered(m, base, out);
    size_t each = td__field_nbytes(&m->in);
    view *v = td__calloc(1, sizeof *v);
    if (!v)
        return TD_FAIL(TD_ENOMEM, "no memory for map stage '%s'", m->def->name);
    v->head = *base;
    v->head.ops = &VIEW;
    v->head.fields[m->field] = m->out;
    /* One element from each, and no class: ids have become numbers, of which train need not have
     * had all. */
    if (m->out.classes || !td_shape_equal(&m->in.shape, &m->out.shape))
        v->head.fields[m->field].unknown = base->fields[m->field].unknown;
    v->map = m;
    v->base = base;
    v->chunk = each ? (int64_t)(SCRATCH_BYTES / each) : MAX_CHUNK;
    v->chunk = v->chunk < 1 ? 1 : v->chunk > MAX_CHUNK ? MAX_CHUNK : v->chunk;
    td__scratch_init(&v->scratch, each * (size_t)v->chunk);
    *out = &v->head;
    return TD_OK;
}
