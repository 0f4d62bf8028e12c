/* key_values.c -- reading the values of a resolved map, one by one or into structs (keys.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "job/keys.h"
#include "tandem/optim.h"

td__tree *td__keys_node(const td__tree *map, const char *path)
{
    td__tree *t = NULL;

    while (map && *path) {
        size_t n = strcspn(path, ".");
        char word[256];
        snprintf(word, sizeof word, "%.*s", (int)n, path);
        map = t = td__tree_get(map, word);
        path += n + (path[n] == '.');
    }
    return t;
}

const char *td__keys_text(const td__tree *map, const char *path)
{
    const td__tree *t = td__keys_node(map, path);

    return t && t->kind == TD_TREE_SCALAR ? t->text : NULL;
}

int64_t td__keys_int(const td__key *keys, const td__tree *map, const char *path)
{
    const char *text = td__keys_text(map, path);

    return text ? td__key_number(td__keys_find(keys, path), text) : 0;
}

double td__keys_real(const td__tree *map, const char *path)
{
    const char *text = td__keys_text(map, path);

    return text ? strtod(text, NULL) : 0;
}

bool td__keys_bool(const td__tree *map, const char *path)
{
    const char *text = td__keys_text(map, path);

    return text && !strcmp(text, "true");
}

static int ints(td__arena *a, const td__tree *t, const int64_t **out)
{
    int n = 0;

    *out = NULL;
    if (!t || !t->count)
        return 0;
    int64_t *list = td__arena_alloc(a, (size_t)t->count * sizeof *list);
    if (!list)
        return -1;
    for (const td__tree *c = t->first; c; c = c->next)
        if (td__parse_int(c->text, &list[n]))
            n++;
    *out = list;
    return n;
}

static int texts(td__arena *a, const td__tree *t, const char *const **out)
{
    int n = 0;

    *out = NULL;
    if (!t || !t->count)
        return 0;
    const char **list = td__arena_alloc(a, (size_t)t->count * sizeof *list);
    if (!list)
        return -1;
    for (const td__tree *c = t->first; c; c = c->next)
        list[n++] = c->text;
    *out = list;
    return n;
}

int td__keys_ints(td__arena *a, const td__tree *map, const char *path, const int64_t **out)
{
    return ints(a, td__keys_node(map, path), out);
}

int td__keys_texts(td__arena *a, const td__tree *map, const char *path, const char *const **out)
{
    return texts(a, td__keys_node(map, path), out);
}

static bool truth(const td__key *k, const char *text)
{
    bool yes = k->type == TD_KEY_BOOL ? !strcmp(text, "true") : td__key_number(k, text) != 0;

    return yes != ((k->flags & TD_KEY_NOT) != 0);
}

static double real_number(const td__key *k, const char *text)
{
    double v = strtod(text, NULL) * (k->scale != 0 ? k->scale : 1);

    return v == 0 && (k->flags & TD_KEY_ZERO) ? TD_ZERO : v;
}

static int64_t count(const td__key *k, const char *text)
{
    int64_t v = k->type == TD_KEY_REAL ? (int64_t)real_number(k, text) : td__key_number(k, text);

    return v == 0 && (k->flags & TD_KEY_ZERO) ? -1 : v;
}

td_status td__key_fill(td__arena *a, const td__key *k, const td__tree *t, void *record)
{
    char *at = (char *)record + k->to.at;
    int *n = (int *)((char *)record + k->to.count);
    const char *text = t->text;

    switch (k->to.type) {
    case TD_OPTION_NONE: break;
    case TD_OPTION_BOOL: *(bool *)at = truth(k, text); break;
    case TD_OPTION_CHAR: *at = text[0]; break;
    case TD_OPTION_INT: *(int *)at = (int)count(k, text); break;
    case TD_OPTION_I64: *(int64_t *)at = count(k, text); break;
    case TD_OPTION_U64: *(uint64_t *)at = (uint64_t)count(k, text); break;
    case TD_OPTION_REAL: *(double *)at = real_number(k, text); break;
    case TD_OPTION_DTYPE: td_dtype_parse(text, (td_dtype *)at); break; /* checked: it is one */
    case TD_OPTION_TEXT:
        *(const char **)at = k->none && !strcmp(text, k->none) ? NULL : text;
        break;
    case TD_OPTION_INTS: *n = ints(a, t, (const int64_t **)at); break;
    case TD_OPTION_TEXTS: *n = texts(a, t, (const char *const **)at); break;
    case TD_OPTION_TREE: *(const td__tree **)at = t; break;
    }
    bool list = k->to.type == TD_OPTION_INTS || k->to.type == TD_OPTION_TEXTS;
    return list && *n < 0 ? TD_FAIL(TD_ENOMEM, "job: out of memory") : TD_OK;
}
