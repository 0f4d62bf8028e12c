/* cells.c -- cells of tables: numbers, missing ones, their order; see schema.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/key.h"
#include "data/schema/schema.h"

enum { SHOWN = 40 };

/* Without the blanks around. */
static td__cell trimmed(const td__cell *c)
{
    size_t begin = 0, n = c->nbytes;

    while (n && (c->text[n - 1] == ' ' || c->text[n - 1] == '\t'))
        n--;
    while (begin < n && (c->text[begin] == ' ' || c->text[begin] == '\t'))
        begin++;
    return (td__cell){c->text + begin, n - begin};
}

static bool fits(double x)
{
    return fabs(x) <= 3.4e38; /* of f32; not of NaN */
}

bool td__cell_number(const td__cell *c, double *out)
{
    char buf[64], *end;

    if (!c->text)
        return false;
    td__cell t = trimmed(c);
    if (t.nbytes == 0 || t.nbytes >= sizeof buf || memchr(t.text, 0, t.nbytes))
        return false;
    if (memchr(t.text, 'x', t.nbytes) || memchr(t.text, 'X', t.nbytes))
        return false; /* 0x1A is a number to strtod, but a text to those who read tables */
    memcpy(buf, t.text, t.nbytes);
    buf[t.nbytes] = 0;
    *out = strtod(buf, &end);
    return *end == 0 && end != buf && fits(*out);
}

/* The texts that pandas.read_csv takes for missing values. */
bool td__cell_missing(const td__cell *c)
{
    static const char *const TEXTS[] = {
        "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
        "<NA>", "N/A",      "NA",  "NULL",    "NaN",      "None", "n/a",  "nan",    "null"};

    if (!c->text)
        return true;
    td__cell t = trimmed(c);
    for (int i = 0; i < TD_LEN(TEXTS); i++)
        if (strlen(TEXTS[i]) == t.nbytes && memcmp(TEXTS[i], t.text, t.nbytes) == 0)
            return true;
    return t.nbytes == 0;
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

int64_t td__column_find(const td__column *c, const td__cell *cell)
{
    const td__cell *at =
        cell->text ? bsearch(cell, c->value, (size_t)c->values, sizeof *at, td__cell_compare)
                   : NULL;
    return at ? at - c->value : -1;
}

/* ---- Cells of columns with a type ------------------------------------------------------------ */

static double f32_at(const td__values *v, int64_t row)
{
    return (double)((const float *)v->data)[row];
}

static bool is_missing(const td__values *v, int64_t row)
{
    if (v->type == TD_VALUES_F32)
        return isnan(f32_at(v, row));
    if (v->type == TD_VALUES_F64)
        return isnan(((const double *)v->data)[row]);
    return v->missing && v->missing[row];
}

td__cell td__cell_at(const td__records *r, int64_t row, int64_t column, char room[TD__CELL_ROOM])
{
    const td__values *v = r->values ? &r->values[column] : NULL;

    if (!v)
        return r->cells[row * r->cols + column];
    if (v->type == TD_VALUES_CELL)
        return ((const td__cell *)v->data)[row];
    if (is_missing(v, row))
        return (td__cell){0};
    if (v->type == TD_VALUES_F32)
        snprintf(room, TD__CELL_ROOM, "%.9g", f32_at(v, row));
    else if (v->type == TD_VALUES_F64)
        td__real_text(((const double *)v->data)[row], room, TD__CELL_ROOM);
    else if (v->type == TD_VALUES_I64)
        snprintf(room, TD__CELL_ROOM, "%" PRId64, ((const int64_t *)v->data)[row]);
    else
        snprintf(room, TD__CELL_ROOM, "%" PRIu64, ((const uint64_t *)v->data)[row]);
    return (td__cell){room, strlen(room)};
}

bool td__number_at(const td__records *r, int64_t row, int64_t column, double *out)
{
    const td__values *v = r->values ? &r->values[column] : NULL;
    char room[TD__CELL_ROOM];

    /* An f32 counts as the number that its text says, which is not the same f64. */
    if (!v || v->type == TD_VALUES_CELL || v->type == TD_VALUES_F32) {
        td__cell c = td__cell_at(r, row, column, room);
        return td__cell_number(&c, out);
    }
    if (v->type == TD_VALUES_F64)
        *out = ((const double *)v->data)[row];
    else if (v->type == TD_VALUES_I64)
        *out = (double)((const int64_t *)v->data)[row];
    else
        *out = (double)((const uint64_t *)v->data)[row];
    return fits(*out) && !is_missing(v, row);
}

void td__rough_rows(const td__records *r, int64_t begin, int64_t n, int64_t column, double *x,
                    bool *there)
{
    const td__values *v = r->values ? &r->values[column] : NULL;
    td__values_type type = v ? v->type : TD_VALUES_CELL;

    switch (type) {
    case TD_VALUES_CELL:
        for (int64_t i = 0; i < n; i++)
            there[i] = td__number_at(r, begin + i, column, &x[i]);
        return;
    case TD_VALUES_F32:
        for (int64_t i = 0; i < n; i++)
            x[i] = (double)((const float *)v->data)[begin + i];
        break;
    case TD_VALUES_F64: memcpy(x, (const double *)v->data + begin, (size_t)n * sizeof *x); break;
    case TD_VALUES_I64:
        for (int64_t i = 0; i < n; i++)
            x[i] = (double)((const int64_t *)v->data)[begin + i];
        break;
    case TD_VALUES_U64:
        for (int64_t i = 0; i < n; i++)
            x[i] = (double)((const uint64_t *)v->data)[begin + i];
        break;
    }
    for (int64_t i = 0; i < n; i++) /* missing reals are NaN, which does not fit */
        there[i] = fits(x[i]);
    for (int64_t i = 0; i < n && v->missing; i++)
        there[i] = there[i] && !v->missing[begin + i];
}

bool td__missing_at(const td__records *r, int64_t row, int64_t column)
{
    const td__values *v = r->values ? &r->values[column] : NULL;

    if (v && v->type != TD_VALUES_CELL)
        return is_missing(v, row);
    td__cell c = td__cell_at(r, row, column, NULL);
    return td__cell_missing(&c);
}

/* ---- Columns --------------------------------------------------------------------------------- */

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

td_status td__bad_cell(const td__records *r, int64_t row, int64_t column, const char *expected)
{
    char room[TD__CELL_ROOM];
    td__cell cell = td__cell_at(r, row, column, room);
    int shown = cell.nbytes > SHOWN ? SHOWN : (int)cell.nbytes;

    return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": column '%s' is %s%.*s%s, expected %s", r->where,
                   r->line[row], r->names[column], cell.text ? "'" : "missing", shown,
                   cell.text ? cell.text : "", cell.text ? "'" : "", expected);
}
