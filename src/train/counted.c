/* counted.c -- the weights of micro-batches by their counted targets; see counted.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/counted.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/map.h"

enum { CHUNK = 64 };

struct td__counted {
    td__dataset *d;
    int field;
    int64_t ignore, batch;
    int32_t *count;  /* (samples) counted targets; -1: not looked at yet */
    int64_t *before; /* (most + 1) of the step under way: counted targets before each row */
    int64_t rows, most;
    void *block[TD__MAX_FIELDS]; /* (CHUNK, sample) */
    td__step_weights weights;
};

int64_t td__count_targets(const td__field *f, const void *samples, int64_t n, int64_t ignore)
{
    int64_t all = td_shape_count(&f->shape) * n, counted = 0;

    for (int64_t i = 0; i < all; i++)
        counted += td__element(samples, f->dtype, i) != (double)ignore;
    return counted;
}

static double share(void *user, int batch, int64_t begin, int64_t rows)
{
    const td__counted *c = user;
    int64_t first = batch * c->batch + begin, all = c->before[c->rows];

    TD_ASSERT(first + rows <= c->rows, "row %" PRId64 " of %" PRId64, first + rows, c->rows);
    return all ? (double)(c->before[first + rows] - c->before[first]) / (double)all : 0;
}

td_status td__counted_create(td__dataset *d, const char *target, int64_t ignore, int64_t most,
                             td__counted **out)
{
    td__counted *c = td__calloc(1, sizeof *c);
    bool full = c;

    *out = NULL;
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory to count targets");
    *c = (td__counted){.d = d, .ignore = ignore, .most = most};
    c->weights = (td__step_weights){.user = c, .share = share};
    c->field = td__dataset_field(d, target);
    TD_ASSERT(c->field >= 0, "no field %s", target);
    c->count = td__malloc((size_t)d->count * sizeof *c->count + 1);
    c->before = td__calloc((size_t)most + 1, sizeof *c->before);
    for (int f = 0; f < d->n_fields; f++) {
        c->block[f] = td__malloc(td__field_nbytes(&d->fields[f]) * CHUNK + 1);
        full = full && c->block[f];
    }
    if (!c->count || !c->before || !full) {
        td__counted_destroy(c);
        return TD_FAIL(TD_ENOMEM, "no memory to count the targets of %" PRId64 " samples",
                       d->count);
    }
    memset(c->count, 0xff, (size_t)d->count * sizeof *c->count);
    *out = c;
    return TD_OK;
}

void td__counted_destroy(td__counted *c)
{
    if (!c)
        return;
    for (int f = 0; f < TD__MAX_FIELDS; f++)
        td__free(c->block[f]);
    td__free(c->count);
    td__free(c->before);
    td__free(c);
}

static td_status look(td__counted *c, const int64_t *samples, int64_t n)
{
    const td__field *f = &c->d->fields[c->field];
    size_t nbytes = td__field_nbytes(f);

    TD_TRY(td__dataset_read(c->d, samples, n, NULL, c->block));
    for (int64_t i = 0; i < n; i++)
        c->count[samples[i]] = (int32_t)td__count_targets(
            f, (const char *)c->block[c->field] + (size_t)i * nbytes, 1, c->ignore);
    return TD_OK;
}

td_status td__counted_step(td__counted *c, const td__loader *l, uint64_t epoch, int64_t first,
                           int64_t rows, int64_t batch)
{
    int64_t unknown[CHUNK], n = 0;

    TD_ASSERT(rows <= c->most, "%" PRId64 " rows", rows);
    c->rows = rows;
    c->batch = batch;
    for (int64_t r = 0; r < rows; r++) { /* before[r + 1]: the sample, for now */
        int64_t sample = c->before[r + 1] = td__loader_sample(l, epoch, first + r);
        if (c->count[sample] >= 0)
            continue;
        unknown[n++] = sample;
        if (n == CHUNK)
            TD_TRY(look(c, unknown, n));
        n = n == CHUNK ? 0 : n;
    }
    if (n)
        TD_TRY(look(c, unknown, n));
    for (int64_t r = 0; r < rows; r++)
        c->before[r + 1] = c->before[r] + c->count[c->before[r + 1]];
    return TD_OK;
}

const td__step_weights *td__counted_weights(const td__counted *c)
{
    return &c->weights;
}
