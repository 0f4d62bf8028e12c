/* data_fit.c -- what was measured on the train part, as text; whether the data changed since.
 *
 * The digest of a part is the sha256 of the names of its fields and classes and of its samples, as
 * the source gives them: what does not change a sample (a file's date, a column that nobody reads)
 * does not count. All samples are hashed of tables up to 1 GB and of other sources up to 64 MB; of
 * larger parts, whose number of samples is compared too, SPACED evenly spaced ones and the last.
 * Samples that are generated cannot change. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/key.h"
#include "base/sha256.h"
#include "data/data_impl.h"
#include "data/fit_json.h"

enum { ROWS = 64, SPACED = 256 };
#define TABLE_BYTES (UINT64_C(1) << 30)
#define OTHER_BYTES (UINT64_C(64) << 20)

/* ---- Digests --------------------------------------------------------------------------------- */

static uint64_t sample_bytes(const td__dataset *d)
{
    uint64_t n = 0;

    for (int f = 0; f < d->n_fields; f++)
        n += td__field_nbytes(&d->fields[f]);
    return n;
}

static bool is_whole(const td__data *d, const td__dataset *part)
{
    uint64_t most = td__has_word(d->def->reads, "columns") ? TABLE_BYTES : OTHER_BYTES;
    uint64_t each = sample_bytes(part);
    return !each || (uint64_t)part->count <= most / each;
}

static void hash_fields(td__sha256 *h, const td__dataset *d)
{
    for (int f = 0; f < d->n_fields; f++) {
        const td__field *field = &d->fields[f];
        td__sha256_update(h, field->name, strlen(field->name) + 1);
        for (int64_t c = 0; field->class_names && c < field->classes; c++)
            td__sha256_update(h, field->class_names[c], strlen(field->class_names[c]) + 1);
    }
}

static td_status hash_rows(td__sha256 *h, td__dataset *d, int64_t begin, int64_t end,
                           void *const *rows)
{
    int64_t number[ROWS];

    while (begin < end) {
        int64_t n = end - begin < ROWS ? end - begin : ROWS;
        for (int64_t i = 0; i < n; i++)
            number[i] = begin + i;
        TD_TRY(td__dataset_read(d, number, n, NULL, rows));
        for (int f = 0; f < d->n_fields; f++)
            td__sha256_update(h, rows[f], (size_t)n * td__field_nbytes(&d->fields[f]));
        begin += n;
    }
    return TD_OK;
}

static td_status digest(td__dataset *d, bool whole, char hex[TD_SHA256_HEX])
{
    void *rows[TD__MAX_FIELDS] = {0};
    uint8_t bytes[TD_SHA256_BYTES];
    td__sha256 h = {0};
    td_status st = TD_OK;

    for (int f = 0; f < d->n_fields && !st; f++) {
        rows[f] = td__malloc(td__field_nbytes(&d->fields[f]) * ROWS + 1);
        if (!rows[f])
            st = TD_FAIL(TD_ENOMEM, "no memory for a digest of the data");
    }
    if (!st)
        st = td__sha256_init(&h);
    if (!st) {
        hash_fields(&h, d);
        if (whole)
            st = hash_rows(&h, d, 0, d->count, rows);
    }
    for (int64_t b = 0; !whole && b < SPACED && !st; b++) {
        int64_t begin = (int64_t)((double)(d->count - 1) * (double)b / SPACED);
        st = hash_rows(&h, d, begin, begin + 1, rows);
    }
    if (!st && !whole)
        st = hash_rows(&h, d, d->count - 1, d->count, rows);
    if (!st) {
        td__sha256_final(&h, bytes);
        td__sha256_hex(bytes, hex);
    }
    td__sha256_fini(&h);
    for (int f = 0; f < d->n_fields; f++)
        td__free(rows[f]);
    return st;
}

static bool is_generated(const td__data *d)
{
    return !td__has_word(d->def->reads, "dir") && d->def != &td__source_memory;
}

static td_status describe_part(const td__data *d, td__dataset *part, json_t *to, const char *name)
{
    char hex[TD_SHA256_HEX] = "";
    bool whole = is_whole(d, part);

    if (!is_generated(d))
        TD_TRY(digest(part, whole, hex));
    json_object_set_new(to, name,
                        json_pack("{s:I, s:b, s:s}", "count", (json_int_t)part->count, "whole",
                                  (int)whole, "sha256", hex));
    return TD_OK;
}

static td_status describe_parts(const td__data *d, json_t *to)
{
    for (int p = 0; p < TD_PART_COUNT; p++)
        if (d->source_part[p])
            TD_TRY(describe_part(d, d->source_part[p], to, td__part_name((td__part)p)));
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
    json_t *now = json_object();
    td_status st = describe_part(d, part, now, name);
    json_int_t n = json_integer_value(json_object_get(before, "count"));

    if (!st && n != part->count)
        snprintf(what, nbytes, "the %s part has %" PRId64 " samples, not %" PRId64, name,
                 part->count, (int64_t)n);
    else if (!st && !json_equal(json_object_get(now, name), before))
        snprintf(what, nbytes, "the samples of the %s part are others", name);
    json_decref(now);
    return st;
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
