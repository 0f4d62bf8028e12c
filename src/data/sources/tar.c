/* tar.c -- see tar.h. An archive is a row of blocks of 512 bytes: a header with name, size and kind
 * of a file, then its bytes, filled up to a whole block; zeros end it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sources/tar.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

enum { BLOCK = 512, NAME = 100, SIZE_AT = 124, SUM_AT = 148, KIND_AT = 156, PREFIX_AT = 345 };

/* Octal, or with the highest bit set, 95 bits of a binary number. */
static bool read_number(const uint8_t *p, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;

    if (p[0] & 0x80) {
        for (i = 1; i < n - 8; i++)
            if (p[i])
                return false;
        for (; i < n; i++)
            v = v << 8 | p[i];
        *out = v;
        return p[0] == 0x80;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        v = v << 3 | (uint64_t)(p[i] - '0');
    *out = v;
    return i == n || p[i] == 0 || p[i] == ' ';
}

static bool sum_is_right(const uint8_t *h)
{
    uint64_t want;
    unsigned sum = 0;

    for (int i = 0; i < BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + 8 ? ' ' : h[i];
    return read_number(h + SUM_AT, 8, &want) && want == sum;
}

static void set_name(td__tar *t, const uint8_t *h)
{
    const char *prefix = (const char *)h + PREFIX_AT;
    bool ustar = !memcmp(h + 257, "ustar\0", 6) && *prefix;

    snprintf(t->name, sizeof t->name, "%.*s%s%.*s", ustar ? 155 : 0, prefix, ustar ? "/" : "", NAME,
             (const char *)h);
}

/* "LENGTH path=NAME\n" among the lines of a pax header, which may have none: false. */
static bool pax_name(td__tar *t, const uint8_t *p, size_t n)
{
    bool found = false;

    while (n) {
        size_t digits = 0, length = 0;
        for (; digits < n && digits < 8 && p[digits] >= '0' && p[digits] <= '9'; digits++)
            length = length * 10 + (size_t)(p[digits] - '0');
        if (digits == n || p[digits] != ' ' || length <= digits + 1 || length > n)
            break;
        const char *line = (const char *)p + digits + 1;
        size_t nbytes = length - digits - 1;
        if (nbytes > 6 && !memcmp(line, "path=", 5) && line[nbytes - 1] == '\n') {
            snprintf(t->name, sizeof t->name, "%.*s", (int)(nbytes - 6), line + 5);
            found = true;
        }
        p += length;
        n -= length;
    }
    return found;
}

static bool is_zero(const uint8_t *p)
{
    for (int i = 0; i < BLOCK; i++)
        if (p[i])
            return false;
    return true;
}

td_status td__tar_next(td__tar *t, bool *end)
{
    bool named = false;

    *end = false;
    for (;;) {
        const uint8_t *h = t->data + t->at;
        uint64_t size;
        if (t->at == t->nbytes || (t->nbytes - t->at >= BLOCK && is_zero(h))) {
            *end = true;
            return TD_OK;
        }
        if (t->nbytes - t->at < BLOCK || !sum_is_right(h) || !read_number(h + SIZE_AT, 12, &size))
            return TD_FAIL(TD_EPROTO, "%s: not a tar archive, or damaged at byte %zu", t->where,
                           t->at);
        t->at += BLOCK;
        if (size > t->nbytes - t->at)
            return TD_FAIL(TD_EPROTO, "%s: it ends within the file at byte %zu", t->where, t->at);
        t->file = t->data + t->at;
        t->file_nbytes = (size_t)size;
        size_t padded = ((size_t)size + BLOCK - 1) / BLOCK * BLOCK;
        t->at = padded < t->nbytes - t->at ? t->at + padded : t->nbytes;
        char kind = (char)h[KIND_AT];
        if (kind == 'L' || kind == 'x') { /* about the next file */
            if (kind == 'L') {
                snprintf(t->name, sizeof t->name, "%.*s",
                         (int)(size < TD__TAR_NAME ? size : TD__TAR_NAME - 1),
                         (const char *)t->file);
                named = true;
            } else if (pax_name(t, t->file, t->file_nbytes)) {
                named = true;
            }
            continue;
        }
        if (!named)
            set_name(t, h);
        if (kind == '0' || kind == 0 || kind == '7')
            return TD_OK;
        named = false;
    }
}
