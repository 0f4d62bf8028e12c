/* schema_encode.c -- rows become samples by a schema; see schema.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/schema/schema.h"

/* What a table may take in memory, so that a small file cannot ask for a huge one. */
enum { MOST_PER_BYTE = 256, MOST_AT_LEAST = 256 << 20, SHOWN = 40 };

/* One column of a part: its cells, and where its values go. */
typedef struct target {
    const td__reading *in;
    const td__column *c;
    int64_t at;                        /* column in the file */
    int64_t also[TD__MAX_CROSSED - 1]; /* and those that it is crossed with */
    char *to;                          /* of the first row */
    size_t stride;                     /* bytes from one row to the next */
    int64_t others, first_other;       /* cells that were read as "other", and the row of one */
} target;

static void warn_of_others(const target *t)
{
    const td__records *r = t->in->r;
    char room[TD__CELL_ROOM];
    td__cell cell = td__cell_at(r, t->first_other, t->at, room);
    int shown = cell.nbytes > SHOWN ? SHOWN : (int)cell.nbytes;

    TD_LOG(WARN, DATA,
           "%s:%" PRId64 ": column '%s' is '%.*s', which the model was not trained on: read as "
           "\"other\" (%" PRId64 " such %s)",
           r->where, r->line[t->first_other], t->c->name, shown, cell.text, t->others,
           t->others == 1 ? "cell" : "cells");
}

/* Does anything stand for missing cells? */
static bool fills(const td__schema *s)
{
    return s->missing == TD_MISSING_MEAN || s->missing == TD_MISSING_MEDIAN ||
           s->missing == TD_MISSING_ZERO;
}

/* The number in a cell, or what stands for it. */
static td_status number_at(const target *t, int64_t row, double *out)
{
    const td__reading *in = t->in;

    if (td__number_at(in->r, row, t->at, out))
        return TD_OK;
    if (!td__missing_at(in->r, row, t->at))
        return td__bad_cell(in->r, row, t->at, "a finite number");
    if (!fills(in->s))
        return td__bad_cell(in->r, row, t->at,
                            in->fitted ? "a finite number: the model has seen no row without it"
                                       : "a finite number");
    *out = t->c->fill;
    return TD_OK;
}

/* The category of a cell; -1: other. */
static td_status category_at(target *t, int64_t row, int64_t *out)
{
    const td__reading *in = t->in;
    char room[TD__CELL_ROOM];
    td__cell cell = td__cell_at(in->r, row, t->at, room);
    bool filled = fills(in->s) && td__missing_at(in->r, row, t->at);

    *out = filled ? -1 : td__column_find(t->c, &cell);
    if (filled || *out >= 0)
        return TD_OK;
    if (!in->fitted || !cell.text || !cell.nbytes)
        return td__bad_cell(in->r, row, t->at, "a text that occurs in the train file");
    t->first_other = t->others++ ? t->first_other : row;
    return TD_OK;
}

/* FNV-1a over the cells, each with its end. */
static int64_t bucket_at(const target *t, int64_t row)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (int k = -1; k < t->c->n_more; k++) {
        char room[TD__CELL_ROOM];
        td__cell cell = td__cell_at(t->in->r, row, k < 0 ? t->at : t->also[k], room);
        for (size_t i = 0; i < cell.nbytes; i++)
            h = (h ^ (unsigned char)cell.text[i]) * UINT64_C(0x100000001b3);
        if (t->c->n_more)
            h = (h ^ 0x1f) * UINT64_C(0x100000001b3);
    }
    return (int64_t)((h ^ h >> 32) % (uint64_t)t->c->buckets);
}

static int64_t interval_of(const td__column *c, double x)
{
    int64_t k = 0;

    while (k < c->n_boundaries && x >= c->boundary[k])
        k++;
    return k;
}

static void copy_text(const target *t, int64_t row, char *to)
{
    char room[TD__CELL_ROOM];
    td__cell cell = td__cell_at(t->in->r, row, t->at, room);
    size_t most = (size_t)t->c->width;

    if (cell.nbytes)
        memcpy(to, cell.text, cell.nbytes < most ? cell.nbytes : most);
}

static td_status encode_cell(target *t, int64_t row)
{
    const td__column *c = t->c;
    char *to = t->to + (size_t)row * t->stride;
    double x = 0;
    int64_t k;

    switch (c->kind) {
    case TD_COLUMN_TEXT: copy_text(t, row, to); break;
    case TD_COLUMN_NUMBER:
        TD_TRY(number_at(t, row, &x));
        *(float *)(void *)to = (float)x;
        break;
    case TD_COLUMN_BUCKETS:
        TD_TRY(number_at(t, row, &x));
        ((float *)(void *)to)[interval_of(c, x)] = 1;
        break;
    case TD_COLUMN_CATEGORY:
        TD_TRY(category_at(t, row, &k));
        if (k >= 0)
            ((float *)(void *)to)[k] = 1;
        break;
    case TD_COLUMN_EMBEDDING:
        TD_TRY(category_at(t, row, &k));
        *(int32_t *)(void *)to = (int32_t)(k + 1);
        break;
    case TD_COLUMN_HASHED:
    case TD_COLUMN_CROSSED: ((float *)(void *)to)[bucket_at(t, row)] = 1; break;
    case TD_COLUMN_KINDS: break;
    }
    return TD_OK;
}

static td_status encode_column(target *t)
{
    const td__records *r = t->in->r;

    t->at = td__records_find(r, t->c->name);
    if (t->at < 0)
        return td__no_column(r, t->c->name);
    for (int k = 0; k < t->c->n_more; k++) {
        t->also[k] = td__records_find(r, t->c->more[k]);
        if (t->also[k] < 0)
            return td__no_column(r, t->c->more[k]);
    }
    /* Of numbers, the f32 of an f32 column is what its text would give. */
    bool plain = t->c->kind == TD_COLUMN_NUMBER, there[TD__SOME_ROWS];
    double x[TD__SOME_ROWS];
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t k = i % TD__SOME_ROWS;
        if (plain && k == 0)
            td__rough_rows(r, i, td__some_rows(r, i), t->at, x, there);
        if (plain && there[k])
            *(float *)(void *)(t->to + (size_t)i * t->stride) = (float)x[k];
        else
            TD_TRY(encode_cell(t, i));
    }
    if (t->others)
        warn_of_others(t);
    return TD_OK;
}

static td_status encode_label(const td__reading *in, void *y)
{
    const td__schema *s = in->s;
    const td__records *r = in->r;
    int64_t at = td__records_find(r, s->label.name);

    if (at < 0 && in->label_optional)
        return TD_OK; /* y stays 0 */
    if (at < 0)
        return td__no_column(r, s->label.name);
    for (int64_t i = 0; i < r->rows; i++) {
        char room[TD__CELL_ROOM];
        td__cell cell = {0};
        double number = 0;
        if (s->label_is_class)
            cell = td__cell_at(r, i, at, room);
        bool none = s->label_is_class && td__schema_no_class(s, &cell);
        int64_t k = s->label_is_class && !none ? td__column_find(&s->label, &cell) : 0;
        if (k < 0 && in->label_optional) /* nobody asks what it is: y stays 0 */
            continue;
        if (k < 0)
            return td__bad_cell(r, i, at,
                                in->fitted ? "a class that the model was trained on"
                                           : "a class that occurs in the train file");
        bool absent = !s->label_is_class && !td__number_at(r, i, at, &number);
        if (absent && in->label_optional)
            continue;
        if (absent)
            return td__bad_cell(r, i, at, "a finite number");
        if (s->label_is_class)
            ((int32_t *)y)[i] = none ? (int32_t)s->no_class : (int32_t)k;
        else
            ((float *)y)[i] = (float)number;
    }
    return TD_OK;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

/* Names of the classes of a field: `first`, if there is one, then the texts of the column. */
static td_status name_classes(const td__column *c, const char *first, td__table *t, td__field *out)
{
    int64_t n = c->values + (first != NULL), at = 0;
    const char **names = td__arena_alloc(t->arena, (size_t)n * sizeof *names);

    if (!names)
        return TD_FAIL(TD_ENOMEM, "no memory for %" PRId64 " classes", n);
    if (first)
        names[at++] = first;
    for (int64_t k = 0; k < c->values; k++) {
        const td__cell *v = &c->value[k];
        names[at] =
            td__arena_printf(t->arena, "%.*s", (int)(v->nbytes < 4096 ? v->nbytes : 4096), v->text);
        if (!names[at++])
            return TD_FAIL(TD_ENOMEM, "no memory for %" PRId64 " classes", n);
    }
    out->classes = n;
    out->class_names = names;
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

static td_status check_size(const td__reading *in)
{
    const td__schema *s = in->s;
    bool text = s->features[0].kind == TD_COLUMN_TEXT && s->n_features == 1;
    double each = (double)s->width * (text ? 1 : sizeof(float));

    for (int64_t i = 0; i < s->n_features; i++)
        if (td__column_own(s, &s->features[i]))
            each += (double)s->features[i].width;
    if (each * (double)in->r->rows <= MOST_AT_LEAST + MOST_PER_BYTE * (double)in->file_nbytes)
        return TD_OK;
    return TD_FAIL(TD_EINVAL,
                   "%s: %" PRId64 " rows of %" PRId64 " places are too much: name fewer columns "
                   "in data.columns, or shorten the longest texts",
                   in->r->where, in->r->rows, s->width);
}

static td_status add_own_field(const td__column *c, td__table *t)
{
    td__field f = {.dtype = c->kind == TD_COLUMN_TEXT ? TD_U8 : TD_I32};

    if (strlen(c->name) >= sizeof f.name || td__dataset_field(&t->head, c->name) >= 0)
        return TD_FAIL(TD_EINVAL,
                       "column '%.60s' cannot be a field of its own: the name is taken, or longer "
                       "than %d characters",
                       c->name, TD__FIELD_NAME - 1);
    snprintf(f.name, sizeof f.name, "%s", c->name);
    if (c->kind == TD_COLUMN_TEXT)
        f.shape = TD_SHAPE(c->width);
    else
        TD_TRY(name_classes(c, "<other>", t, &f));
    return td__table_add(t, &f);
}

static td_status add_fields(const td__schema *s, td__table *t)
{
    bool text = s->features[0].kind == TD_COLUMN_TEXT && s->n_features == 1;
    td__field x = {.name = "x", .dtype = text ? TD_U8 : TD_F32, .shape = TD_SHAPE(s->width)};
    td__field y = {.name = "y", .dtype = s->label_is_class ? TD_I32 : TD_F32};

    if (s->label_is_class)
        TD_TRY(name_classes(&s->label, NULL, t, &y));
    else
        y.shape = TD_SHAPE(1);
    if (s->width)
        TD_TRY(td__table_add(t, &x));
    TD_TRY(td__table_add(t, &y));
    for (int64_t i = 0; i < s->n_features; i++)
        if (td__column_own(s, &s->features[i]))
            TD_TRY(add_own_field(&s->features[i], t));
    return TD_OK;
}

td_status td__schema_encode(const td__reading *in, td__table *t)
{
    const td__schema *s = in->s;
    int y = s->width ? 1 : 0, own = y + 1;
    size_t begin = 0;

    TD_TRY(check_size(in));
    TD_TRY(td__arena_create(&t->arena));
    TD_TRY(note_schema(s, t));
    TD_TRY(add_fields(s, t));
    for (int64_t i = 0; i < s->n_features; i++) {
        const td__column *c = &s->features[i];
        bool alone = td__column_own(s, c);
        int field = alone ? own++ : 0;
        target to = {.in = in, .c = c, .stride = t->nbytes[field]};
        to.to = t->column[field] + (alone ? 0 : begin * sizeof(float));
        TD_TRY(encode_column(&to));
        begin += alone ? 0 : (size_t)c->width;
    }
    return encode_label(in, t->column[y]);
}
