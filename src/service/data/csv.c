/* csv.c -- see csv.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/data/csv.h"

#include <string.h>

void td__csv_init(td__csv *c, const void *data, size_t nbytes)
{
    *c = (td__csv){.at = data, .end = (const char *)data + nbytes, .next_line = 1};
}

void td__csv_fini(td__csv *c)
{
    td__text_fini(&c->row);
}

static bool blank(char ch)
{
    return ch == ' ' || ch == '\t';
}

/* A quoted part: up to its closing quote. */
static void read_quoted(td__csv *c)
{
    c->at++;
    while (c->at < c->end) {
        char ch = *c->at++;
        bool next_quote = c->at < c->end && *c->at == '"';
        bool next_escape = c->at < c->end && *c->at == '\\';

        if (ch == '"' && !next_quote)
            return;
        if (ch == '"' || (ch == '\\' && (next_quote || next_escape)))
            ch = *c->at++;
        c->next_line += ch == '\n';
        td__text_append(&c->row, &ch, 1);
    }
}

static void read_field(td__csv *c)
{
    while (c->at < c->end && blank(*c->at))
        c->at++;
    if (c->at < c->end && *c->at == '"')
        read_quoted(c);
    for (; c->at < c->end && *c->at != ',' && *c->at != '\n'; c->at++)
        if (*c->at != '\r') /* a quote within a field that began without one is part of it */
            td__text_append(&c->row, c->at, 1);
    td__text_append(&c->row, "", 1);
    c->n_fields++;
}

bool td__csv_next(td__csv *c)
{
    do {
        if (c->at == c->end)
            return false;
        td__text_clear(&c->row);
        c->n_fields = 0;
        c->line = c->next_line;
        read_field(c);
        while (c->at < c->end && *c->at == ',') {
            c->at++;
            read_field(c);
        }
        if (c->at < c->end)
            c->at++; /* the newline */
        c->next_line++;
    } while (c->n_fields == 1 && c->row.used == 1);
    return !c->row.failed;
}

const char *td__csv_field(const td__csv *c, int i)
{
    const char *p = c->row.data;

    if (i >= c->n_fields)
        return "";
    while (i--)
        p += strlen(p) + 1;
    return p;
}

static void write_field(td__file_out *f, const char *s)
{
    td__file_out_write(f, "\"", 1);
    for (const char *quote; (quote = strchr(s, '"')) != NULL; s = quote + 1) {
        td__file_out_write(f, s, (size_t)(quote + 1 - s));
        td__file_out_write(f, "\"", 1);
    }
    td__file_out_write(f, s, strlen(s));
    td__file_out_write(f, "\"", 1);
}

void td__csv_write(td__file_out *f, const char *a, const char *b)
{
    write_field(f, a);
    td__file_out_write(f, ",", 1);
    write_field(f, b);
    td__file_out_write(f, "\n", 1);
}
