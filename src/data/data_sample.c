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

td_status td__data_sample(const char *source, const td__fit *fit, td__data **out)
{
    td__table *t;

    *out = NULL;
    TD_TRY(td__table_create(1, &t));
    td_status st = make_table(fit, t);
    td__dataset *const part[TD_PART_COUNT] = {[TD_PART_TEST] = &t->head};
    if (!st)
        st = td__data_of(source, part, out);
    if (st) {
        td__table_destroy(t);
        return st;
    }
    (*out)->owned[(*out)->n_owned++] = &t->head;
    return TD_OK;
}
