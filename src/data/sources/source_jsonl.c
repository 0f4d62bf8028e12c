/* source_jsonl.c -- JSON Lines: one object per line.
 *
 * Objects become rows: a member is a column of its name, the elements of a list are columns
 * "name[0]", "name[1]" ..., those of an object inside "name.inner". true and false are 1 and 0,
 * null is a missing cell. The first line says which columns there are; members that it does not
 * have are left out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "data/records.h"

enum { MAX_DEPTH = 8, NAME_MAX_BYTES = 512 };

/* A walk over the members of one object, in their order. */
typedef struct walk {
    td__records *r;
    int64_t line;
    td__cell *names; /* first line: columns found so far; NULL later */
    int64_t n;       /* columns found; later: where the next one is expected */
    td__cell *cells; /* the row; NULL in the first walk */
    char name[NAME_MAX_BYTES];
} walk;

static td_status copy_text(walk *w, const char *text, size_t nbytes, td__cell *cell)
{
    char *copy = td__arena_alloc(w->r->arena, nbytes + 1);

    if (!copy)
        return TD_FAIL(TD_ENOMEM, "%s:%" PRId64 ": no memory", w->r->where, w->line);
    memcpy(copy, text, nbytes);
    *cell = (td__cell){copy, nbytes};
    return TD_OK;
}

static td_status set_cell(walk *w, const json_t *value, td__cell *cell)
{
    char number[64];

    if (json_is_string(value))
        return copy_text(w, json_string_value(value), json_string_length(value), cell);
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(number, sizeof number, "%d", json_is_true(value));
    else
        return TD_OK; /* null */
    return copy_text(w, number, strlen(number), cell);
}

static td_status visit(walk *w, const json_t *value, size_t name_len, int depth);

static td_status visit_inner(walk *w, const json_t *value, size_t name_len, int depth,
                             const char *form, const char *key, size_t i)
{
    size_t room = sizeof w->name - name_len;
    int n = key ? snprintf(w->name + name_len, room, form, key)
                : snprintf(w->name + name_len, room, "[%zu]", i);

    if (n < 0 || (size_t)n >= room)
        return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": the name of a member is too long", w->r->where,
                       w->line);
    return visit(w, value, name_len + (size_t)n, depth + 1);
}

static td_status visit_leaf(walk *w, const json_t *value, size_t name_len)
{
    int64_t c;

    if (w->names) {
        if (w->n == TD__MAX_COLUMNS)
            return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": more than %d columns", w->r->where, w->line,
                           TD__MAX_COLUMNS);
        return copy_text(w, w->name, name_len, &w->names[w->n++]);
    }
    for (int64_t k = 0; k < w->r->cols; k++) {
        c = (w->n + k) % w->r->cols; /* mostly the first: members come in the same order */
        if (strcmp(w->r->names[c], w->name) == 0) {
            w->n = c + 1;
            return set_cell(w, value, &w->cells[c]);
        }
    }
    return TD_OK;
}

static td_status visit(walk *w, const json_t *value, size_t name_len, int depth)
{
    if (depth > MAX_DEPTH)
        return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": more than %d levels", w->r->where, w->line,
                       MAX_DEPTH);
    if (json_is_object(value)) {
        for (void *it = json_object_iter((json_t *)(uintptr_t)value); it;
             it = json_object_iter_next((json_t *)(uintptr_t)value, it))
            TD_TRY(visit_inner(w, json_object_iter_value(it), name_len, depth,
                               name_len ? ".%s" : "%s", json_object_iter_key(it), 0));
        return TD_OK;
    }
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            TD_TRY(visit_inner(w, json_array_get(value, i), name_len, depth, NULL, NULL, i));
        return TD_OK;
    }
    return visit_leaf(w, value, name_len);
}

static td_status find_columns(td__records *r, const json_t *object, size_t nbytes, int64_t line)
{
    size_t most = nbytes < TD__MAX_COLUMNS ? nbytes : TD__MAX_COLUMNS; /* a column takes a byte */
    walk w = {.r = r, .line = line, .names = td__calloc(most, sizeof *w.names)};
    td_status st = TD_OK;

    if (!w.names)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", r->where);
    TD_TRY_OR(st, done, visit(&w, object, 0, 0));
    TD_TRY_OR(st, done, td__records_columns(r, w.names, w.n));
done:
    td__free(w.names);
    return st;
}

static td_status read_line(td__records *r, const char *text, size_t nbytes, int64_t line)
{
    walk w = {.r = r, .line = line};
    json_error_t error;
    td_status st = TD_OK;
    json_t *object = json_loadb(text, nbytes, 0, &error);

    if (!object)
        return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ":%d: not JSON: %s", r->where, line, error.column,
                       error.text);
    if (!json_is_object(object)) {
        st = TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": not an object", r->where, line);
        goto done;
    }
    if (!r->cols)
        TD_TRY_OR(st, done, find_columns(r, object, nbytes, line));
    TD_TRY_OR(st, done, td__records_row(r, line, &w.cells));
    TD_TRY_OR(st, done, visit(&w, object, 0, 0));
done:
    json_decref(object);
    return st;
}

static bool is_blank(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", p[i]) || !p[i])
            return false;
    return true;
}

td_status td__jsonl_parse(td__records *r, const td__source_opts *o, const uint8_t *data,
                          size_t nbytes)
{
    const char *p = (const char *)data, *end = p + nbytes;

    (void)o;
    for (int64_t line = 1; p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((stop ? stop : end) - p);
        if (!is_blank(p, n))
            TD_TRY(read_line(r, p, n, line));
        p += n + (stop != NULL);
    }
    if (r->rows == 0)
        return TD_FAIL(TD_EPROTO, "%s: no rows", r->where);
    return TD_OK;
}

static const td__table_format FORMAT = {
    .source = "jsonl",
    .expected = "a file with one JSON object per line",
    .parse = td__jsonl_parse,
};

static td_status jsonl_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, NULL, out);
}

static td_status jsonl_open_fitted(const td__source_opts *o, const char *part, const td__fit *fit,
                                   td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, fit, NULL, out);
}

static td_status jsonl_open_cut(const td__source_opts *o, const char *part,
                                const struct td__split *cut, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, cut, out);
}

const td__source_def td__source_jsonl = {
    .name = "jsonl",
    .help = "JSON Lines: one object per line, a label member and feature members",
    .reads = "dir train valid test label columns features missing fit window horizon stride "
             "target",
    .open = jsonl_open,
    .open_fitted = jsonl_open_fitted,
    .open_cut = jsonl_open_cut,
};
