/* keys.c -- checking a tree against a table of keys (keys.h); key_values.c reads the result. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/keys.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/nearest.h"

enum {
    PATH_MAX_BYTES = 256,
    SHOWN_END = 1000000, /* larger ends of ranges are named only to who goes beyond them */
    SHOWN_WORDS = 100    /* bytes of a long list of words, where the right one is offered anyway */
};

/* The i-th word of k, "never" of "epoch=0 never=-1"; NULL after the last. */
static const char *word_at(const td__key *k, int i, char *buf, size_t nbytes)
{
    const char *w = k->words ? k->words : "";

    if (k->list)
        return k->list(i);
    for (; *w; w += strcspn(w, " "), w += *w == ' ')
        if (i-- == 0) {
            snprintf(buf, nbytes, "%.*s", (int)strcspn(w, " ="), w);
            return buf;
        }
    return NULL;
}

/* Add to a text of limited size. */
static void add(char *buf, size_t nbytes, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add(char *buf, size_t nbytes, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list args;

    va_start(args, fmt);
    vsnprintf(buf + used, nbytes - used, fmt, args);
    va_end(args);
}

static void add_words(const td__key *k, char *buf, size_t nbytes)
{
    char one[64];
    const char *w;

    for (int i = 0; (w = word_at(k, i, one, sizeof one)); i++)
        add(buf, nbytes, "%s%s", i ? ", " : "", w);
}

static void add_range(const td__key *k, char *buf, size_t nbytes)
{
    if (k->hi != 0 && k->hi < SHOWN_END)
        add(buf, nbytes, " %s %.15g %s %.15g", k->flags & TD_KEY_ABOVE ? "above" : "from", k->lo,
            k->flags & TD_KEY_BELOW ? "to below" : "to", k->hi);
    else if (k->lo > -1e300)
        add(buf, nbytes, " %s %.15g", k->flags & TD_KEY_ABOVE ? "above" : "of at least", k->lo);
}

char *td__key_expected(const td__key *k, char *buf, size_t nbytes)
{
    static const char *const KINDS[] = {
        [TD_KEY_INT] = "a whole number",
        [TD_KEY_REAL] = "a number",
        [TD_KEY_BOOL] = "true or false",
        [TD_KEY_TEXT] = "a text",
        [TD_KEY_WORD] = "one of ",
        [TD_KEY_INTS] = "a list of whole numbers",
        [TD_KEY_TEXTS] = "a list of texts",
        [TD_KEY_WORDS] = "a list of ",
        [TD_KEY_TREE] = "a name, a list or a map",
    };

    snprintf(buf, nbytes, "%s", KINDS[k->type]);
    if (k->type == TD_KEY_INT || k->type == TD_KEY_REAL || k->type == TD_KEY_INTS)
        add_range(k, buf, nbytes);
    if (k->type == TD_KEY_INT && k->words)
        add(buf, nbytes, ", or ");
    if (k->words || k->list)
        add_words(k, buf, nbytes);
    if (k->flags & TD_KEY_PAIR)
        add(buf, nbytes, ", or a list of two");
    return buf;
}

static const struct {
    const char *theirs, *ours;
} SYNONYMS[] = {
#define TD_SYNONYM(theirs, ours) {theirs, ours},
#include "job/synonyms.def"
};

/* `--batch-size` and `Batch_Size` are batch_size. */
static bool same_word(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (tolower((unsigned char)(*a == '-' ? '_' : *a)) != *b)
            return false;
    return *a == *b;
}

const char *td__synonym(const char *word, int *at)
{
    for (; *at < TD_LEN(SYNONYMS); ++*at)
        if (same_word(word, SYNONYMS[*at].theirs))
            return SYNONYMS[(*at)++].ours;
    return NULL;
}

static bool is_word(const td__key *k, const char *text)
{
    char one[64];
    const char *w;

    for (int i = 0; (w = word_at(k, i, one, sizeof one)); i++)
        if (!strcmp(w, text))
            return true;
    return false;
}

/* "; did you mean adamw?" if a word of k means the same in another tool, or is near. */
static void add_nearest_word(const td__key *k, const char *found, char *buf, size_t nbytes)
{
    td__nearest n = {.word = found};
    char one[64], best[64];
    const char *w, *ours;

    for (int at = 0; (ours = td__synonym(found, &at));)
        if (is_word(k, ours)) {
            add(buf, nbytes, "; did you mean %s?", ours);
            return;
        }

    for (int i = 0; (w = word_at(k, i, one, sizeof one)); i++) {
        const char *before = n.best;
        td__nearest_offer(&n, w);
        if (n.best != before || n.best == one) {
            snprintf(best, sizeof best, "%s", w);
            n.best = best;
        }
    }
    if (n.best)
        add(buf, nbytes, "; did you mean %s?", n.best);
}

static bool parse_real(const char *text, double *out)
{
    char *end;

    if (!strchr("+-.0123456789", text[0]) || strpbrk(text, "xXpPnN"))
        return false;
    *out = strtod(text, &end);
    return !*end && end != text && isfinite(*out);
}

static td_status unexpected(const td__key *k, const char *prefix, const td__tree *t)
{
    char want[512] = "", hint[96] = "";
    double v;

    td__key_expected(k, want, sizeof want);
    if (t->kind == TD_TREE_SCALAR && (k->words || k->list))
        add_nearest_word(k, t->text, hint, sizeof hint);
    if (hint[0] && strlen(want) > SHOWN_WORDS) {
        want[SHOWN_WORDS] = '\0';
        char *comma = strrchr(want, ',');
        if (comma)
            *comma = '\0';
        add(want, sizeof want, ", ...");
    }
    if (t->kind == TD_TREE_SCALAR && k->hi >= SHOWN_END && parse_real(t->text, &v) && v > k->hi)
        add(want, sizeof want, " and at most %.15g", k->hi);
    return TD_FAIL(TD_EINVAL, "%s: %s%s: expected %s, found %s%s", td__tree_where(t).text, prefix,
                   k->path, want, td__tree_found(t).text, hint);
}

/* A scalar in its canonical spelling; false if it is not what k expects. */
static bool canonical(const td__key *k, const char *text, char *buf, size_t nbytes)
{
    static const char *const YES[] = {"true", "yes", "on"}, *const NO[] = {"false", "no", "off"};
    int64_t i;
    double d;

    switch (k->type) {
    case TD_KEY_INT:
    case TD_KEY_INTS:
        if (!td__parse_int(text, &i) || !td__key_in_range(k, (double)i))
            return k->type == TD_KEY_INT && is_word(k, text) &&
                   snprintf(buf, nbytes, "%s", text) > 0;
        return snprintf(buf, nbytes, "%lld", (long long)i) > 0;
    case TD_KEY_REAL:
        if (!parse_real(text, &d) || !td__key_in_range(k, d))
            return false;
        td__real_text(d, buf, nbytes);
        return true;
    case TD_KEY_BOOL:
        for (int n = 0; n < 3; n++)
            if (!strcmp(text, YES[n]) || !strcmp(text, NO[n]))
                return snprintf(buf, nbytes, "%s", strcmp(text, YES[n]) ? "false" : "true") > 0;
        return false;
    case TD_KEY_WORD:
    case TD_KEY_WORDS: return is_word(k, text) && snprintf(buf, nbytes, "%s", text) > 0;
    default: return snprintf(buf, nbytes, "%s", text) >= 0 && strlen(text) < nbytes;
    }
}

static bool is_list_type(const td__key *k)
{
    return k->type == TD_KEY_INTS || k->type == TD_KEY_TEXTS || k->type == TD_KEY_WORDS;
}

static td_status check_scalar(td__arena *a, const td__key *k, const char *prefix, const td__tree *t,
                              td__tree **out)
{
    char text[4096];

    if (t->kind != TD_TREE_SCALAR || !canonical(k, t->text, text, sizeof text))
        return unexpected(k, prefix, t);
    *out = td__tree_scalar(a, text, t);
    return *out ? TD_OK : TD_FAIL(TD_ENOMEM, "job: out of memory");
}

static td_status check_value(td__arena *a, const td__key *k, const char *prefix, const td__tree *t,
                             td__tree **out)
{
    if (k->type == TD_KEY_TREE) {
        *out = td__arena_alloc(a, sizeof **out);
        if (!*out)
            return TD_FAIL(TD_ENOMEM, "job: out of memory");
        **out = *t;
        return TD_OK;
    }
    bool pair = (k->flags & TD_KEY_PAIR) && t->kind == TD_TREE_LIST && t->count == 2;
    if (!is_list_type(k) && !pair)
        return check_scalar(a, k, prefix, t, out);
    if (t->kind == TD_TREE_MAP)
        return unexpected(k, prefix, t);
    *out = td__tree_new(a, TD_TREE_LIST, t);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    for (const td__tree *c = t->kind == TD_TREE_LIST ? t->first : t; c; c = c->next) {
        td__tree *item;
        TD_TRY(check_scalar(a, k, prefix, c, &item));
        td__tree_append(*out, NULL, item);
        if (t->kind != TD_TREE_LIST)
            break;
    }
    return TD_OK;
}

const td__key *td__keys_find(const td__key *keys, const char *path)
{
    for (; keys->path; keys++)
        if (!strcmp(keys->path, path))
            return keys;
    return NULL;
}

/* Is path the first part of some key's path? main: its key of the flag TD_KEY_MAIN. */
static bool is_section(const td__key *keys, const char *path, const td__key **main)
{
    size_t n = strlen(path);
    bool found = false;

    *main = NULL;
    for (; keys->path; keys++)
        if (!strncmp(keys->path, path, n) && keys->path[n] == '.') {
            found = true;
            if ((keys->flags & TD_KEY_MAIN) && !strchr(keys->path + n + 1, '.'))
                *main = keys;
        }
    return found;
}

/* The key or section of the table that another tool calls `word`; NULL if there is none. */
static const char *meant_by(const td__key *keys, const char *word)
{
    const td__key *main;
    const char *ours;

    for (int at = 0; (ours = td__synonym(word, &at));)
        if (td__keys_find(keys, ours) || is_section(keys, ours, &main))
            return ours;
    return NULL;
}

/* "; did you mean train.batch?", or the names that there are. */
static td_status unknown(const td__key *keys, const char *prefix, const char *path,
                         const td__tree *t)
{
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
    size_t n = (size_t)(last - path), used = 0;
    td__nearest near = {.word = path};
    char hint[400] = "", names[320] = "";
    const char *ours = meant_by(keys, last);

    if (ours)
        return TD_FAIL(TD_EINVAL, "%s: %s%s: unknown key; did you mean %s%s?",
                       td__tree_where_key(t).text, prefix, path, prefix, ours);
    /* Near within the section; else the same name elsewhere. */
    for (const td__key *k = keys; k->path; k++)
        if (!strncmp(k->path, path, n)) {
            size_t len = strcspn(k->path + n, ".");
            char one[PATH_MAX_BYTES];
            snprintf(one, sizeof one, "%.*s", (int)(n + len), k->path);
            td__nearest word = {.word = last};
            td__nearest_offer(&word, one + n);
            if (word.best && (!near.best || word.distance < near.distance)) {
                near.best = k->path;
                near.distance = word.distance;
                used = n + len;
            }
            if (!strstr(names, one + n))
                add(names, sizeof names, "%s%s", names[0] ? ", " : "", one + n);
        }
    for (const td__key *k = keys; k->path && !near.best; k++) {
        const char *tail = strrchr(k->path, '.');
        if (tail && !strcmp(tail + 1, last)) {
            near.best = k->path;
            used = strlen(k->path);
        }
    }
    if (near.best)
        snprintf(hint, sizeof hint, "did you mean %s%.*s?", prefix, (int)used, near.best);
    else
        snprintf(hint, sizeof hint, "known: %s", names);
    return TD_FAIL(TD_EINVAL, "%s: %s%s: unknown key; %s", td__tree_where_key(t).text, prefix, path,
                   hint);
}

/* All that is given has a key, and sections are maps. */
static td_status check_known(const td__key *keys, const char *prefix, const char *section,
                             const td__tree *map)
{
    for (const td__tree *t = map->first; t; t = t->next) {
        char path[PATH_MAX_BYTES];
        const td__key *main;
        snprintf(path, sizeof path, "%s%s%.100s", section, *section ? "." : "", t->key);
        if (td__keys_find(keys, path))
            continue;
        if (!is_section(keys, path, &main))
            return unknown(keys, prefix, path, t);
        if (t->kind == TD_TREE_MAP)
            TD_TRY(check_known(keys, prefix, path, t));
        else if (t->kind != TD_TREE_NULL && !(main && t->kind == TD_TREE_SCALAR))
            return TD_FAIL(TD_EINVAL, "%s: %s%s: expected a map of keys, found %s",
                           td__tree_where(t).text, prefix, path, td__tree_found(t).text);
    }
    return TD_OK;
}

/* What is given for a path; a section's scalar is its main key. *at: the closest node there is. */
static const td__tree *find_given(const td__key *k, const td__tree *given, const td__tree **at)
{
    const td__tree *t = given;
    const char *p = k->path;

    while (t && *p) {
        size_t n = strcspn(p, ".");
        char word[PATH_MAX_BYTES];
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        if (t->kind == TD_TREE_SCALAR && (k->flags & TD_KEY_MAIN) && !p[n])
            return t;
        t = td__tree_get(t, word);
        if (t && t->kind != TD_TREE_NULL)
            *at = t;
        p += n + (p[n] == '.');
    }
    return t && t->kind != TD_TREE_NULL ? t : NULL;
}

/* Put `value` under the dotted path, making the maps on the way. */
static td_status put(td__arena *a, td__tree *map, const char *path, const td__tree *at,
                     td__tree *value)
{
    for (;;) {
        size_t n = strcspn(path, ".");
        char *word = td__arena_printf(a, "%.*s", (int)n, path);
        if (!word)
            return TD_FAIL(TD_ENOMEM, "job: out of memory");
        if (!path[n]) {
            td__tree_put(map, word, value);
            return TD_OK;
        }
        td__tree *next = td__tree_get(map, word);
        if (!next) {
            next = td__tree_new(a, TD_TREE_MAP, at);
            if (!next)
                return TD_FAIL(TD_ENOMEM, "job: out of memory");
            td__tree_append(map, word, next);
        }
        map = next;
        path += n + 1;
    }
}

/* The name of k with this value in digests; NULL: its own. */
static const char *digest_key(const td__key *k, const td__tree *value)
{
    char def[256];

    if ((k->flags & TD_KEY_LATER) && (k->flags & TD_KEY_FREE) && !k->def)
        return "";
    if ((k->flags & TD_KEY_LATER) && k->def && value->kind == TD_TREE_SCALAR &&
        canonical(k, k->def, def, sizeof def) && !strcmp(def, value->text))
        return "";
    return k->was;
}

td_status td__keys_resolve(td__arena *a, const td__key *keys, const char *prefix,
                           const td__tree *given, const td__tree *at, td__tree **out)
{
    *out = td__tree_new(a, TD_TREE_MAP, at);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    if (given && given->kind == TD_TREE_MAP)
        TD_TRY(check_known(keys, prefix, "", given));
    for (const td__key *k = keys; k->path; k++) {
        const td__tree *near = at, *t = find_given(k, given, &near);
        td__tree *value = NULL;
        if (!t && (k->flags & TD_KEY_REQUIRED)) {
            char want[512];
            return TD_FAIL(TD_EINVAL, "%s: %s%s: missing; expected %s", td__tree_where(near).text,
                           prefix, k->path, td__key_expected(k, want, sizeof want));
        }
        if (!t && !k->def)
            continue;
        if (!t) {
            td__tree *def;
            TD_TRY(td__tree_parse(a, k->def, strlen(k->def), "default", false, &def));
            for (td__tree *c = def; c; c = c == def ? def->first : c->next) {
                c->source = near->source;
                c->line = near->line;
                c->column = near->column;
            }
            t = def;
        }
        TD_TRY(check_value(a, k, prefix, t, &value));
        value->digest_key = digest_key(k, value);
        TD_TRY(put(a, *out, k->path, near, value));
    }
    return TD_OK;
}
