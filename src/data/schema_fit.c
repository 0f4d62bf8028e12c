/* schema_fit.c -- a schema as JSON, and back; see schema.h.
 *
 *     {"label": {"name": "species", "kind": "category", "values": [...]},
 *      "columns": [{"name": "height", "kind": "number"},
 *                  {"name": "city", "kind": "category", "values": [...]}]} */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "data/schema.h"

enum { MOST_WIDTH = 1 << 24 };

static const char *const KINDS[TD_COLUMN_KINDS] = {
#define X(id, name) [TD_COLUMN_##id] = name,
    TD__COLUMN_KIND_MAP(X)
#undef X
};

static json_t *save_column(const td__column *c)
{
    json_t *to = json_pack("{s:o, s:s}", "name", td__fit_save_text(c->name, strlen(c->name)),
                           "kind", KINDS[c->kind]);

    if (c->kind == TD_COLUMN_TEXT)
        json_object_set_new(to, "width", json_integer(c->width));
    if (c->kind == TD_COLUMN_CATEGORY) {
        json_t *values = json_array();
        for (int64_t k = 0; k < c->values; k++)
            json_array_append_new(values, td__fit_save_text(c->value[k].text, c->value[k].nbytes));
        json_object_set_new(to, "values", values);
    }
    return to;
}

json_t *td__schema_save(const td__schema *s)
{
    json_t *columns = json_array();

    for (int64_t i = 0; i < s->n_features; i++)
        json_array_append_new(columns, save_column(&s->features[i]));
    return json_pack("{s:o, s:I, s:o}", "label", save_column(&s->label), "no_class",
                     (json_int_t)s->no_class, "columns", columns);
}

static bool load_values(const json_t *list, td__arena *a, td__column *c)
{
    size_t n = json_array_size(list);

    c->value = n ? td__calloc(n, sizeof *c->value) : NULL;
    if (!c->value || n > INT32_MAX)
        return false;
    for (; c->values < (int64_t)n; c->values++) {
        td__cell *v = &c->value[c->values];
        v->text = td__fit_load_text(json_array_get(list, (size_t)c->values), a, &v->nbytes);
        if (!v->text || (c->values && td__cell_compare(v - 1, v) >= 0))
            return false;
    }
    c->width = c->values;
    return true;
}

static bool load_column(const json_t *from, td__arena *a, td__column *c)
{
    const char *kind = json_string_value(json_object_get(from, "kind"));

    *c = (td__column){.name = td__fit_load_text(json_object_get(from, "name"), a, NULL),
                      .kind = TD_COLUMN_KINDS,
                      .width = 1};
    for (int k = 0; kind && k < TD_COLUMN_KINDS; k++)
        if (strcmp(KINDS[k], kind) == 0)
            c->kind = (td__column_kind)k;
    if (!c->name || c->kind == TD_COLUMN_KINDS)
        return false;
    if (c->kind == TD_COLUMN_TEXT)
        c->width = json_integer_value(json_object_get(from, "width"));
    if (c->kind == TD_COLUMN_CATEGORY && !load_values(json_object_get(from, "values"), a, c))
        return false;
    return c->width >= 1 && c->width <= MOST_WIDTH;
}

td_status td__schema_load(td__schema *s, const td__fit *f)
{
    const json_t *from = td__fit_measured(f), *columns = json_object_get(from, "columns");
    size_t n = json_array_size(columns);

    if (n < 1 || n > TD__MAX_COLUMNS)
        return td__fit_bad(f, "it has no columns");
    TD_TRY(td__arena_create(&s->arena));
    if (!load_column(json_object_get(from, "label"), s->arena, &s->label))
        return td__fit_bad(f, "its label");
    s->label_is_class = s->label.kind == TD_COLUMN_CATEGORY;
    s->no_class = json_integer_value(json_object_get(from, "no_class"));
    s->features = td__calloc(n, sizeof *s->features);
    if (!s->features)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu columns", n);
    for (size_t i = 0; i < n; i++) {
        td__column *c = &s->features[s->n_features++];
        if (!load_column(json_array_get(columns, i), s->arena, c) ||
            (c->kind == TD_COLUMN_TEXT && n > 1))
            return td__fit_bad(f, "a column of it");
        s->width += c->width;
    }
    return s->width <= MOST_WIDTH ? TD_OK : td__fit_bad(f, "its columns are too many");
}
