/* json_tree.c -- JSON values as nodes of a tree; see json_tree.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/json_tree.h"

#include <jansson.h>
#include <string.h>

#include "base/fail.h"
#include "base/key.h"

typedef struct reader {
    td__arena *a;
    const char *source;
    int nodes;
} reader;

static td__tree *convert(reader *r, const json_t *v, int depth);

static const char *scalar_text(reader *r, const json_t *v)
{
    char text[64];

    switch (json_typeof(v)) {
    case JSON_STRING: return td__arena_strdup(r->a, json_string_value(v));
    case JSON_INTEGER:
        return td__arena_printf(r->a, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL:
        td__real_text(json_real_value(v), text, sizeof text);
        return td__arena_strdup(r->a, text);
    default: return json_is_true(v) ? "true" : "false";
    }
}

static bool fill_children(reader *r, td__tree *t, const json_t *v, int depth)
{
    const char *key;
    json_t *child;
    size_t i;

    if (json_is_array(v)) {
        json_array_foreach(v, i, child)
        {
            td__tree *c = convert(r, child, depth + 1);
            if (!c)
                return false;
            td__tree_append(t, NULL, c);
        }
        return true;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, child)
    {
        td__tree *c = convert(r, child, depth + 1);
        char *name = td__arena_strdup(r->a, key);
        if (!c || !name)
            return false;
        td__tree_append(t, name, c);
    }
    return true;
}

/* NULL: out of memory or beyond the limits of trees. */
static td__tree *convert(reader *r, const json_t *v, int depth)
{
    td__tree_kind kind = json_is_object(v)  ? TD_TREE_MAP
                         : json_is_array(v) ? TD_TREE_LIST
                         : json_is_null(v)  ? TD_TREE_NULL
                                            : TD_TREE_SCALAR;

    if (depth > TD__TREE_MAX_DEPTH || ++r->nodes > TD__TREE_MAX_NODES)
        return NULL;
    td__tree *t = td__tree_new(r->a, kind, NULL);
    if (!t)
        return NULL;
    t->source = r->source;
    if (kind == TD_TREE_SCALAR && !(t->text = scalar_text(r, v)))
        return NULL;
    return kind == TD_TREE_SCALAR || kind == TD_TREE_NULL || fill_children(r, t, v, depth) ? t
                                                                                           : NULL;
}

/* Numbers and booleans become their texts. TD_EINVAL with "source:line:column: what". */
static td_status parse_json(td__arena *a, const char *text, size_t nbytes, const char *source,
                            td__tree **out)
{
    reader r = {.a = a, .source = td__arena_strdup(a, source)};
    json_error_t e;

    *out = NULL;
    json_t *v = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &e);
    if (!v)
        return TD_FAIL(TD_EINVAL, "%s:%d:%d: %s", source, e.line, e.column, e.text);
    *out = r.source ? convert(&r, v, 0) : NULL;
    json_decref(v);
    return *out ? TD_OK : TD_FAIL(TD_EINVAL, "%s: too deep or too large", source);
}

td_status td__json_or_yaml(td__arena *a, const char *text, size_t nbytes, const char *source,
                           td__tree **out)
{
    size_t blank = 0;

    while (blank < nbytes && strchr(" \t\r\n", text[blank]) && text[blank])
        blank++;
    return blank < nbytes && text[blank] == '{'
               ? parse_json(a, text, nbytes, source, out)
               : td__tree_parse(a, text, nbytes, source, true, out);
}
