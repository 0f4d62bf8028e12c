/* source_csv.c -- CSV files (RFC 4180, and what people write): quoted cells with doubled quotes and
 * line ends inside, LF or CRLF, a byte-order mark, blank lines, any delimiter of one byte. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "data/records.h"

typedef struct reader {
    const char *p, *end;
    char delimiter;
    int64_t line;
    td__records *r;
} reader;

static bool at_line_end(const reader *c)
{
    return c->p == c->end || *c->p == '\n' ||
           (*c->p == '\r' && (c->p + 1 == c->end || c->p[1] == '\n'));
}

static void skip_line_end(reader *c)
{
    if (c->p < c->end && *c->p == '\r')
        c->p++;
    if (c->p < c->end && *c->p == '\n')
        c->p++;
    c->line++;
}

/* A quoted cell; the cursor is behind the first quote. Doubled quotes make a copy necessary. */
static td_status read_quoted(reader *c, td__cell *cell)
{
    int64_t began = c->line;
    const char *start = c->p;
    size_t doubled = 0;

    for (;; c->p++) {
        if (c->p == c->end)
            return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": a quote is not closed", c->r->where, began);
        c->line += *c->p == '\n';
        if (*c->p != '"')
            continue;
        if (c->p + 1 == c->end || c->p[1] != '"')
            break;
        doubled++;
        c->p++;
    }
    size_t raw = (size_t)(c->p++ - start);
    *cell = (td__cell){start, raw};
    if (!doubled)
        return TD_OK;
    char *copy = td__arena_alloc(c->r->arena, raw), *to = copy;
    if (!copy)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a cell of %zu bytes", c->r->where, raw);
    for (size_t i = 0; i < raw; i++) {
        *to++ = start[i];
        i += start[i] == '"';
    }
    *cell = (td__cell){copy, raw - doubled};
    return TD_OK;
}

/* The next cell; *last: it was the line's last. */
static td_status read_cell(reader *c, td__cell *cell, bool *last)
{
    if (c->p < c->end && *c->p == '"') {
        c->p++;
        TD_TRY(read_quoted(c, cell));
    } else {
        const char *start = c->p;
        while (!at_line_end(c) && *c->p != c->delimiter)
            c->p++;
        *cell = (td__cell){start, (size_t)(c->p - start)};
    }
    *last = at_line_end(c);
    if (*last)
        skip_line_end(c);
    else if (*c->p == c->delimiter)
        c->p++;
    else
        return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": text follows a closing quote", c->r->where,
                       c->line);
    return TD_OK;
}

static bool skip_blank_lines(reader *c)
{
    while (c->p < c->end && at_line_end(c))
        skip_line_end(c);
    return c->p < c->end;
}

/* The first line: names, or with no_header only their count. */
static td_status read_header(reader *c, bool no_header)
{
    int64_t most = c->end - c->p < TD__MAX_COLUMNS ? c->end - c->p + 1 : TD__MAX_COLUMNS;
    td__cell *names = td__calloc((size_t)most, sizeof *names);
    reader begin = *c;
    int64_t cols = 0;
    bool last = false;
    td_status st = TD_OK;

    if (!names)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", c->r->where);
    while (!last && cols < most) {
        TD_TRY_OR(st, done, read_cell(c, &names[cols], &last));
        if (no_header) {
            char *name = td__arena_printf(c->r->arena, "c%" PRId64, cols);
            if (!name) {
                st = TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", c->r->where);
                goto done;
            }
            names[cols] = (td__cell){name, strlen(name)};
        }
        cols++;
    }
    if (!last)
        st = TD_FAIL(TD_EPROTO, "%s: more than %d columns", c->r->where, TD__MAX_COLUMNS);
    else
        st = td__records_columns(c->r, names, cols);
    if (no_header)
        *c = begin;
done:
    td__free(names);
    return st;
}

td_status td__csv_parse(td__records *r, const td__source_opts *o, const uint8_t *data,
                        size_t nbytes)
{
    reader c = {.p = (const char *)data,
                .end = (const char *)data + nbytes,
                .delimiter = o->delimiter ? o->delimiter : ',',
                .line = 1,
                .r = r};

    if (nbytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0)
        c.p += 3;
    if (!skip_blank_lines(&c))
        return TD_FAIL(TD_EPROTO, "%s: empty", r->where);
    TD_TRY(read_header(&c, o->no_header));
    while (skip_blank_lines(&c)) {
        td__cell *cells, cell;
        int64_t line = c.line, n = 0;
        bool last = false;
        TD_TRY(td__records_row(r, line, &cells));
        for (; !last; n++) {
            TD_TRY(read_cell(&c, &cell, &last));
            if (n < r->cols)
                cells[n] = cell;
        }
        if (n != r->cols)
            return TD_FAIL(TD_EPROTO, "%s:%" PRId64 ": %" PRId64 " cells, expected %" PRId64,
                           r->where, line, n, r->cols);
    }
    if (r->rows == 0)
        return TD_FAIL(TD_EPROTO, "%s: no rows", r->where);
    return TD_OK;
}

static const td__table_format FORMAT = {
    .source = "csv",
    .expected = "a CSV file, with a header unless data.header is false",
    .parse = td__csv_parse,
};

static td_status csv_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, NULL, out);
}

static td_status csv_open_fitted(const td__source_opts *o, const char *part, const td__fit *fit,
                                 td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, fit, NULL, out);
}

static td_status csv_open_cut(const td__source_opts *o, const char *part,
                              const struct td__split *cut, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, cut, out);
}

const td__source_def td__source_csv = {
    .name = "csv",
    .help = "CSV files: a label column and feature columns, numbers or texts",
    .reads = "dir train valid test label columns features missing fit window horizon stride "
             "target delimiter no_header",
    .open = csv_open,
    .open_fitted = csv_open_fitted,
    .open_cut = csv_open_cut,
};
