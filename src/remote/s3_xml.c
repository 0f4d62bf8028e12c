/* s3_xml.c -- elements and texts of S3's answers (see s3_xml.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/s3_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void td__s3_xml_init(td__s3_xml *x, const td__text *answer)
{
    const char *data = answer->data ? answer->data : "";
    *x = (td__s3_xml){.at = data, .end = data + answer->used};
}

/* <name> ... </name> in [from, to): *begin and *finish are its inside. */
static bool element(const char *from, const char *to, const char *name, const char **begin,
                    const char **finish)
{
    char open[64], close[64];
    int n = snprintf(open, sizeof open, "<%s>", name);
    int m = snprintf(close, sizeof close, "</%s>", name);
    const char *a = memmem(from, (size_t)(to - from), open, (size_t)n);
    if (!a)
        return false;
    a += n;
    const char *b = memmem(a, (size_t)(to - a), close, (size_t)m);
    *begin = a;
    *finish = b;
    return b != NULL;
}

bool td__s3_xml_next(td__s3_xml *x, const char *name)
{
    if (!element(x->at, x->end, name, &x->begin, &x->finish))
        return false;
    x->at = x->finish;
    return true;
}

/* The character of "&...;" at `at`, at most 0x7f as a number; its bytes, or 0. */
static size_t entity(const char *at, const char *end, char *out)
{
    static const struct {
        const char *text;
        char c;
    } KNOWN[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t room = (size_t)(end - at);

    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        size_t n = strlen(KNOWN[i].text);
        if (n <= room && memcmp(at, KNOWN[i].text, n) == 0) {
            *out = KNOWN[i].c;
            return n;
        }
    }
    char digits[8] = "";
    const char *semicolon = memchr(at, ';', room < 8 ? room : 8);
    if (!semicolon || semicolon - at < 3 || at[1] != '#')
        return 0;
    memcpy(digits, at + 2, (size_t)(semicolon - at - 2));
    char *stop;
    unsigned long v =
        digits[0] == 'x' ? strtoul(digits + 1, &stop, 16) : strtoul(digits, &stop, 10);
    if (*stop || v == 0 || v > 0x7f)
        return 0;
    *out = (char)v;
    return (size_t)(semicolon + 1 - at);
}

static bool copy_text(const char *from, const char *to, char *out, size_t nbytes)
{
    size_t used = 0;

    while (from < to && used + 1 < nbytes) {
        size_t n = *from == '&' ? entity(from, to, &out[used]) : 0;
        if (!n && *from == '&')
            return false;
        if (!n)
            out[used] = *from;
        used++;
        from += n ? n : 1;
    }
    out[used] = '\0';
    return from == to;
}

bool td__s3_xml_text(const td__s3_xml *x, const char *name, char *out, size_t nbytes)
{
    const char *begin, *finish;
    return element(x->begin, x->finish, name, &begin, &finish) &&
           copy_text(begin, finish, out, nbytes);
}

bool td__s3_xml_whole_text(const td__text *answer, const char *name, char *out, size_t nbytes)
{
    const char *begin, *finish, *data = answer->data ? answer->data : "";
    return element(data, data + answer->used, name, &begin, &finish) &&
           copy_text(begin, finish, out, nbytes);
}
