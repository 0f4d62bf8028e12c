/* records_open.c -- from rows of cells to samples; see records.h.
 *
 * 1. Read the train file and decide what each column is (the schema), or take the schema that a
 *    trained model came with.
 * 2. Read the part's file, if it is another one, and find the columns by name.
 * 3. Encode. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/files.h"
#include "data/records.h"
#include "data/schema.h"
#include "data/table.h"

/* What x may take in memory, so that a small file cannot ask for a huge table. */
enum { MOST_PER_BYTE = 256, MOST_AT_LEAST = 256 << 20, SHOWN = 40 };

/* A file and its rows. */
typedef struct input {
    char path[TD__PATH];
    td__file_map map;
    td__records records;
} input;

/* How the rows of a part become samples. */
typedef struct reading {
    const td__schema *s;
    const td__records *r;
    bool label_optional;
    bool fitted; /* the schema is not of these files: texts that it does not know are "other" */
} reading;

static void warn_of_others(const td__records *r, const char *name, int64_t at, int64_t first,
                           int64_t n)
{
    const td__cell *cell = &r->cells[first * r->cols + at];
    int shown = cell->nbytes > SHOWN ? SHOWN : (int)cell->nbytes;

    TD_LOG(WARN, DATA,
           "%s:%" PRId64 ": column '%s' is '%.*s', which the model was not trained on: read as "
           "\"other\" (%" PRId64 " such %s)",
           r->where, r->line[first], name, shown, cell->text, n, n == 1 ? "cell" : "cells");
}

/* One column of all rows, from place `begin` of x on. */
static td_status encode_feature(const reading *in, const td__column *c, int64_t begin, void *x)
{
    const td__records *r = in->r;
    int64_t at = td__records_find(r, c->name), width = in->s->width, others = 0, first = 0;

    if (at < 0)
        return td__no_column(r, c->name);
    for (int64_t i = 0; i < r->rows; i++) {
        const td__cell *cell = &r->cells[i * r->cols + at];
        double number = 0;
        if (c->kind == TD_COLUMN_TEXT) {
            int64_t n = (int64_t)cell->nbytes < c->width ? (int64_t)cell->nbytes : c->width;
            if (n)
                memcpy((uint8_t *)x + i * width, cell->text, (size_t)n);
        } else if (c->kind == TD_COLUMN_NUMBER) {
            if (!cell->text || !td__cell_number(cell, &number))
                return td__bad_cell(r, i, c->name, cell, "a finite number");
            ((float *)x)[i * width + begin] = (float)number;
        } else {
            int64_t k = td__column_find(c, cell);
            if (k < 0 && (!in->fitted || !cell->text || !cell->nbytes))
                return td__bad_cell(r, i, c->name, cell, "a text that occurs in the train file");
            if (k < 0)
                first = others++ ? first : i;
            else
                ((float *)x)[i * width + begin + k] = 1;
        }
    }
    if (others)
        warn_of_others(r, c->name, at, first, others);
    return TD_OK;
}

static td_status encode_label(const reading *in, void *y)
{
    const td__schema *s = in->s;
    const td__records *r = in->r;
    int64_t at = td__records_find(r, s->label.name);

    if (at < 0 && in->label_optional)
        return TD_OK; /* y stays 0 */
    if (at < 0)
        return td__no_column(r, s->label.name);
    for (int64_t i = 0; i < r->rows; i++) {
        const td__cell *cell = &r->cells[i * r->cols + at];
        double number = 0;
        bool none = s->label_is_class && td__schema_no_class(s, cell);
        int64_t k = s->label_is_class && !none ? td__column_find(&s->label, cell) : 0;
        if (k < 0)
            return td__bad_cell(r, i, s->label.name, cell,
                                in->fitted ? "a class that the model was trained on"
                                           : "a class that occurs in the train file");
        if (!s->label_is_class && (!cell->text || !td__cell_number(cell, &number)))
            return td__bad_cell(r, i, s->label.name, cell, "a finite number");
        if (s->label_is_class)
            ((int32_t *)y)[i] = none ? (int32_t)s->no_class : (int32_t)k;
        else
            ((float *)y)[i] = (float)number;
    }
    return TD_OK;
}

static td_status name_classes(const td__schema *s, td__table *t, td__field *y)
{
    const char **names = td__arena_alloc(t->arena, (size_t)s->label.values * sizeof *names);

    if (!names)
        return TD_FAIL(TD_ENOMEM, "no memory for %" PRId64 " classes", s->label.values);
    for (int64_t k = 0; k < s->label.values; k++) {
        const td__cell *c = &s->label.value[k];
        names[k] =
            td__arena_printf(t->arena, "%.*s", (int)(c->nbytes < 4096 ? c->nbytes : 4096), c->text);
        if (!names[k])
            return TD_FAIL(TD_ENOMEM, "no memory for %" PRId64 " classes", s->label.values);
    }
    y->classes = s->label.values;
    y->class_names = names;
    return TD_OK;
}

/* The schema as text, for those who will read new rows. */
static td_status note_schema(const td__schema *s, td__table *t)
{
    json_t *root = td__schema_save(s);
    td__text text = {0};
    td_status st = td__fit_dump(root, &text);

    json_decref(root);
    t->head.measured = st ? NULL : td__arena_strdup(t->arena, text.data);
    if (!st && !t->head.measured)
        st = TD_FAIL(TD_ENOMEM, "no memory for what the columns are");
    td__text_fini(&text);
    return st;
}

static td_status encode(const reading *in, size_t file_bytes, td__table *t)
{
    const td__schema *s = in->s;
    const td__records *r = in->r;
    bool text = s->features[0].kind == TD_COLUMN_TEXT;
    td__field x = {.name = "x", .dtype = text ? TD_U8 : TD_F32, .shape = TD_SHAPE(s->width)};
    td__field y = {.name = "y", .dtype = s->label_is_class ? TD_I32 : TD_F32};
    int64_t begin = 0;

    if ((double)s->width * (double)r->rows * (text ? 1 : sizeof(float)) >
        MOST_AT_LEAST + MOST_PER_BYTE * (double)file_bytes)
        return TD_FAIL(TD_EINVAL,
                       "%s: %" PRId64 " rows of %" PRId64
                       " places are too much: name fewer columns "
                       "in data.columns, or shorten the longest texts",
                       r->where, r->rows, s->width);
    TD_TRY(td__arena_create(&t->arena));
    if (s->label_is_class)
        TD_TRY(name_classes(s, t, &y));
    else
        y.shape = TD_SHAPE(1);
    TD_TRY(note_schema(s, t));
    TD_TRY(td__table_add(t, &x));
    TD_TRY(td__table_add(t, &y));
    for (int64_t i = 0; i < s->n_features; i++) {
        TD_TRY(encode_feature(in, &s->features[i], begin, t->column[0]));
        begin += s->features[i].width;
    }
    return encode_label(in, t->column[1]);
}

static td_status open_input(input *in, const td__table_format *format, const td__source_opts *o,
                            const char *part)
{
    const char *name;

    TD_TRY(td__part_file(format->source, o, part, format->expected, &name));
    TD_TRY(td__data_path(o->dir, name, in->path));
    TD_TRY(td__data_map(in->path, format->expected, &in->map));
    TD_TRY(td__records_init(&in->records, in->path));
    return format->parse(&in->records, o, in->map.data, in->map.nbytes);
}

static void close_input(input *in)
{
    td__records_fini(&in->records);
    td__file_map_close(&in->map);
}

td_status td__records_open(const td__table_format *format, const td__source_opts *o,
                           const char *part, const td__fit *fit, td__dataset **out)
{
    input train = {0}, own = {0};
    td__schema s = {0};
    td__table *t = NULL;
    const char *name;
    td_status st = TD_OK;

    *out = NULL;
    TD_TRY(td__part_file(format->source, o, part, format->expected, &name));
    if (fit) {
        TD_TRY_OR(st, done, td__schema_load(&s, fit));
    } else {
        TD_TRY_OR(st, done, open_input(&train, format, o, "train"));
        TD_TRY_OR(st, done, td__schema_make(&s, o, &train.records));
    }
    bool other_file = fit || strcmp(part, "train") != 0;
    const input *in = other_file ? &own : &train;
    if (other_file)
        TD_TRY_OR(st, done, open_input(&own, format, o, part));
    reading how = {.s = &s,
                   .r = &in->records,
                   .label_optional = o->unlabelled && strcmp(part, "test") == 0,
                   .fitted = fit != NULL};
    TD_TRY_OR(st, done, td__table_create(in->records.rows, &t));
    TD_TRY_OR(st, done, encode(&how, in->map.nbytes, t));
    *out = &t->head;
    t = NULL;
done:
    td__table_destroy(t);
    td__schema_fini(&s);
    close_input(&own);
    close_input(&train);
    return st;
}
