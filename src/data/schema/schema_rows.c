/* schema_rows.c -- the rows that columns are measured on, where other parts are cut from the train
 * file: those that training reads; see schema.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/fail.h"
#include "data/schema/schema.h"
#include "data/series.h"
#include "data/split.h"

/* The samples that rows make: windows, or each row one. */
static td_status samples_of(const td__source_opts *o, const td__records *all, td__dataset **out)
{
    td__table *t;

    TD_TRY(td__table_create(all->rows, &t));
    td__series_opts windows = td__series_of(o, all->place);
    *out = &t->head;
    return o->window ? td__series_create(t, &windows, out) : TD_OK;
}

static void use_rows(const td__dataset *d, bool windows, int64_t sample, bool *use)
{
    int64_t begin = sample, end = sample + 1;

    if (windows)
        td__series_rows(d, sample, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        use[i] = true;
}

td_status td__schema_rows(const td__source_opts *o, const td__split *cut, const td__records *all,
                          bool **use)
{
    td__dataset *d = NULL;
    td_status st = TD_OK;
    bool cuts = false;

    *use = NULL;
    if (!cut)
        return TD_OK;
    TD_TRY(samples_of(o, all, &d));
    uint8_t *role = td__malloc((size_t)d->count + 1);
    *use = td__calloc((size_t)all->rows + 1, sizeof **use);
    if (!role || !*use)
        st = TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " rows", all->where, all->rows);
    if (!st)
        st = td__split_roles(cut, d->count, d->in_order, d->gap, role, &cuts);
    for (int64_t i = 0; !st && cuts && i < d->count; i++)
        if (role[i] == TD_PART_TRAIN)
            use_rows(d, o->window > 0, i, *use);
    if (st || !cuts) {
        td__free(*use);
        *use = NULL;
    }
    td__free(role);
    td__dataset_destroy(d);
    return st;
}
