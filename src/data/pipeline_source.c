/* pipeline_source.c -- where the samples of tandem/data.h come from: sources by name, the caller's
 * memory, the caller's functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/pipeline.h"
#include "data/spool.h"
#include "data/source.h"
#include "data/table.h"

const char *td_source_list(int i)
{
    const td__source_def *d = td__source_list(i);
    return d ? d->name : NULL;
}

const char *td_source_help(const char *name)
{
    const td__source_def *d = td__source_find(name);
    return d ? d->help : NULL;
}

const char *td_source_options(const char *name)
{
    const td__source_def *d = td__source_find(name);
    return d ? d->reads : NULL;
}

td_status td_dataset_source(const char *name, const char *part, const td_source_opts *opts,
                            td_dataset **out)
{
    static const td_source_opts NONE;
    const td__source_def *def = td__source_find(name);
    td__dataset *samples = NULL;

    *out = NULL;
    if (!def)
        return TD_FAIL(TD_EINVAL, "there is no data source '%s' (td_source_list names all)", name);
    if (strcmp(part, "train") != 0 && strcmp(part, "valid") != 0 && strcmp(part, "test") != 0)
        return TD_FAIL(TD_EINVAL, "%s: part '%s': expected train, valid or test", name, part);
    TD_TRY(def->open(opts ? opts : &NONE, part, &samples));
    return td__pipeline_take(NULL, samples, NULL, out);
}

td_status td_dataset_memory(const td_field *fields, const void *const *data, int n_fields,
                            int64_t count, td_dataset **out)
{
    td__field own[TD__MAX_FIELDS];
    td__table *t;
    td_status st = TD_OK;

    *out = NULL;
    TD_TRY(td__pipeline_fields("memory", fields, n_fields, own));
    if (count < 0)
        return TD_FAIL(TD_EINVAL, "memory: %" PRId64 " samples", count);
    TD_TRY(td__table_create(count, &t));
    for (int f = 0; f < n_fields && !st; f++)
        st = data[f] || !count ? td__table_add_borrowed(t, &own[f], data[f])
                               : TD_FAIL(TD_EINVAL, "memory: field %s has no data", own[f].name);
    if (st) {
        td__table_destroy(t);
        return st;
    }
    return td__pipeline_take(NULL, &t->head, NULL, out);
}

/* ---- Samples by number ----------------------------------------------------------------------- */

typedef struct callback {
    td__dataset head;
    td_read_fn read;
    void *user;
} callback;

static void callback_destroy(td__dataset *d)
{
    td__free(d);
}

static td_status callback_read(td__dataset *d, const int64_t *index, int64_t n,
                               const td__draw *draw, void *const *out)
{
    const callback *c = (const callback *)d;
    void *at[TD__MAX_FIELDS];

    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        for (int f = 0; f < d->n_fields; f++)
            at[f] = (char *)out[f] + (size_t)i * td__field_nbytes(&d->fields[f]);
        td_status st = c->read(c->user, index[i], at);
        if (st)
            return td__pipeline_failed(st, "callback", index[i]);
    }
    return TD_OK;
}

static const td__dataset_ops CALLBACK = {.destroy = callback_destroy, .read = callback_read};

td_status td_dataset_callback(const td_field *fields, int n_fields, int64_t count, td_read_fn read,
                              void *user, td_dataset **out)
{
    td__field own[TD__MAX_FIELDS];

    *out = NULL;
    TD_TRY(td__pipeline_fields("callback", fields, n_fields, own));
    if (count < 0 || !read)
        return TD_FAIL(TD_EINVAL, "callback: %" PRId64 " samples, and a function that reads them",
                       count);
    callback *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    c->head = (td__dataset){.ops = &CALLBACK, .count = count, .n_fields = n_fields, .costly = true};
    memcpy(c->head.fields, own, (size_t)n_fields * sizeof *own);
    c->read = read;
    c->user = user;
    return td__pipeline_take(NULL, &c->head, NULL, out);
}

/* ---- Samples one after the other ------------------------------------------------------------- */

td_status td_dataset_iterator(const td_field *fields, int n_fields, td_next_fn next, void *user,
                              td_dataset **out)
{
    td__field own[TD__MAX_FIELDS];
    td__dataset *d;

    *out = NULL;
    TD_TRY(td__pipeline_fields("iterator", fields, n_fields, own));
    if (!next)
        return TD_FAIL(TD_EINVAL, "iterator: expected a function that gives samples");
    TD_TRY(td__spool_create(own, n_fields, next, user, &d));
    return td__pipeline_take(NULL, d, NULL, out);
}
