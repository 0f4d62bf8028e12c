/* schema.c -- what the columns of a table are; see schema.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

enum { MAX_CATEGORIES = 64, MAX_TEXT = 1 << 16, SHOWN = 40 };

bool td__cell_number(const td__cell *c, double *out)
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

int td__cell_compare(const void *pa, const void *pb)
{
    const td__cell *a = pa, *b = pb;
    double x, y;
    bool number_a = td__cell_number(a, &x), number_b = td__cell_number(b, &y);

    if (number_a != number_b)
        return number_a ? -1 : 1;
    if (number_a && x != y)
        return x < y ? -1 : 1;
    size_t n = a->nbytes < b->nbytes ? a->nbytes : b->nbytes;
    int order = n ? memcmp(a->text, b->text, n) : 0;
    return order ? order : a->nbytes < b->nbytes ? -1 : a->nbytes > b->nbytes;
}

int64_t td__records_find(const td__records *r, const char *name)
{
    for (int64_t c = 0; c < r->cols; c++)
        if (strcmp(r->names[c], name) == 0)
            return c;
    return -1;
}

td_status td__no_column(const td__records *r, const char *name)
{
    char list[256] = "";
    size_t used = 0;

    for (int64_t c = 0; c < r->cols && used < sizeof list; c++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", c ? ", " : "", r->names[c]);
    return TD_FAIL(TD_EINVAL, "%s: there is no column '%s'; it has %s%s", r->where, name, list,
                   used >= sizeof list ? "..." : "");
}

td_status td__bad_cell(const td__records *r, int64_t row, const char *name, const td__cell *cell,
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
        if (!r->cells[i * r->cols + at].text || !td__cell_number(&r->cells[i * r->cols + at], &x))
            return i;
    return -1;
}

/* The sorted different texts of a column; `most` limits how many. */
static td_status collect(const td__records *r, int64_t at, int64_t most, td__column *out)
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
            return td__bad_cell(r, i, out->name, &all[i], "a value");
    }
    qsort(all, (size_t)r->rows, sizeof *all, td__cell_compare);
    for (int64_t i = 0; i < r->rows; i++)
        if (i == 0 || td__cell_compare(&all[i], &all[kept - 1]) != 0)
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

bool td__schema_no_class(const td__schema *s, const td__cell *cell)
{
    double x;
    return s->no_class < 0 && cell->text && td__cell_number(cell, &x) && x == (double)s->no_class;
}

static td_status make_label(td__schema *s, const td__source_opts *o, const td__records *train)
{
    const char *target = o->target ? o->target : "class";
    int64_t at = o->label ? td__records_find(train, o->label) : train->cols - 1;

    if (at < 0)
        return td__no_column(train, o->label);
    s->label.name = train->names[at];
    s->no_class = o->no_class;
    s->label_is_class = strcmp(target, "class") == 0;
    if (!s->label_is_class && strcmp(target, "number") != 0)
        return TD_FAIL(TD_EINVAL, "data.target is '%s', expected class or number", target);
    s->label.width = 1;
    if (!s->label_is_class)
        return TD_OK;
    s->label.kind = TD_COLUMN_CATEGORY;
    if (all_numbers(train, at))
        for (int64_t i = 0; i < train->rows; i++) {
            double x = 0;
            td__cell_number(&train->cells[i * train->cols + at], &x);
            if (x != floor(x))
                return td__bad_cell(train, i, s->label.name, &train->cells[i * train->cols + at],
                                    "a class; for numbers set data.target to number");
        }
    TD_TRY(collect(train, at, INT32_MAX, &s->label));
    int64_t kept = 0; /* classes are numbered without the one that is none */
    for (int64_t k = 0; k < s->label.values; k++)
        if (!td__schema_no_class(s, &s->label.value[k]))
            s->label.value[kept++] = s->label.value[k];
    s->label.values = kept;
    return kept ? TD_OK
                : TD_FAIL(TD_EINVAL, "%s: column '%s' has no class but the ignored one",
                          train->where, s->label.name);
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
            return td__bad_cell(r, i, r->names[at], c, "a value");
        numbers += td__cell_number(c, &x);
    }
    if (numbers * 2 > r->rows)
        return td__bad_cell(r, odd, r->names[at], &r->cells[odd * r->cols + at],
                            "a finite number, as most others are");
    return TD_OK;
}

static td_status make_feature(td__schema *s, const td__records *train, int64_t at, bool alone)
{
    td__column *c = &s->features[s->n_features++];

    c->name = train->names[at];
    c->width = 1;
    if (all_numbers(train, at)) {
        c->kind = TD_COLUMN_NUMBER;
    } else if (alone) {
        c->kind = TD_COLUMN_TEXT;
        TD_TRY(check_text(train, at));
        for (int64_t i = 0; i < train->rows; i++) {
            int64_t n = (int64_t)train->cells[i * train->cols + at].nbytes;
            c->width = n > c->width ? n : c->width;
        }
        c->width = c->width > MAX_TEXT ? MAX_TEXT : c->width;
    } else {
        c->kind = TD_COLUMN_CATEGORY;
        TD_TRY(collect(train, at, MAX_CATEGORIES, c));
        c->width = c->values;
    }
    s->width += c->width;
    return TD_OK;
}

static td_status make_features(td__schema *s, const td__source_opts *o, const td__records *train)
{
    int64_t n = 0;

    for (int i = 0; i < o->n_columns; i++) {
        bool found = false;
        for (int64_t c = 0; c < train->cols; c++)
            found |= wanted(&(td__source_opts){.columns = &o->columns[i], .n_columns = 1},
                            train->names[c]);
        if (!found)
            return td__no_column(train, o->columns[i]);
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

td_status td__schema_make(td__schema *s, const td__source_opts *o, const td__records *train)
{
    TD_TRY(make_label(s, o, train));
    return make_features(s, o, train);
}

void td__schema_fini(td__schema *s)
{
    for (int64_t i = 0; i < s->n_features; i++)
        td__free(s->features[i].value);
    td__free(s->features);
    td__free(s->label.value);
    td__arena_destroy(s->arena);
}

int64_t td__column_find(const td__column *c, const td__cell *cell)
{
    const td__cell *at =
        cell->text ? bsearch(cell, c->value, (size_t)c->values, sizeof *at, td__cell_compare)
                   : NULL;
    return at ? at - c->value : -1;
}
