/* text.c -- a text that grows by doubling. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/control.h"
#include "base/check.h"
#include "base/fail.h"

enum { FIRST = 256 };

void td__text_fini(td__text *t)
{
    td__free(t->data);
    *t = (td__text){0};
}

void td__text_clear(td__text *t)
{
    t->used = 0;
    if (t->data)
        t->data[0] = 0;
}

/* Room for n more bytes and the final 0. */
static bool reserve(td__text *t, size_t n)
{
    size_t need, room = t->room ? t->room : FIRST;

    if (t->failed)
        return false;
    if (!td__size_add(t->used, n, &need) || !td__size_add(need, 1, &need)) {
        t->failed = true;
        return false;
    }
    if (need <= t->room)
        return true;
    while (room < need)
        if (!td__size_mul(room, 2, &room)) {
            t->failed = true;
            return false;
        }
    char *p = td__realloc(t->data, room);
    if (!p) {
        t->failed = true;
        return false;
    }
    t->data = p;
    t->room = room;
    return true;
}

void td__text_append(td__text *t, const char *s, size_t nbytes)
{
    if (!reserve(t, nbytes))
        return;
    memcpy(t->data + t->used, s, nbytes);
    t->used += nbytes;
    t->data[t->used] = 0;
}

void td__text_add(td__text *t, const char *s)
{
    td__text_append(t, s, strlen(s));
}

void td__text_printf(td__text *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(t, (size_t)n)) {
        t->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(t->data + t->used, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->used += (size_t)n;
}

/* What ends lines in YAML beside '\n': a comment or a name must not go on as something else. */
static bool add_line_end(td__text *t, const char *s)
{
    bool next = !strncmp(s, "\xc2\x85", 2), line = !strncmp(s, "\xe2\x80\xa8", 3),
         paragraph = !strncmp(s, "\xe2\x80\xa9", 3);

    if (next || line || paragraph)
        td__text_add(t, next ? "\\u0085" : line ? "\\u2028" : "\\u2029");
    return next || line || paragraph;
}

void td__text_json(td__text *t, const char *s)
{
    td__text_add(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            td__text_printf(t, "\\%c", c);
        else if (c < ' ' || c == 127)
            td__text_printf(t, "\\u%04x", c);
        else if (add_line_end(t, s))
            s += c == 0xc2 ? 1 : 2;
        else
            td__text_append(t, s, 1);
    }
    td__text_add(t, "\"");
}

void td__text_json_number(td__text *t, double v, int digits)
{
    if (isfinite(v))
        td__text_printf(t, "%.*g", digits, v);
    else
        td__text_add(t, "null");
}

void td__text_html(td__text *t, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '&': td__text_add(t, "&amp;"); break;
        case '<': td__text_add(t, "&lt;"); break;
        case '>': td__text_add(t, "&gt;"); break;
        case '"': td__text_add(t, "&quot;"); break;
        default: td__text_append(t, s, 1);
        }
    }
}

void td__text_printable(td__text *t, const char *s)
{
    while (*s) {
        size_t n = td__control_bytes(s);
        if (!n)
            td__text_append(t, s++, 1);
        for (; n; n--)
            td__text_printf(t, "\\x%02x", (unsigned char)*s++);
    }
}

td_status td__text_status(const td__text *t)
{
    if (t->failed)
        return TD_FAIL(TD_ENOMEM, "no memory for a text of more than %zu bytes", t->used);
    return TD_OK;
}

void td__text_member(td__text *t, const char *key, const char *value)
{
    td__text_printf(t, ", \"%s\": ", key);
    td__text_json(t, value ? value : "");
}

void td__text_member_number(td__text *t, const char *key, double value, int digits)
{
    td__text_printf(t, ", \"%s\": ", key);
    td__text_json_number(t, value, digits);
}

void td__text_member_int(td__text *t, const char *key, int64_t value)
{
    td__text_printf(t, ", \"%s\": %" PRId64, key, value);
}
