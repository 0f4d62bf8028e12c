/* counted.c -- the weights of micro-batches by their counted targets; see counted.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/counted.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/map.h"

enum { CHUNK = 64 };

struct td__counted {
    td__dataset *d;
    int field;
    const td__model_facts *facts;
    double *weight;  /* (samples) of counted targets; -1: not looked at yet */
    int64_t *sample; /* (most) of the step under way, by row */
    double *before;  /* (most + 1) of it: the weight of what counts before each row */
    int64_t rows, most, batch;
    void *block[TD__MAX_FIELDS]; /* (CHUNK, sample) */
    td__step_weights weights;
};

static bool counts(double target, const td__model_facts *facts)
{
    return facts->none_ignored || target != (double)facts->ignore;
}

int64_t td__count_targets(const td__field *f, const void *samples, int64_t n,
                          const td__model_facts *facts)
{
    int64_t all = td_shape_count(&f->shape) * n, counted = 0;

    for (int64_t i = 0; i < all; i++)
        counted += counts(td__element(samples, f->dtype, i), facts);
    return counted;
}

double td__weigh_targets(const td__field *f, const void *samples, int64_t n,
                         const td__model_facts *facts)
{
    int64_t all = td_shape_count(&f->shape) * n;
    double sum = 0;

    if (!facts->class_weights)
        return (double)td__count_targets(f, samples, n, facts);
    for (int64_t i = 0; i < all; i++) {
        double target = td__element(samples, f->dtype, i);
        bool listed = target >= 0 && target < facts->n_class_weights;
        if (counts(target, facts))
            sum += listed ? facts->class_weights[(int)target] : 1;
    }
    return sum;
}

static double share(void *user, int batch, int64_t begin, int64_t rows)
{
    const td__counted *c = user;
    int64_t first = batch * c->batch + begin;
    double all = c->before[c->rows];

    TD_ASSERT(first + rows <= c->rows, "row %" PRId64 " of %" PRId64, first + rows, c->rows);
    return all > 0 ? (c->before[first + rows] - c->before[first]) / all : 0;
}

td_status td__counted_create(td__dataset *d, const td__model_facts *facts, int64_t most,
                             td__counted **out)
{
    td__counted *c = td__calloc(1, sizeof *c);
    bool full = c;

    *out = NULL;
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory to count targets");
    *c = (td__counted){.d = d, .facts = facts, .most = most};
    c->weights = (td__step_weights){.user = c, .share = share};
    c->field = td__dataset_field(d, facts->ignoring);
    TD_ASSERT(c->field >= 0, "no field %s", facts->ignoring);
    c->weight = td__malloc((size_t)d->count * sizeof *c->weight + 1);
    c->before = td__calloc((size_t)most + 1, sizeof *c->before);
    c->sample = td__calloc((size_t)most + 1, sizeof *c->sample);
    for (int f = 0; f < d->n_fields; f++) {
        c->block[f] = td__malloc(td__field_nbytes(&d->fields[f]) * CHUNK + 1);
        full = full && c->block[f];
    }
    if (!c->weight || !c->before || !c->sample || !full) {
        td__counted_destroy(c);
        return TD_FAIL(TD_ENOMEM, "no memory to count the targets of %" PRId64 " samples",
                       d->count);
    }
    for (int64_t i = 0; i < d->count; i++)
        c->weight[i] = -1;
    *out = c;
    return TD_OK;
}

void td__counted_destroy(td__counted *c)
{
    if (!c)
        return;
    for (int f = 0; f < TD__MAX_FIELDS; f++)
        td__free(c->block[f]);
    td__free(c->weight);
    td__free(c->sample);
    td__free(c->before);
    td__free(c);
}

static td_status look(td__counted *c, const int64_t *samples, int64_t n)
{
    const td__field *f = &c->d->fields[c->field];
    size_t nbytes = td__field_nbytes(f);
    td_status st = td__dataset_read_field(c->d, c->field, samples, n, c->block[c->field]);

    TD_TRY(st == TD_ENOTSUP ? td__dataset_read(c->d, samples, n, NULL, c->block) : st);
    for (int64_t i = 0; i < n; i++)
        c->weight[samples[i]] = td__weigh_targets(
            f, (const char *)c->block[c->field] + (size_t)i * nbytes, 1, c->facts);
    return TD_OK;
}

td_status td__counted_step(td__counted *c, const td__loader *l, uint64_t epoch, int64_t first,
                           int64_t rows, int64_t batch)
{
    int64_t unknown[CHUNK], n = 0;

    TD_ASSERT(rows <= c->most, "%" PRId64 " rows", rows);
    c->rows = rows;
    c->batch = batch;
    for (int64_t r = 0; r < rows; r++) {
        int64_t sample = c->sample[r] = td__loader_sample(l, epoch, first + r);
        if (c->weight[sample] >= 0)
            continue;
        unknown[n++] = sample;
        if (n == CHUNK)
            TD_TRY(look(c, unknown, n));
        n = n == CHUNK ? 0 : n;
    }
    if (n)
        TD_TRY(look(c, unknown, n));
    for (int64_t r = 0; r < rows; r++)
        c->before[r + 1] = c->before[r] + c->weight[c->sample[r]];
    return TD_OK;
}

const td__step_weights *td__counted_weights(const td__counted *c)
{
    return &c->weights;
}
