/* records_open.c -- from rows of cells to samples; see records.h.
 *
 * 1. Read the train file and decide what each column is (the schema).
 * 2. Read the part's file, if it is another one, and find the columns by name.
 * 3. Encode. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/records.h"
#include "data/table.h"

enum { MAX_CATEGORIES = 64, MAX_TEXT = 1 << 16, SHOWN = 40 };
/* What x may take in memory, so that a small file cannot ask for a huge table. */
enum { MOST_PER_BYTE = 256, MOST_AT_LEAST = 256 << 20 };

typedef enum column_kind { COLUMN_NUMBER, COLUMN_CATEGORY, COLUMN_TEXT } column_kind;

typedef struct column {
    const char *name;
    column_kind kind;
    int64_t values;  /* different texts */
    td__cell *value; /* (values), sorted; own */
    int64_t width;   /* places in x */
} column;

typedef struct schema {
    column label;
    bool label_is_class, label_optional;
    column *features; /* (n_features) */
    int64_t n_features, width;
} schema;

static bool parse_number(const td__cell *c, double *out)
{
    char buf[64], *end;
    size_t begin = 0, n = c->nbytes;

    while (n && (c->text[n - 1] == ' ' || c->text[n - 1] == '\t'))
        n--;
    while (begin < n && (c->text[begin] == ' ' || c->text[begin] == '\t'))
        begin++;
    if (begin == n || n - begin >= sizeof buf || memchr(c->text + begin, 0, n - begin))
        return false;
    memcpy(buf, c->text + begin, n - begin);
    buf[n - begin] = 0;
    *out = strtod(buf, &end);
    return *end == 0 && end != buf && isfinite(*out) && fabs(*out) <= 3.4e38;
}

/* Whole numbers by value, before all other texts; those by their bytes. */
static int compare_cells(const void *pa, const void *pb)
{
    const td__cell *a = pa, *b = pb;
    double x, y;
    bool number_a = parse_number(a, &x), number_b = parse_number(b, &y);

    if (number_a != number_b)
        return number_a ? -1 : 1;
    if (number_a && x != y)
        return x < y ? -1 : 1;
    size_t n = a->nbytes < b->nbytes ? a->nbytes : b->nbytes;
    int order = n ? memcmp(a->text, b->text, n) : 0;
    return order ? order : a->nbytes < b->nbytes ? -1 : a->nbytes > b->nbytes;
}

static int64_t find_column(const td__records *r, const char *name)
{
    for (int64_t c = 0; c < r->cols; c++)
        if (strcmp(r->names[c], name) == 0)
            return c;
    return -1;
}

static td_status no_column(const td__records *r, const char *name)
{
    char list[256] = "";
    size_t used = 0;

    for (int64_t c = 0; c < r->cols && used < sizeof list; c++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", c ? ", " : "", r->names[c]);
    return TD_FAIL(TD_EINVAL, "%s: there is no column '%s'; it has %s%s", r->where, name, list,
                   used >= sizeof list ? "..." : "");
}

static td_status bad_cell(const td__records *r, int64_t row, const char *name, const td__cell *cell,
                          const char *expected)
{
    int shown = cell->nbytes > SHOWN ? SHOWN : (int)cell->nbytes;

    return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": column '%s' is %s%.*s%s, expected %s", r->where,
                   r->line[row], name, cell->text ? "'" : "missing", shown,
                   cell->text ? cell->text : "", cell->text ? "'" : "", expected);
}

/* The first row whose cell is no number; -1: all are. */
static int64_t first_text(const td__records *r, int64_t at)
{
    double x;

    for (int64_t i = 0; i < r->rows; i++)
        if (!r->cells[i * r->cols + at].text || !parse_number(&r->cells[i * r->cols + at], &x))
            return i;
    return -1;
}

/* The sorted different texts of a column; `most` limits how many. */
static td_status collect(const td__records *r, int64_t at, int64_t most, column *out)
{
    td__cell *all = td__calloc((size_t)r->rows, sizeof *all);
    int64_t kept = 0;
    td_status st = TD_OK;

    if (!all)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for column '%s'", r->where, out->name);
    out->value = all;
    for (int64_t i = 0; i < r->rows; i++) {
        all[i] = r->cells[i * r->cols + at];
        if (!all[i].text || !all[i].nbytes)
            return bad_cell(r, i, out->name, &all[i], "a value");
    }
    qsort(all, (size_t)r->rows, sizeof *all, compare_cells);
    for (int64_t i = 0; i < r->rows; i++)
        if (i == 0 || compare_cells(&all[i], &all[kept - 1]) != 0)
            all[kept++] = all[i];
    if (kept > most) {
        int64_t text = first_text(r, at), row = text < 0 ? 0 : text;
        const td__cell *c = &r->cells[row * r->cols + at];
        st = TD_FAIL(TD_EINVAL,
                     "%s:%" PRId64 ": column '%s' is '%.*s', not a finite number, and has %" PRId64
                     " different texts; at most %" PRId64
                     " can be a feature: leave it out of data.columns",
                     r->where, r->line[row], out->name,
                     (int)(c->nbytes < SHOWN ? c->nbytes : SHOWN), c->text, kept, most);
    }
    out->values = kept;
    return st;
}

static bool all_numbers(const td__records *r, int64_t at)
{
    return first_text(r, at) < 0;
}

static td_status make_label(schema *s, const td__source_opts *o, const td__records *train)
{
    const char *target = o->target ? o->target : "class";
    int64_t at = o->label ? find_column(train, o->label) : train->cols - 1;

    if (at < 0)
        return no_column(train, o->label);
    s->label.name = train->names[at];
    s->label_is_class = strcmp(target, "class") == 0;
    if (!s->label_is_class && strcmp(target, "number") != 0)
        return TD_FAIL(TD_EINVAL, "data.target is '%s', expected class or number", target);
    if (!s->label_is_class)
        return TD_OK;
    if (all_numbers(train, at))
        for (int64_t i = 0; i < train->rows; i++) {
            double x = 0;
            parse_number(&train->cells[i * train->cols + at], &x);
            if (x != floor(x))
                return bad_cell(train, i, s->label.name, &train->cells[i * train->cols + at],
                                "a class; for numbers set data.target to number");
        }
    return collect(train, at, INT32_MAX, &s->label);
}

/* "x" in data.columns also means x[0], x[1] ... of a list. */
static bool wanted(const td__source_opts *o, const char *name)
{
    if (!o->n_columns)
        return true;
    for (int i = 0; i < o->n_columns; i++) {
        size_t n = strlen(o->columns[i]);
        if (strncmp(name, o->columns[i], n) == 0 && (name[n] == 0 || name[n] == '['))
            return true;
    }
    return false;
}

/* A column that could be a text, but is one of numbers with something else in between, would train
 * on the digits' bytes. */
static td_status check_text(const td__records *r, int64_t at)
{
    int64_t numbers = 0, odd = first_text(r, at);
    double x;

    for (int64_t i = 0; i < r->rows; i++) {
        const td__cell *c = &r->cells[i * r->cols + at];
        if (!c->text)
            return bad_cell(r, i, r->names[at], c, "a value");
        numbers += parse_number(c, &x);
    }
    if (numbers * 2 > r->rows)
        return bad_cell(r, odd, r->names[at], &r->cells[odd * r->cols + at],
                        "a finite number, as most others are");
    return TD_OK;
}

static td_status make_feature(schema *s, const td__records *train, int64_t at, bool alone)
{
    column *c = &s->features[s->n_features++];

    c->name = train->names[at];
    c->width = 1;
    if (all_numbers(train, at)) {
        c->kind = COLUMN_NUMBER;
    } else if (alone) {
        c->kind = COLUMN_TEXT;
        TD_TRY(check_text(train, at));
        for (int64_t i = 0; i < train->rows; i++) {
            int64_t n = (int64_t)train->cells[i * train->cols + at].nbytes;
            c->width = n > c->width ? n : c->width;
        }
        c->width = c->width > MAX_TEXT ? MAX_TEXT : c->width;
    } else {
        c->kind = COLUMN_CATEGORY;
        TD_TRY(collect(train, at, MAX_CATEGORIES, c));
        c->width = c->values;
    }
    s->width += c->width;
    return TD_OK;
}

static td_status make_features(schema *s, const td__source_opts *o, const td__records *train)
{
    int64_t n = 0;

    for (int i = 0; i < o->n_columns; i++) {
        bool found = false;
        for (int64_t c = 0; c < train->cols; c++)
            found |= wanted(&(td__source_opts){.columns = &o->columns[i], .n_columns = 1},
                            train->names[c]);
        if (!found)
            return no_column(train, o->columns[i]);
    }
    for (int64_t c = 0; c < train->cols; c++)
        n += wanted(o, train->names[c]) && strcmp(train->names[c], s->label.name) != 0;
    if (n == 0)
        return TD_FAIL(TD_EINVAL, "%s: there is no column besides the label '%s'", train->where,
                       s->label.name);
    s->features = td__calloc((size_t)n, sizeof *s->features);
    if (!s->features)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " columns", train->where, n);
    for (int64_t c = 0; c < train->cols; c++)
        if (wanted(o, train->names[c]) && strcmp(train->names[c], s->label.name) != 0)
            TD_TRY(make_feature(s, train, c, n == 1));
    return TD_OK;
}

static void fini_schema(schema *s)
{
    for (int64_t i = 0; i < s->n_features; i++)
        td__free(s->features[i].value);
    td__free(s->features);
    td__free(s->label.value);
}

static int64_t category(const column *c, const td__cell *cell)
{
    const td__cell *at =
        cell->text ? bsearch(cell, c->value, (size_t)c->values, sizeof *at, compare_cells) : NULL;
    return at ? at - c->value : -1;
}

/* One column of all rows, from place `begin` of x on. */
static td_status encode_feature(const schema *s, const column *c, const td__records *r,
                                int64_t begin, void *x)
{
    int64_t at = find_column(r, c->name);

    if (at < 0)
        return no_column(r, c->name);
    for (int64_t i = 0; i < r->rows; i++) {
        const td__cell *cell = &r->cells[i * r->cols + at];
        double number = 0;
        if (c->kind == COLUMN_TEXT) {
            int64_t n = (int64_t)cell->nbytes < c->width ? (int64_t)cell->nbytes : c->width;
            if (n)
                memcpy((uint8_t *)x + i * s->width, cell->text, (size_t)n);
        } else if (c->kind == COLUMN_NUMBER) {
            if (!cell->text || !parse_number(cell, &number))
                return bad_cell(r, i, c->name, cell, "a finite number");
            ((float *)x)[i * s->width + begin] = (float)number;
        } else {
            int64_t k = category(c, cell);
            if (k < 0)
                return bad_cell(r, i, c->name, cell, "a text that occurs in the train file");
            ((float *)x)[i * s->width + begin + k] = 1;
        }
    }
    return TD_OK;
}

static td_status encode_label(const schema *s, const td__records *r, void *y)
{
    int64_t at = find_column(r, s->label.name);

    if (at < 0 && s->label_optional)
        return TD_OK; /* y stays 0 */
    if (at < 0)
        return no_column(r, s->label.name);
    for (int64_t i = 0; i < r->rows; i++) {
        const td__cell *cell = &r->cells[i * r->cols + at];
        double number = 0;
        int64_t k = s->label_is_class ? category(&s->label, cell) : 0;
        if (k < 0)
            return bad_cell(r, i, s->label.name, cell, "a class that occurs in the train file");
        if (!s->label_is_class && (!cell->text || !parse_number(cell, &number)))
            return bad_cell(r, i, s->label.name, cell, "a finite number");
        if (s->label_is_class)
            ((int32_t *)y)[i] = (int32_t)k;
        else
            ((float *)y)[i] = (float)number;
    }
    return TD_OK;
}

static td_status name_classes(const schema *s, td__table *t, td__field *y)
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

static td_status encode(const schema *s, const td__records *r, size_t file_bytes, td__table *t)
{
    bool text = s->features[0].kind == COLUMN_TEXT;
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
    TD_TRY(td__table_add(t, &x));
    TD_TRY(td__table_add(t, &y));
    for (int64_t i = 0; i < s->n_features; i++) {
        TD_TRY(encode_feature(s, &s->features[i], r, begin, t->column[0]));
        begin += s->features[i].width;
    }
    return encode_label(s, r, t->column[1]);
}

/* A file and its rows. */
typedef struct input {
    char path[TD__PATH];
    td__file_map map;
    td__records records;
} input;

static td_status open_input(input *in, const char *source, const char *expected,
                            td__records_parser parse, const td__source_opts *o, const char *part)
{
    const char *name;

    TD_TRY(td__part_file(source, o, part, expected, &name));
    TD_TRY(td__data_path(o->dir, name, in->path));
    TD_TRY(td__data_map(in->path, expected, &in->map));
    TD_TRY(td__records_init(&in->records, in->path));
    return parse(&in->records, o, in->map.data, in->map.nbytes);
}

static void close_input(input *in)
{
    td__records_fini(&in->records);
    td__file_map_close(&in->map);
}

td_status td__records_open(const char *source, const char *expected, td__records_parser parse,
                           const td__source_opts *o, const char *part, td__dataset **out)
{
    bool is_train = strcmp(part, "train") == 0;
    input train = {0}, own = {0};
    schema s = {0};
    td__table *t = NULL;
    const char *name;
    td_status st = TD_OK;

    *out = NULL;
    TD_TRY(td__part_file(source, o, part, expected, &name));
    TD_TRY_OR(st, done, open_input(&train, source, expected, parse, o, "train"));
    TD_TRY_OR(st, done, make_label(&s, o, &train.records));
    TD_TRY_OR(st, done, make_features(&s, o, &train.records));
    s.label_optional = o->unlabelled && strcmp(part, "test") == 0;
    if (!is_train)
        TD_TRY_OR(st, done, open_input(&own, source, expected, parse, o, part));
    const td__records *r = is_train ? &train.records : &own.records;
    TD_TRY_OR(st, done, td__table_create(r->rows, &t));
    TD_TRY_OR(st, done, encode(&s, r, is_train ? train.map.nbytes : own.map.nbytes, t));
    *out = &t->head;
    t = NULL;
done:
    td__table_destroy(t);
    fini_schema(&s);
    close_input(&own);
    close_input(&train);
    return st;
}
