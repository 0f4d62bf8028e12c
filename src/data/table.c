/* table.c -- a dataset whose fields are arrays in memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/table.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

static void table_destroy(td__dataset *d)
{
    td__table *t = (td__table *)d;

    for (int f = 0; f < d->n_fields; f++)
        if (!t->borrowed[f])
            td__free_block(t->column[f], t->nbytes[f] * (size_t)d->count);
    td__arena_destroy(t->arena);
    td__file_map_close(&t->map);
    td__free(t);
}

/* Are they one after the other, as they are where nothing is shuffled? */
static bool is_range(const int64_t *index, int64_t n)
{
    int64_t i = 1;

    while (i < n && index[i] == index[0] + i)
        i++;
    return n > 0 && i == n;
}

static td_status table_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                            void *const *out)
{
    const td__table *t = (const td__table *)d;

    (void)draw;
    bool on_end = is_range(index, n);
    for (int f = 0; f < d->n_fields; f++) {
        size_t nbytes = t->nbytes[f];
        const char *from = t->column[f];
        char *to = out[f];
        if (on_end)
            memcpy(to, from + (size_t)index[0] * nbytes, (size_t)n * nbytes);
        else if (nbytes == sizeof(int32_t)) /* classes: not worth a call each */
            for (int64_t i = 0; i < n; i++)
                memcpy(to + (size_t)i * 4, from + (size_t)index[i] * 4, 4);
        else
            for (int64_t i = 0; i < n; i++)
                memcpy(to + (size_t)i * nbytes, from + (size_t)index[i] * nbytes, nbytes);
    }
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = table_destroy, .read = table_read};

td_status td__table_create(int64_t count, td__table **out)
{
    *out = NULL;
    td__table *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for a table");
    t->head = (td__dataset){.ops = &OPS, .count = count};
    *out = t;
    return TD_OK;
}

static td_status add(td__table *t, const td__field *f, size_t *nbytes)
{
    int64_t count = td_shape_count(&f->shape);
    size_t each;

    if (t->head.n_fields == TD__MAX_FIELDS)
        return TD_FAIL(TD_EINVAL, "more than %d fields", TD__MAX_FIELDS);
    if (count < 0 || !td__size_mul((size_t)count, td_dtype_size(f->dtype), &each) ||
        !td__size_mul(each, (size_t)t->head.count, nbytes) || *nbytes > PTRDIFF_MAX)
        return TD_FAIL(TD_EINVAL, "field %s is too large", f->name);
    t->nbytes[t->head.n_fields] = each;
    return TD_OK;
}

td_status td__table_add(td__table *t, const td__field *f)
{
    size_t nbytes;

    TD_TRY(add(t, f, &nbytes));
    void *p = td__alloc_block(nbytes);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of field %s", nbytes, f->name);
    t->column[t->head.n_fields] = p;
    t->head.fields[t->head.n_fields++] = *f;
    return TD_OK;
}

td_status td__table_add_borrowed(td__table *t, const td__field *f, const void *data)
{
    size_t nbytes;

    TD_TRY(add(t, f, &nbytes));
    t->column[t->head.n_fields] = (char *)(uintptr_t)data;
    t->borrowed[t->head.n_fields] = true;
    t->head.fields[t->head.n_fields++] = *f;
    return TD_OK;
}
