/* key.c -- values of a row, from text and to text; see key.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/key.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool td__parse_int(const char *text, int64_t *out)
{
    char *end;

    if (!(text[0] == '-' || (text[0] >= '0' && text[0] <= '9')))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && end != text && !errno;
}

void td__real_text(double v, char *buf, size_t nbytes)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, nbytes, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            return;
    }
}

/* The first of the words "epoch=0 never=-1" that is `text` or, if that is NULL, means `number`;
 * *length: of the name. NULL if there is none. */
static const char *find_word(const td__key *k, const char *text, int64_t number, int *length)
{
    const char *w = k && k->words && strchr(k->words, '=') ? k->words : "";

    for (; *w; w += strcspn(w, " "), w += *w == ' ') {
        size_t n = strcspn(w, " =");
        *length = (int)n;
        if (text ? n == strlen(text) && !strncmp(w, text, n)
                 : w[n] == '=' && strtoll(w + n + 1, NULL, 10) == number)
            return w;
    }
    return NULL;
}

int64_t td__key_number(const td__key *k, const char *text)
{
    int64_t v = 0;
    int n;

    if (td__parse_int(text, &v))
        return v;
    const char *w = find_word(k, text, 0, &n);
    return w && w[n] == '=' ? strtoll(w + n + 1, NULL, 10) : 0;
}

double td__key_real(const td__key *k, const char *text)
{
    return k->type == TD_KEY_REAL   ? strtod(text, NULL)
           : k->type == TD_KEY_BOOL ? strcmp(text, "true") == 0
                                    : (double)td__key_number(k, text);
}

bool td__key_in_range(const td__key *k, double v)
{
    double hi = k->hi != 0 ? k->hi : (double)INFINITY;

    return (k->flags & TD_KEY_ABOVE ? v > k->lo : v >= k->lo) &&
           (k->flags & TD_KEY_BELOW ? v < hi : v <= hi);
}

static void number_text(const td__key *k, int64_t v, char *buf, size_t nbytes)
{
    int n;
    const char *w = find_word(k, NULL, v, &n);

    if (w)
        snprintf(buf, nbytes, "%.*s", n, w);
    else if (k->scale != 0)
        td__real_text((double)v / k->scale, buf, nbytes);
    else
        snprintf(buf, nbytes, "%" PRId64, v);
}

static void list_text(const td__key *k, const void *record, char *buf, size_t nbytes)
{
    const char *at = (const char *)record + k->to.at;
    int n = *(const int *)((const char *)record + k->to.count), used = 0;

    snprintf(buf, nbytes, "none");
    for (int i = 0; i < n && (size_t)used < nbytes; i++)
        used += k->to.type == TD_OPTION_INTS
                    ? snprintf(buf + used, nbytes - (size_t)used, "%s%" PRId64, i ? ", " : "",
                               (*(const int64_t *const *)at)[i])
                    : snprintf(buf + used, nbytes - (size_t)used, "%s%s", i ? ", " : "",
                               (*(const char *const *const *)at)[i]);
}

char *td__key_text(const td__key *k, const void *record, char *buf, size_t nbytes)
{
    const char *at = (const char *)record + k->to.at;

    switch (k->to.type) {
    case TD_OPTION_NONE:
    case TD_OPTION_TREE: buf[0] = '\0'; break;
    case TD_OPTION_BOOL: {
        bool yes = *(const bool *)at != ((k->flags & TD_KEY_NOT) != 0);
        if (k->type == TD_KEY_BOOL)
            snprintf(buf, nbytes, "%s", yes ? "true" : "false");
        else
            number_text(k, yes, buf, nbytes);
        break;
    }
    case TD_OPTION_CHAR: snprintf(buf, nbytes, "%c", *at); break;
    case TD_OPTION_INT: number_text(k, *(const int *)at, buf, nbytes); break;
    case TD_OPTION_I64: number_text(k, *(const int64_t *)at, buf, nbytes); break;
    case TD_OPTION_U64: number_text(k, (int64_t) * (const uint64_t *)at, buf, nbytes); break;
    case TD_OPTION_REAL:
        if ((k->flags & TD_KEY_ZERO) && *(const double *)at == 0)
            snprintf(buf, nbytes, "%s", signbit(*(const double *)at) ? "0" : "the default");
        else
            td__real_text(*(const double *)at, buf, nbytes);
        break;
    case TD_OPTION_DTYPE: snprintf(buf, nbytes, "%s", td_dtype_name(*(const td_dtype *)at)); break;
    case TD_OPTION_TEXT: {
        const char *text = *(const char *const *)at;
        snprintf(buf, nbytes, "%s", text ? text : k->none ? k->none : "none");
        break;
    }
    case TD_OPTION_INTS:
    case TD_OPTION_TEXTS: list_text(k, record, buf, nbytes); break;
    }
    return buf;
}

bool td__has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *w = words; *w; w += strcspn(w, " "), w += *w == ' ')
        if (strcspn(w, " ") == n && !strncmp(w, word, n))
            return true;
    return false;
}
