/* records.c -- rows of named cells; see records.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

enum { FIRST_ROWS = 64 };

td_status td__records_init(td__records *r, const char *where)
{
    *r = (td__records){.where = where};
    return td__arena_create(&r->arena);
}

void td__records_fini(td__records *r)
{
    for (int64_t c = 0; r->values && c < r->cols; c++) {
        td__free(r->values[c].data);
        td__free(r->values[c].missing);
    }
    td__free(r->values);
    td__free(r->cells);
    td__free(r->line);
    td__free(r->place);
    td__arena_destroy(r->arena);
    *r = (td__records){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Columns are found by name: with two of a name, one would be read in the place of the other. */
static td_status check_names(const td__records *r)
{
    const char **sorted = td__calloc((size_t)r->cols, sizeof *sorted);
    td_status st = TD_OK;

    if (!sorted)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " columns", r->where, r->cols);
    memcpy(sorted, r->names, (size_t)r->cols * sizeof *sorted);
    qsort(sorted, (size_t)r->cols, sizeof *sorted, by_name);
    for (int64_t c = 1; c < r->cols && !st; c++)
        if (strcmp(sorted[c - 1], sorted[c]) == 0)
            st = TD_FAIL(TD_EPROTO, "%s: two columns are named '%.60s'", r->where, sorted[c]);
    td__free(sorted);
    return st;
}

td_status td__records_columns(td__records *r, const td__cell *names, int64_t cols)
{
    if (cols < 1 || cols > TD__MAX_COLUMNS)
        return TD_FAIL(TD_EPROTO, "%s: %" PRId64 " columns; expected 1 to %d", r->where, cols,
                       TD__MAX_COLUMNS);
    r->names = td__arena_alloc(r->arena, (size_t)cols * sizeof *r->names);
    if (!r->names)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " columns", r->where, cols);
    for (int64_t c = 0; c < cols; c++) {
        char *name = td__arena_alloc(r->arena, names[c].nbytes + 1);
        if (!name)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " columns", r->where, cols);
        if (names[c].nbytes)
            memcpy(name, names[c].text, names[c].nbytes);
        r->names[c] = name;
    }
    r->cols = cols;
    return check_names(r);
}

td_status td__records_row(td__records *r, int64_t line, td__cell **cells)
{
    if (r->rows == r->rows_max) {
        int64_t more = r->rows_max ? r->rows_max * 2 : FIRST_ROWS;
        size_t nbytes;
        if (!td__size_mul((size_t)more * sizeof(td__cell), (size_t)r->cols, &nbytes))
            return TD_FAIL(TD_EPROTO, "%s: too many cells", r->where);
        td__cell *c = td__realloc(r->cells, nbytes);
        if (c)
            r->cells = c;
        int64_t *l = td__realloc(r->line, (size_t)more * sizeof *l);
        if (l)
            r->line = l;
        if (!c || !l)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " rows", r->where, more);
        r->rows_max = more;
    }
    *cells = r->cells + r->rows * r->cols;
    memset(*cells, 0, (size_t)r->cols * sizeof **cells);
    r->line[r->rows++] = line;
    return TD_OK;
}

/* ---- Columns of one type --------------------------------------------------------------------- */

size_t td__values_size(td__values_type type)
{
    switch (type) {
    case TD_VALUES_CELL: return sizeof(td__cell);
    case TD_VALUES_F32: return sizeof(float);
    case TD_VALUES_F64:
    case TD_VALUES_I64:
    case TD_VALUES_U64: break;
    }
    return sizeof(int64_t);
}

td_status td__records_types(td__records *r, const td__values_type *types)
{
    r->values = td__calloc((size_t)r->cols, sizeof *r->values);
    if (!r->values)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " columns", r->where, r->cols);
    for (int64_t c = 0; c < r->cols; c++)
        r->values[c].type = types[c];
    return TD_OK;
}

static bool grow(void *array, size_t each, int64_t count)
{
    void **at = array, *more = NULL;
    size_t nbytes;

    if (td__size_mul(each, (size_t)count, &nbytes))
        more = td__realloc(*at, nbytes + 1);
    if (more)
        *at = more;
    return more != NULL;
}

td_status td__records_extend(td__records *r, int64_t n)
{
    int64_t all = r->rows + n, more = r->rows_max;

    if (n == 0) /* a group without rows, before any that has some: there is no memory yet */
        return TD_OK;
    if (all > more) {
        more = all > 2 * more ? all : 2 * more;
        bool good = grow(&r->line, sizeof *r->line, more);
        for (int64_t c = 0; c < r->cols && good; c++) {
            td__values *v = &r->values[c];
            good = grow(&v->data, td__values_size(v->type), more) &&
                   (!v->missing || grow(&v->missing, sizeof *v->missing, more));
        }
        if (!good)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " rows", r->where, more);
        r->rows_max = more;
    }
    for (int64_t c = 0; c < r->cols; c++) {
        td__values *v = &r->values[c];
        if (v->type == TD_VALUES_CELL)
            memset((td__cell *)v->data + r->rows, 0, (size_t)n * sizeof(td__cell));
        if (v->missing)
            memset(v->missing + r->rows, 0, (size_t)n * sizeof *v->missing);
    }
    for (int64_t i = r->rows; i < all; i++)
        r->line[i] = i + 1;
    r->rows = all;
    return TD_OK;
}

td_status td__records_missable(td__records *r, int64_t column)
{
    td__values *v = &r->values[column];

    if (!v->missing)
        v->missing = td__calloc((size_t)r->rows_max + 1, sizeof *v->missing);
    return v->missing
               ? TD_OK
               : TD_FAIL(TD_ENOMEM, "%s: no memory for column '%s'", r->where, r->names[column]);
}

/* Row `from` becomes row `to` of out, which has the same columns. */
static void copy_row(const td__records *in, int64_t from, td__records *out, int64_t to)
{
    out->line[to] = in->line[from];
    if (out->place)
        out->place[to] = in->place[from];
    if (!in->values) {
        memmove(out->cells + to * out->cols, in->cells + from * in->cols,
                (size_t)in->cols * sizeof *in->cells);
        return;
    }
    for (int64_t c = 0; c < in->cols; c++) {
        const td__values *v = &in->values[c], *w = &out->values[c];
        size_t each = td__values_size(v->type);
        memmove((char *)w->data + (size_t)to * each, (char *)v->data + (size_t)from * each, each);
        if (w->missing)
            w->missing[to] = v->missing[from];
    }
}

void td__records_move(td__records *r, int64_t from, int64_t to)
{
    copy_row(r, from, r, to);
}

/* Room for n rows of the columns of `all`; false: there is none. */
static bool make_room(const td__records *all, size_t n, td__records *out)
{
    size_t cols = (size_t)all->cols, cells;
    bool good = td__size_mul(n, cols, &cells);

    out->line = td__calloc(n, sizeof *out->line);
    if (!all->values && good)
        out->cells = td__calloc(cells, sizeof *out->cells);
    if (all->values)
        out->values = td__calloc(cols, sizeof *out->values);
    good = out->line && (out->cells || out->values);
    for (size_t c = 0; out->values && good && c < cols; c++) {
        const td__values *v = &all->values[c];
        td__values *w = &out->values[c];
        w->type = v->type;
        w->data = td__calloc(n, td__values_size(v->type));
        w->missing = v->missing ? td__calloc(n, sizeof *w->missing) : NULL;
        good = w->data && (w->missing || !v->missing);
    }
    return good;
}

td_status td__records_pick(const td__records *all, const bool *use, td__records *out)
{
    int64_t n = 0;

    for (int64_t i = 0; i < all->rows; i++)
        n += use[i];
    *out = (td__records){
        .where = all->where, .arena = all->arena, .cols = all->cols, .names = all->names};
    if (!make_room(all, (size_t)n + 1, out)) {
        td__records_drop(out);
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " of its rows", all->where, n);
    }
    for (int64_t i = 0; i < all->rows; i++)
        if (use[i])
            copy_row(all, i, out, out->rows++);
    return TD_OK;
}

void td__records_drop(td__records *picked)
{
    picked->arena = NULL;
    td__records_fini(picked);
}
