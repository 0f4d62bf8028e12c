/* pipeline.c -- datasets of tandem/data.h: their life, and how their samples are given out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/partition.h"

_Static_assert((int)TD_MAX_FIELDS == (int)TD__MAX_FIELDS, "one limit");

enum { MOST_RANKS = 1 << 20 };

td_dataset *td__pipeline_retain(td_dataset *d)
{
    if (d)
        atomic_fetch_add(&d->refs, 1);
    return d;
}

void td_dataset_destroy(td_dataset *d)
{
    if (!d || atomic_fetch_sub(&d->refs, 1) > 1)
        return;
    td__loader_destroy(d->loader);
    td__dataset_destroy(d->own);
    td__map_close(d->map);
    for (int i = 0; i < 2; i++)
        td_dataset_destroy(d->below[i]);
    td__free(d);
}

td_status td__pipeline_take(td_dataset *base, td__dataset *own, td__map *map, td_dataset **out)
{
    td_dataset *d = td__calloc(1, sizeof *d);

    *out = NULL;
    if (!d) {
        td__dataset_destroy(own);
        td__map_close(map);
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    }
    atomic_init(&d->refs, 1);
    d->below[0] = td__pipeline_retain(base);
    d->own = own;
    d->map = map;
    d->samples = own ? own : base ? base->samples : NULL;
    d->stage = base ? base->stage : 0;
    d->giving = base ? base->giving
                     : (td__giving){.batch = 1, .epochs = 1, .prefetch = -1, .rank = 0, .world = 1};
    *out = d;
    return TD_OK;
}

td_status td__pipeline_borrow(td__dataset *samples, td_dataset **out)
{
    TD_TRY(td__pipeline_take(NULL, NULL, NULL, out));
    (*out)->samples = samples;
    return TD_OK;
}

/* ---- Looking --------------------------------------------------------------------------------- */

int64_t td_dataset_count(const td_dataset *d)
{
    return d->samples->count;
}

int td_dataset_field_count(const td_dataset *d)
{
    return d->samples->n_fields;
}

td_field td_dataset_field(const td_dataset *d, int i)
{
    const td__field *f = &d->samples->fields[i];

    TD_ASSERT(i >= 0 && i < d->samples->n_fields, "field %d of %d", i, d->samples->n_fields);
    return (td_field){.name = f->name,
                      .dtype = f->dtype,
                      .shape = f->shape,
                      .classes = f->classes,
                      .class_names = f->class_names};
}

static td_status check_field(const char *what, const td_field *f)
{
    if (!f->name || !*f->name || strlen(f->name) >= TD__FIELD_NAME)
        return TD_FAIL(TD_EINVAL, "%s: a field needs a name of 1 to %d characters", what,
                       TD__FIELD_NAME - 1);
    if (!td_dtype_size(f->dtype) || f->shape.ndim < 0 || f->shape.ndim > TD_MAX_DIMS ||
        td_shape_count(&f->shape) < 0 || f->classes < 0)
        return TD_FAIL(TD_EINVAL, "%s: field %s has no valid type and shape", what, f->name);
    return TD_OK;
}

td_status td__pipeline_fields(const char *what, const td_field *fields, int n, td__field *out)
{
    if (n < 1 || n > TD__MAX_FIELDS)
        return TD_FAIL(TD_EINVAL, "%s: %d fields: expected 1 to %d", what, n, TD__MAX_FIELDS);
    for (int i = 0; i < n; i++) {
        TD_TRY(check_field(what, &fields[i]));
        for (int k = 0; k < i; k++)
            if (!strcmp(fields[i].name, fields[k].name))
                return TD_FAIL(TD_EINVAL, "%s: two fields are called %s", what, fields[i].name);
        out[i] = (td__field){.dtype = fields[i].dtype,
                             .shape = fields[i].shape,
                             .classes = fields[i].classes,
                             .class_names = fields[i].class_names};
        snprintf(out[i].name, sizeof out[i].name, "%s", fields[i].name);
    }
    return TD_OK;
}

td_status td__pipeline_failed(td_status st, const char *what, int64_t index)
{
    return TD_FAIL(st, "%s: the caller's function failed at sample %" PRId64 ": %s", what, index,
                   td_status_text(st));
}

/* ---- How samples are given out --------------------------------------------------------------- */

td_status td_dataset_shuffle(td_dataset *base, uint64_t seed, td_dataset **out)
{
    TD_TRY(td__pipeline_take(base, NULL, NULL, out));
    (*out)->giving.shuffle = true;
    (*out)->giving.seed = seed;
    return TD_OK;
}

td_status td_dataset_batch(td_dataset *base, int64_t rows, bool drop_last, td_dataset **out)
{
    *out = NULL;
    if (rows < 1 || rows > INT32_MAX)
        return TD_FAIL(TD_EINVAL, "batch: %" PRId64 " rows: expected at least 1", rows);
    TD_TRY(td__pipeline_take(base, NULL, NULL, out));
    (*out)->giving.batch = rows;
    (*out)->giving.drop_last = drop_last;
    return TD_OK;
}

td_status td_dataset_repeat(td_dataset *base, int64_t epochs, td_dataset **out)
{
    *out = NULL;
    if (epochs < 0)
        return TD_FAIL(TD_EINVAL, "repeat: %" PRId64 " epochs: expected 0 (without end) or more",
                       epochs);
    TD_TRY(td__pipeline_take(base, NULL, NULL, out));
    (*out)->giving.epochs = (uint64_t)epochs;
    return TD_OK;
}

td_status td_dataset_prefetch(td_dataset *base, int batches, int threads, td_dataset **out)
{
    *out = NULL;
    if (batches < 1 || threads < 0)
        return TD_FAIL(TD_EINVAL, "prefetch: %d batches by %d threads: expected at least 1",
                       batches, threads);
    TD_TRY(td__pipeline_take(base, NULL, NULL, out));
    (*out)->giving.prefetch = batches;
    (*out)->giving.threads = threads;
    return TD_OK;
}

td_status td_dataset_for_rank(td_dataset *base, int rank, int world, td_dataset **out)
{
    *out = NULL;
    if (world < 1 || world > MOST_RANKS || rank < 0 || rank >= world)
        return TD_FAIL(TD_EINVAL, "for_rank: rank %d of %d", rank, world);
    TD_TRY(td__pipeline_take(base, NULL, NULL, out));
    (*out)->giving.rank = rank;
    (*out)->giving.world = world;
    return TD_OK;
}

static td__row_range rank_rows(const void *user, int64_t index, int64_t rows)
{
    const td_dataset *d = user;
    td__row_range r;

    (void)index;
    td__even_range(rows, d->giving.rank, d->giving.world, &r.begin, &r.end);
    return r;
}

static td_status need_loader(td_dataset *d)
{
    const td__giving *g = &d->giving;

    if (d->loader)
        return TD_OK;
    return td__loader_create(d->samples,
                             &(td__loader_opts){.batch = g->batch,
                                                .shuffle = g->shuffle,
                                                .drop_last = g->drop_last,
                                                .epochs = g->epochs,
                                                .augment = g->shuffle,
                                                .seed = g->seed,
                                                .prefetch = g->prefetch,
                                                .threads = g->threads,
                                                .rows = rank_rows,
                                                .rows_user = d},
                             &d->loader);
}

td_status td_dataset_next(td_dataset *d, const td_batch **out)
{
    const td__batch *b;

    *out = NULL;
    TD_TRY(need_loader(d));
    TD_TRY(td__loader_next(d->loader, &b));
    if (!b)
        return TD_OK;
    d->batch = (td_batch){.rows = b->here.end - b->here.begin,
                          .first = b->here.begin,
                          .batch_rows = b->rows,
                          .epoch = b->epoch,
                          .index = b->index};
    for (int f = 0; f < d->samples->n_fields; f++)
        d->batch.field[f] = b->field[f];
    *out = &d->batch;
    return TD_OK;
}

td_status td_dataset_batches(td_dataset *d, int64_t *out)
{
    TD_TRY(need_loader(d));
    *out = td__loader_batches(d->loader);
    return TD_OK;
}

td_status td_dataset_seek(td_dataset *d, uint64_t epoch, int64_t index)
{
    TD_TRY(need_loader(d));
    if (index < 0 || index >= td__loader_batches(d->loader))
        return TD_FAIL(TD_EINVAL, "seek: batch %" PRId64 " of %" PRId64 " in an epoch", index,
                       td__loader_batches(d->loader));
    td__loader_seek(d->loader, epoch, index);
    return TD_OK;
}
