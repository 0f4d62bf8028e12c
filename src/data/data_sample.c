/* data_sample.c -- data that are one sample, for who fills it in: as a trained model wants it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "data/data_impl.h"
#include "data/fit_json.h"
#include "data/table.h"

static td_status make_table(const td__fit *fit, td__table *t)
{
    td__field fields[TD__MAX_FIELDS];
    int n;

    TD_TRY(td__arena_create(&t->arena));
    TD_TRY(td__fit_fields(fit, t->arena, fields, &n));
    for (int i = 0; i < n; i++)
        TD_TRY(td__table_add(t, &fields[i]));
    return n ? TD_OK : td__fit_bad(fit, "it has no fields");
}

static td_status add_stages(td__data *d, const td__data_opts *o)
{
    if (o->n_maps < 0 || o->n_maps > TD__MAX_MAPS)
        return TD_FAIL(TD_EINVAL, "%d map stages: at most %d", o->n_maps, TD__MAX_MAPS);
    for (int i = 0; i < o->n_maps; i++)
        TD_TRY(td__data_add_map(d, &o->maps[i], o->fit));
    return TD_OK;
}

td_status td__data_sample(const td__data_opts *o, td__data **out)
{
    td__table *t;
    td__data *d = NULL;

    *out = NULL;
    TD_TRY(td__table_create(1, &t));
    td_status st = make_table(o->fit, t);
    td__dataset *const part[TD_PART_COUNT] = {[TD_PART_TEST] = &t->head};
    if (!st)
        st = td__data_of(o->source, part, &d);
    if (st) {
        td__table_destroy(t);
        return st;
    }
    d->owned[d->n_owned++] = &t->head;
    d->source_part[TD_PART_TEST] = &t->head;
    d->sample = true;
    st = add_stages(d, o);
    if (st) {
        td__data_close(d);
        return st;
    }
    *out = d;
    return TD_OK;
}
