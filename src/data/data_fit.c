/* data_fit.c -- what was measured on the train part, as text; whether the data changed since. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "data/digest/data_digest.h"
#include "data/fit_json.h"

static td_status describe_parts(const td__data *d, json_t *to)
{
    for (int p = 0; p < TD_PART_COUNT; p++) {
        json_t *part;
        if (!d->source_part[p])
            continue;
        TD_TRY(td__data_describe(d, d->source_part[p], NULL, &part));
        json_object_set_new(to, td__part_name((td__part)p), part);
    }
    return TD_OK;
}

/* ---- The text -------------------------------------------------------------------------------- */

static json_t *save_maps(const td__data *d)
{
    json_t *list = json_array();

    for (int i = 0; i < d->n_maps; i++) {
        const td__map *m = d->maps[i];
        json_t *item = m->def->save ? m->def->save(m) : json_object();
        json_object_set_new(item, "map", json_string(m->def->name));
        json_object_set_new(item, "field", json_string(m->in.name));
        json_array_append_new(list, item);
    }
    return list;
}

td_status td__data_fit(td__data *d, td__text *out)
{
    td__dataset *train = d->source_part[TD_PART_TRAIN];
    json_error_t error;

    if (!d->def || !train)
        return TD_OK;
    json_t *parts = json_object();
    td_status st = describe_parts(d, parts);
    json_t *root = json_pack("{s:s, s:i, s:s, s:o, s:o, s:o}", "format", "tandem preprocessing",
                             "version", 1, "source", d->source, "parts", parts, "fields",
                             td__fit_save_fields(train), "maps", save_maps(d));
    if (train->measured)
        json_object_set_new(root, "measured", json_loads(train->measured, JSON_ALLOW_NUL, &error));
    if (!st)
        st = td__fit_dump(root, out);
    json_decref(root);
    return st;
}

/* ---- For other programs ---------------------------------------------------------------------- */

/* Numbers as the stage resolved them; its text is the caller's, who has it still. */
static json_t *describe_stage(const td__map *m, const char *unit)
{
    json_t *to = m->def->save ? m->def->save(m) : json_object();
    const td__map_opts *o = &m->opts;
    json_t *more =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:s?}", "map", m->def->name, "field",
                  m->in.name, "size", (json_int_t)o->size, "size2", (json_int_t)o->size2, "pad",
                  (json_int_t)o->pad, "a", o->a, "b", o->b, "unit", unit);

    if (to && more)
        json_object_update(to, more);
    json_decref(more);
    return to;
}

static json_t *describe_stages(const td__data *d, const td__data_opts *o)
{
    json_t *list = json_array();

    for (int i = 0; i < d->n_maps; i++)
        json_array_append_new(list,
                              describe_stage(d->maps[i], i < o->n_maps ? o->maps[i].text : NULL));
    return list;
}

td_status td__data_recipe(const td__data *d, const td__data_opts *o, td__text *out)
{
    const td__source_opts *s = &o->source_opts;
    json_t *measured = json_object_get(o->fit->root, "measured");
    json_t *root = json_pack(
        "{s:s, s:{s:I, s:I, s:I, s:s?}, s:O, s:o, s:o}", "source", d->source, "options", "window",
        (json_int_t)s->window, "stride", (json_int_t)s->stride, "size", (json_int_t)s->size,
        "resize", s->resize, "fields", json_object_get(o->fit->root, "fields"), "stages",
        describe_stages(d, o), "targets", td__fit_save_fields(d->part[TD_PART_TEST]));

    if (root && measured)
        json_object_set(root, "measured", measured);
    td_status st = td__fit_dump(root, out);
    json_decref(root);
    return st;
}

/* ---- Changes --------------------------------------------------------------------------------- */

static td_status part_changed(const td__data *d, td__dataset *part, const char *name,
                              const json_t *before, char *what, size_t nbytes)
{
    json_int_t n = json_integer_value(json_object_get(before, "count"));
    json_t *now;

    if (n != part->count) {
        snprintf(what, nbytes, "the %s part has %" PRId64 " samples, not %" PRId64, name,
                 part->count, (int64_t)n);
        return TD_OK;
    }
    TD_TRY(td__data_describe(d, part, before, &now));
    if (!json_equal(now, before))
        snprintf(what, nbytes, "the samples of the %s part are others", name);
    json_decref(now);
    return TD_OK;
}

td_status td__data_changed(td__data *d, const td__fit *fit, bool *changed, char *what,
                           size_t nbytes)
{
    const json_t *parts = json_object_get(fit->root, "parts");

    *what = 0;
    for (int p = 0; d->def && p < TD_PART_COUNT && !*what; p++) {
        const char *name = td__part_name((td__part)p);
        const json_t *before = json_object_get(parts, name);
        if (d->source_part[p] && before)
            TD_TRY(part_changed(d, d->source_part[p], name, before, what, nbytes));
        else if (!d->source_part[p] != !before)
            snprintf(what, nbytes, "the %s part %s a file of its own", name,
                     before ? "has no longer" : "now has");
    }
    *changed = *what;
    return TD_OK;
}
