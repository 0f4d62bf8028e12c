/* schema_fit.c -- a schema as JSON, and back; see schema.h.
 *
 *     {"label": {"name": "species", "kind": "category", "values": [...]},
 *      "gaps": true,               rows are dropped, and windows end before such rows
 *      "columns": [{"name": "height", "kind": "number"},
 *                  {"name": "city", "kind": "category", "values": [...]}]} */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "data/schema/schema.h"

enum { MOST_WIDTH = 1 << 24 };

static const char *const KINDS[TD_COLUMN_KINDS] = {
#define X(id, name, feature) [TD_COLUMN_##id] = name,
    TD__COLUMN_KIND_MAP(X)
#undef X
};

static bool has_values(const td__column *c)
{
    return c->kind == TD_COLUMN_CATEGORY || c->kind == TD_COLUMN_EMBEDDING;
}

static json_t *save_name(const char *name)
{
    return td__fit_save_text(name, strlen(name));
}

static json_t *save_column(const td__column *c)
{
    json_t *to =
        json_pack("{s:o, s:s, s:I, s:I}", "name", save_name(c->name), "kind", KINDS[c->kind],
                  "rows", (json_int_t)c->rows, "missing", (json_int_t)c->missing);

    if (c->kind == TD_COLUMN_TEXT)
        json_object_set_new(to, "width", json_integer(c->width));
    if (c->kind == TD_COLUMN_NUMBER || c->kind == TD_COLUMN_BUCKETS) {
        const double facts[] = {c->fill, c->least, c->most};
        json_object_set_new(to, "fill_least_most", td__fit_save_numbers(facts, 3));
    }
    if (c->kind == TD_COLUMN_BUCKETS)
        json_object_set_new(to, "boundaries", td__fit_save_numbers(c->boundary, c->n_boundaries));
    if (c->buckets)
        json_object_set_new(to, "buckets", json_integer(c->buckets));
    if (c->n_more) {
        json_t *more = json_array();
        for (int i = 0; i < c->n_more; i++)
            json_array_append_new(more, save_name(c->more[i]));
        json_object_set_new(to, "with", more);
    }
    if (has_values(c)) {
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
    json_t *to = json_pack("{s:o, s:I, s:i, s:o}", "label", save_column(&s->label), "no_class",
                           (json_int_t)s->no_class, "missing", (int)s->missing, "columns", columns);
    if (s->missing == TD_MISSING_DROP && !s->joined)
        json_object_set_new(to, "gaps", json_true());
    return to;
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
    return true;
}

static bool load_boundaries(const json_t *list, td__column *c)
{
    size_t n = json_array_size(list);

    c->boundary = n && n < MOST_WIDTH ? td__calloc(n, sizeof *c->boundary) : NULL;
    c->n_boundaries = (int64_t)n;
    if (!c->boundary || !td__fit_load_numbers(list, c->boundary, c->n_boundaries))
        return false;
    for (size_t i = 1; i < n; i++)
        if (!(c->boundary[i] > c->boundary[i - 1]))
            return false;
    c->width = c->n_boundaries + 1;
    return true;
}

static bool load_crossed(const json_t *list, td__arena *a, td__column *c)
{
    size_t n = json_array_size(list);

    if (n > TD__MAX_CROSSED - 1)
        return false;
    for (; c->n_more < (int)n; c->n_more++) {
        c->more[c->n_more] = td__fit_load_text(json_array_get(list, (size_t)c->n_more), a, NULL);
        if (!c->more[c->n_more])
            return false;
    }
    return true;
}

/* What only some kinds have. */
static bool load_details(const json_t *from, td__arena *a, td__column *c)
{
    double facts[3] = {0};
    const json_t *numbers = json_object_get(from, "fill_least_most");

    if (numbers && !td__fit_load_numbers(numbers, facts, 3))
        return false;
    c->fill = facts[0];
    c->least = facts[1];
    c->most = facts[2];
    if (c->kind == TD_COLUMN_TEXT)
        c->width = json_integer_value(json_object_get(from, "width"));
    if (has_values(c) && !load_values(json_object_get(from, "values"), a, c))
        return false;
    if (c->kind == TD_COLUMN_CATEGORY)
        c->width = c->values;
    if (c->kind == TD_COLUMN_BUCKETS && !load_boundaries(json_object_get(from, "boundaries"), c))
        return false;
    if (c->kind == TD_COLUMN_HASHED || c->kind == TD_COLUMN_CROSSED)
        c->width = c->buckets = json_integer_value(json_object_get(from, "buckets"));
    return load_crossed(json_object_get(from, "with"), a, c);
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
    c->rows = json_integer_value(json_object_get(from, "rows"));
    c->missing = json_integer_value(json_object_get(from, "missing"));
    if (!c->name || c->kind == TD_COLUMN_KINDS || !load_details(from, a, c))
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
    json_int_t missing = json_integer_value(json_object_get(from, "missing"));
    if (missing < 0 || missing > TD_MISSING_DROP)
        return td__fit_bad(f, "what it does with missing cells");
    s->missing = (td__missing)missing;
    s->joined = !json_is_true(json_object_get(from, "gaps"));
    s->features = td__calloc(n, sizeof *s->features);
    if (!s->features)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu columns", n);
    for (size_t i = 0; i < n; i++)
        if (!load_column(json_array_get(columns, i), s->arena, &s->features[s->n_features++]))
            return td__fit_bad(f, "a column of it");
    for (size_t i = 0; i < n; i++)
        s->width += td__column_own(s, &s->features[i]) ? 0 : s->features[i].width;
    return s->width <= MOST_WIDTH ? TD_OK : td__fit_bad(f, "its columns are too many");
}
