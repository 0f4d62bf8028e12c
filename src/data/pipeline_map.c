/* pipeline_map.c -- samples made from samples in tandem/data.h: built-in stages by name, the
 * caller's own functions, filters, subsets. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/pipeline.h"
#include "data/scratch.h"

const char *td_map_list(int i)
{
    for (int k = 0; td__map_list(k); k++)
        if (!td__map_list(k)->keep && i-- == 0) /* filters have a function of their own */
            return td__map_list(k)->name;
    return NULL;
}

/* The options by the names that the stage has for them. */
static td__map_opts stage_opts(const char *stage, const td_map_opts *o)
{
    return (td__map_opts){.name = stage,
                          .field = o->field,
                          .a = !strcmp(stage, "normalize") ? o->mean
                               : !strcmp(stage, "flip")    ? o->p
                               : !strcmp(stage, "color")   ? o->brightness
                                                           : o->value,
                          .b = !strcmp(stage, "color") ? o->contrast : o->std,
                          .size = !strcmp(stage, "one_hot") ? o->classes : o->size,
                          .size2 = !strcmp(stage, "tokenize") ? o->vocab : o->width,
                          .pad = o->pad,
                          .text = o->unit};
}

/* A stage that was measured on other samples fits samples of the same kind. */
static td_status check_fit(const td__map *m, const td__dataset *d)
{
    if (m->field < d->n_fields && !strcmp(d->fields[m->field].name, m->in.name) &&
        d->fields[m->field].dtype == m->in.dtype &&
        td_shape_equal(&d->fields[m->field].shape, &m->in.shape))
        return TD_OK;
    return TD_FAIL(TD_EINVAL, "map: %s: field %s differs from that of the dataset it was fit to",
                   m->def->name, m->in.name);
}

td_status td_dataset_map(td_dataset *base, const char *stage, const td_map_opts *opts,
                         td_dataset **out)
{
    static const td_map_opts NONE;
    const td_map_opts *o = opts ? opts : &NONE;
    td_dataset *fit = o->fit ? (td_dataset *)(uintptr_t)o->fit : base;
    td__map_opts with = stage_opts(stage, o);
    const td__map_def *def = td__map_find(stage);
    td__dataset *view = NULL;
    td__map *m;

    *out = NULL;
    if (!def || def->keep)
        return TD_FAIL(TD_EINVAL, "there is no map stage '%s' (td_map_list names all)", stage);
    TD_TRY(td__map_open(&with, base->stage, fit->samples, NULL, &m));
    td_status st = check_fit(m, base->samples);
    if (!st)
        st = td__map_view(m, base->samples, &view);
    if (st) {
        td__map_close(m);
        return st;
    }
    TD_TRY(td__pipeline_take(base, view, m, out));
    (*out)->stage++;
    if (fit != base) /* names of classes may lie there */
        (*out)->below[1] = td__pipeline_retain(fit);
    return TD_OK;
}

/* ---- The caller's own stage ------------------------------------------------------------------ */

/* One sample at a time: its fields before the stage lie in scratch memory. */
typedef struct mapped {
    td__dataset head;
    td__dataset *base;
    td_map_fn map;
    void *user;
    size_t offset[TD__MAX_FIELDS]; /* of base's fields in scratch */
    td__scratch_list scratch;
} mapped;

static void mapped_destroy(td__dataset *d)
{
    mapped *m = (mapped *)d;

    td__scratch_fini(&m->scratch);
    td__free(m);
}

static td_status map_one(mapped *m, int64_t index, const td__draw *draw, char *scratch,
                         void *const *out)
{
    void *in[TD__MAX_FIELDS];
    td_sample s = {.index = index, .random = draw != NULL};

    if (draw) {
        s.seed = draw->seed;
        s.epoch = draw->epoch;
    }
    for (int f = 0; f < m->base->n_fields; f++)
        in[f] = scratch + m->offset[f];
    TD_TRY(td__dataset_read(m->base, &index, 1, draw, in));
    td_status st = m->map(m->user, &s, (const void *const *)in, out);
    return st ? td__pipeline_failed(st, "map", index) : TD_OK;
}

static td_status mapped_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    mapped *m = (mapped *)d;
    void *at[TD__MAX_FIELDS];
    td_status st = TD_OK;

    td__scratch *s = td__scratch_take(&m->scratch);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the caller's map stage");
    for (int64_t i = 0; i < n && !st; i++) {
        for (int f = 0; f < d->n_fields; f++)
            at[f] = (char *)out[f] + (size_t)i * td__field_nbytes(&d->fields[f]);
        st = map_one(m, index[i], draw, s->data, at);
    }
    td__scratch_give(&m->scratch, s);
    return st;
}

static const td__dataset_ops MAPPED = {.destroy = mapped_destroy, .read = mapped_read};

/* Where the fields of one sample lie in one piece of memory; its size. */
static size_t lay_out(const td__dataset *d, size_t *offset)
{
    enum { ALIGN = 64 };
    size_t nbytes = 0;

    for (int f = 0; f < d->n_fields; f++) {
        offset[f] = nbytes;
        nbytes += td__align_up(td__field_nbytes(&d->fields[f]), ALIGN);
    }
    return nbytes;
}

td_status td_dataset_map_fn(td_dataset *base, const td_field *fields, int n_fields, td_map_fn map,
                            void *user, td_dataset **out)
{
    td__field own[TD__MAX_FIELDS];

    *out = NULL;
    TD_TRY(td__pipeline_fields("map", fields, n_fields, own));
    if (!map)
        return TD_FAIL(TD_EINVAL, "map: expected a function");
    mapped *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory for the caller's map stage");
    m->head = *base->samples;
    m->head.ops = &MAPPED;
    m->head.costly = true;
    m->head.n_fields = n_fields;
    memcpy(m->head.fields, own, (size_t)n_fields * sizeof *own);
    m->base = base->samples;
    m->map = map;
    m->user = user;
    td__scratch_init(&m->scratch, lay_out(base->samples, m->offset));
    TD_TRY(td__pipeline_take(base, &m->head, NULL, out));
    (*out)->stage++;
    return TD_OK;
}

/* ---- Some of the samples --------------------------------------------------------------------- */

td_status td_dataset_subset(td_dataset *base, const int64_t *index, int64_t n, td_dataset **out)
{
    td__dataset *view;

    *out = NULL;
    if (n < 0)
        return TD_FAIL(TD_EINVAL, "a subset of %" PRId64 " samples", n);
    TD_TRY(td__dataset_subset(base->samples, index, n, &view));
    return td__pipeline_take(base, view, NULL, out);
}

td_status td_dataset_filter(td_dataset *base, const char *condition, td_dataset **out)
{
    td__map_opts with = {.name = "filter", .text = condition};
    td__dataset *view = NULL;
    td__map *m;

    *out = NULL;
    TD_TRY(td__map_open(&with, base->stage, base->samples, NULL, &m));
    td_status st = td__map_view(m, base->samples, &view);
    td__map_close(m); /* the view has the numbers of the samples that it kept */
    TD_TRY(st);
    return td__pipeline_take(base, view, NULL, out);
}

/* The numbers of the samples that `keep` keeps into index; how many into *n. */
static td_status choose(td__dataset *d, td_keep_fn keep, void *user, char *scratch,
                        const size_t *offset, int64_t *index, int64_t *n)
{
    void *fields[TD__MAX_FIELDS];

    for (int f = 0; f < d->n_fields; f++)
        fields[f] = scratch + offset[f];
    for (int64_t i = 0; i < d->count; i++) {
        TD_TRY(td__dataset_read(d, &i, 1, NULL, fields));
        if (keep(user, i, (const void *const *)fields))
            index[(*n)++] = i;
    }
    return TD_OK;
}

td_status td_dataset_filter_fn(td_dataset *base, td_keep_fn keep, void *user, td_dataset **out)
{
    size_t offset[TD__MAX_FIELDS], nbytes = lay_out(base->samples, offset);
    td__dataset *view = NULL;
    int64_t n = 0;
    td_status st = TD_OK;

    *out = NULL;
    if (!keep)
        return TD_FAIL(TD_EINVAL, "filter: expected a function");
    char *scratch = td__alloc_block(nbytes);
    int64_t *index = td__calloc((size_t)base->samples->count + 1, sizeof *index);
    if (!scratch || !index) {
        st = TD_FAIL(TD_ENOMEM, "no memory to filter %" PRId64 " samples", base->samples->count);
        goto done;
    }
    TD_TRY_OR(st, done, choose(base->samples, keep, user, scratch, offset, index, &n));
    TD_TRY_OR(st, done, td__dataset_subset(base->samples, index, n, &view));
done:
    td__free(index);
    td__free_block(scratch, nbytes);
    TD_TRY(st);
    return td__pipeline_take(base, view, NULL, out);
}
