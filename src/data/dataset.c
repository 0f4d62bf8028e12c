/* dataset.c -- samples by number: what all datasets share, and the view of some samples of one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

void td__dataset_destroy(td__dataset *d)
{
    if (d)
        d->ops->destroy(d);
}

int td__dataset_field(const td__dataset *d, const char *name)
{
    for (int f = 0; f < d->n_fields; f++)
        if (strcmp(d->fields[f].name, name) == 0)
            return f;
    return -1;
}

size_t td__field_nbytes(const td__field *f)
{
    return (size_t)td_shape_count(&f->shape) * td_dtype_size(f->dtype);
}

static void check_index(const td__dataset *d, const int64_t *index, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        TD_ASSERT(index[i] >= 0 && index[i] < d->count, "sample %" PRId64 " of %" PRId64, index[i],
                  d->count);
}

td_status td__dataset_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                           void *const *out)
{
    check_index(d, index, n);
    return d->ops->read(d, index, n, draw, out);
}

td_status td__dataset_read_field(td__dataset *d, int field, const int64_t *index, int64_t n,
                                 void *out)
{
    check_index(d, index, n);
    return d->ops->read_field ? d->ops->read_field(d, field, index, n, out) : TD_ENOTSUP;
}

const char *td__dataset_name(const td__dataset *d, int64_t i)
{
    return d->ops->name ? d->ops->name(d, i) : NULL;
}

/* A view: sample i is sample index[i] of base. */
typedef struct subset {
    td__dataset head;
    td__dataset *base;
    int64_t *index; /* (head.count) */
} subset;

enum { CHUNK = 256 };

static void subset_destroy(td__dataset *d)
{
    subset *s = (subset *)d;

    td__free(s->index);
    td__free(s);
}

static td_status subset_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    subset *s = (subset *)d;
    int64_t base_index[CHUNK];
    void *at[TD__MAX_FIELDS];

    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        int64_t k = n - begin < CHUNK ? n - begin : CHUNK;
        for (int64_t i = 0; i < k; i++)
            base_index[i] = s->index[index[begin + i]];
        for (int f = 0; f < d->n_fields; f++)
            at[f] = (char *)out[f] + (size_t)begin * td__field_nbytes(&d->fields[f]);
        TD_TRY(td__dataset_read(s->base, base_index, k, draw, at));
    }
    return TD_OK;
}

static td_status subset_read_field(td__dataset *d, int field, const int64_t *index, int64_t n,
                                   void *out)
{
    subset *s = (subset *)d;
    size_t each = td__field_nbytes(&d->fields[field]);
    int64_t base_index[CHUNK];

    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        int64_t k = n - begin < CHUNK ? n - begin : CHUNK;
        for (int64_t i = 0; i < k; i++)
            base_index[i] = s->index[index[begin + i]];
        TD_TRY(td__dataset_read_field(s->base, field, base_index, k,
                                      (char *)out + (size_t)begin * each));
    }
    return TD_OK;
}

static const char *subset_name(const td__dataset *d, int64_t i)
{
    const subset *s = (const subset *)d;
    return td__dataset_name(s->base, s->index[i]);
}

static const td__dataset_ops SUBSET = {.destroy = subset_destroy,
                                       .read = subset_read,
                                       .read_field = subset_read_field,
                                       .name = subset_name};

td_status td__dataset_subset(td__dataset *base, const int64_t *index, int64_t n, td__dataset **out)
{
    *out = NULL;
    for (int64_t i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= base->count)
            return TD_FAIL(TD_EINVAL, "a subset names sample %" PRId64 " of %" PRId64, index[i],
                           base->count);
    subset *s = td__calloc(1, sizeof *s);
    int64_t *copy = td__calloc((size_t)n + 1, sizeof *copy);
    if (!s || !copy) {
        td__free(s);
        td__free(copy);
        return TD_FAIL(TD_ENOMEM, "no memory for a subset of %" PRId64 " samples", n);
    }
    if (n)
        memcpy(copy, index, (size_t)n * sizeof *copy);
    s->head = *base;
    s->head.ops = &SUBSET;
    s->head.count = n;
    s->base = base;
    s->index = copy;
    *out = &s->head;
    return TD_OK;
}
