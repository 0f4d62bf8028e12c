/* tree.c -- libyaml's events into a tree (tree.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/tree.h"

#include <string.h>
#include <yaml.h>

#include "base/fail.h"

typedef struct reader {
    td__arena *arena;
    const char *source;
    bool positions;
    int n_nodes;
    yaml_parser_t parser;
} reader;

td__tree *td__tree_new(td__arena *a, td__tree_kind kind, const td__tree *where)
{
    td__tree *t = td__arena_alloc(a, sizeof *t);

    if (!t)
        return NULL;
    t->kind = kind;
    if (where) {
        t->source = where->source;
        t->line = t->key_line = where->line;
        t->column = t->key_column = where->column;
    }
    return t;
}

td__tree *td__tree_scalar(td__arena *a, const char *text, const td__tree *where)
{
    td__tree *t = td__tree_new(a, TD_TREE_SCALAR, where);

    if (t)
        t->text = td__arena_strdup(a, text);
    return t && t->text ? t : NULL;
}

td__tree *td__tree_get(const td__tree *map, const char *key)
{
    if (!map || map->kind != TD_TREE_MAP)
        return NULL;
    for (td__tree *c = map->first; c; c = c->next)
        if (!strcmp(c->key, key))
            return c;
    return NULL;
}

td__tree *td__tree_at(const td__tree *list, int i)
{
    td__tree *c = list->first;

    while (c && i-- > 0)
        c = c->next;
    return c;
}

void td__tree_append(td__tree *parent, const char *key, td__tree *child)
{
    child->key = key;
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
}

void td__tree_replace_after(td__tree *parent, td__tree *before, td__tree *child)
{
    td__tree **link = before ? &before->next : &parent->first;
    const td__tree *old = *link;

    *link = child;
    child->next = old->next;
    child->key = old->key;
    if (parent->last == old)
        parent->last = child;
}

void td__tree_replace(td__tree *parent, const td__tree *old, td__tree *child)
{
    td__tree *before = NULL;

    for (td__tree *t = parent->first; t != old; t = t->next)
        before = t;
    td__tree_replace_after(parent, before, child);
}

void td__tree_put(td__tree *map, const char *key, td__tree *child)
{
    const td__tree *old = td__tree_get(map, key);

    if (old)
        td__tree_replace(map, old, child);
    else
        td__tree_append(map, key, child);
}

void td__tree_remove(td__tree *parent, const td__tree *child)
{
    td__tree *before = NULL, **link = &parent->first;

    for (; *link != child; link = &(*link)->next)
        before = *link;
    *link = child->next;
    if (parent->last == child)
        parent->last = before;
    parent->count--;
}

static td__tree_place place(const td__tree *t, int line, int column)
{
    td__tree_place p;
    const char *source = t->source ? t->source : "job";
    bool is_long = strlen(source) > 200;

    if (line > 0)
        snprintf(p.text, sizeof p.text, "%s%s:%d:%d", is_long ? "..." : "",
                 is_long ? source + strlen(source) - 200 : source, line, column);
    else
        snprintf(p.text, sizeof p.text, "%.200s%s", source, is_long ? "..." : "");
    return p;
}

td__tree_place td__tree_where(const td__tree *t)
{
    return place(t, t->line, t->column);
}

td__tree_place td__tree_where_key(const td__tree *t)
{
    return place(t, t->key_line, t->key_column);
}

td__tree_place td__tree_found(const td__tree *t)
{
    enum { SHOWN = 60 };
    td__tree_place p;
    size_t n = 0;

    if (t->kind == TD_TREE_LIST || t->kind == TD_TREE_MAP || t->kind == TD_TREE_NULL ||
        !t->text[0]) {
        snprintf(p.text, sizeof p.text, "%s",
                 t->kind == TD_TREE_LIST   ? "a list"
                 : t->kind == TD_TREE_MAP  ? "a map"
                 : t->kind == TD_TREE_NULL ? "nothing"
                                           : "an empty text");
        return p;
    }
    for (; t->text[n] && n < SHOWN; n++) {
        unsigned char c = (unsigned char)t->text[n];
        p.text[n] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    snprintf(p.text + n, sizeof p.text - n, "%s", t->text[n] ? "..." : "");
    return p;
}

static td_status out_of_memory(const reader *r)
{
    return TD_FAIL(TD_ENOMEM, "%s: out of memory", r->source);
}

/* A failure at a mark of the parser. */
static td_status refuse(const reader *r, yaml_mark_t mark, const char *what)
{
    td__tree at = {.source = r->source,
                   .line = r->positions ? (int)mark.line + 1 : 0,
                   .column = (int)mark.column + 1};

    return TD_FAIL(TD_EINVAL, "%s: %s", td__tree_where(&at).text, what);
}

static td_status next_event(reader *r, yaml_event_t *e)
{
    if (yaml_parser_parse(&r->parser, e))
        return TD_OK;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return out_of_memory(r);
    char text[160];
    yaml_mark_t mark = r->parser.problem_mark;
    if (r->parser.error == YAML_READER_ERROR)
        mark = r->parser.mark;
    snprintf(text, sizeof text, "not valid YAML: %s",
             r->parser.problem ? r->parser.problem : "unreadable");
    return refuse(r, mark, text);
}

/* What the event says that we do not take: anchors, aliases, tags. */
static td_status check_event(const reader *r, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return refuse(r, e->start_mark, "aliases (*name) are not supported; write the value out");
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
        break;
    default: break;
    }
    if (anchor)
        return refuse(r, e->start_mark, "anchors (&name) are not supported");
    if (tag)
        return refuse(r, e->start_mark, "tags (!name) are not supported");
    return TD_OK;
}

static void set_position(const reader *r, td__tree *t, yaml_mark_t mark)
{
    t->source = r->source;
    t->line = t->key_line = r->positions ? (int)mark.line + 1 : 0;
    t->column = t->key_column = (int)mark.column + 1;
}

static bool is_null(const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;

    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*s || !strcmp(s, "~") || !strcmp(s, "null"));
}

static td_status scalar_text(reader *r, const yaml_event_t *e, const char **out)
{
    const char *s = (const char *)e->data.scalar.value;

    if (strlen(s) != e->data.scalar.length)
        return refuse(r, e->start_mark, "a text with a zero byte");
    *out = td__arena_strdup(r->arena, s);
    return *out ? TD_OK : out_of_memory(r);
}

static td_status read_node(reader *r, const yaml_event_t *e, int depth, td__tree **out);

static td_status read_list(reader *r, td__tree *list, int depth)
{
    for (;;) {
        yaml_event_t e;
        td__tree *child = NULL;
        TD_TRY(next_event(r, &e));
        bool end = e.type == YAML_SEQUENCE_END_EVENT;
        td_status st = end ? TD_OK : read_node(r, &e, depth + 1, &child);
        yaml_event_delete(&e);
        if (end || st)
            return st;
        td__tree_append(list, NULL, child);
    }
}

/* The key's event -> its text. */
static td_status read_key(reader *r, const td__tree *map, const yaml_event_t *e, const char **key)
{
    TD_TRY(check_event(r, e));
    if (e->type != YAML_SCALAR_EVENT)
        return refuse(r, e->start_mark, "a key must be a word");
    if (map->count >= TD__TREE_MAX_KEYS)
        return refuse(r, e->start_mark, "too many keys in a map");
    TD_TRY(scalar_text(r, e, key));
    const td__tree *twin = td__tree_get(map, *key);
    if (!twin)
        return TD_OK;
    char text[160];
    if (twin->key_line > 0)
        snprintf(text, sizeof text, "%.60s: given twice; the first is in line %d", *key,
                 twin->key_line);
    else
        snprintf(text, sizeof text, "%.60s: given twice", *key);
    return refuse(r, e->start_mark, text);
}

static td_status read_map(reader *r, td__tree *map, int depth)
{
    for (;;) {
        yaml_event_t e;
        const char *key = NULL;
        td__tree *child = NULL;
        TD_TRY(next_event(r, &e));
        yaml_mark_t mark = e.start_mark;
        bool end = e.type == YAML_MAPPING_END_EVENT;
        td_status st = end ? TD_OK : read_key(r, map, &e, &key);
        yaml_event_delete(&e);
        if (end || st)
            return st;
        TD_TRY(next_event(r, &e));
        st = read_node(r, &e, depth + 1, &child);
        yaml_event_delete(&e);
        if (st)
            return st;
        child->key_line = r->positions ? (int)mark.line + 1 : 0;
        child->key_column = (int)mark.column + 1;
        if (child->kind == TD_TREE_NULL) {
            child->line = child->key_line;
            child->column = child->key_column;
        }
        td__tree_append(map, key, child);
    }
}

static td_status read_node(reader *r, const yaml_event_t *e, int depth, td__tree **out)
{
    TD_TRY(check_event(r, e));
    if (depth > TD__TREE_MAX_DEPTH)
        return refuse(r, e->start_mark, "nested too deeply");
    if (++r->n_nodes > TD__TREE_MAX_NODES)
        return refuse(r, e->start_mark, "too many values in a job");
    td__tree *t = td__tree_new(r->arena, TD_TREE_NULL, NULL);
    if (!t)
        return out_of_memory(r);
    set_position(r, t, e->start_mark);
    *out = t;
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        if (is_null(e))
            return TD_OK;
        t->kind = TD_TREE_SCALAR;
        return scalar_text(r, e, &t->text);
    case YAML_SEQUENCE_START_EVENT: t->kind = TD_TREE_LIST; return read_list(r, t, depth);
    case YAML_MAPPING_START_EVENT: t->kind = TD_TREE_MAP; return read_map(r, t, depth);
    default: return refuse(r, e->start_mark, "not valid YAML: unexpected end");
    }
}

/* Stream start, document start, one node, document end, stream end. */
static td_status read_stream(reader *r, td__tree **out)
{
    td_status st = TD_OK;
    bool done = false;

    while (!done && !st) {
        yaml_event_t e;
        TD_TRY(next_event(r, &e));
        switch (e.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT: break;
        case YAML_STREAM_END_EVENT: done = true; break;
        default:
            st = *out ? refuse(r, e.start_mark, "a second document; a job is one")
                      : read_node(r, &e, 0, out);
        }
        yaml_event_delete(&e);
    }
    return st;
}

td_status td__tree_parse(td__arena *a, const char *text, size_t nbytes, const char *source,
                         bool positions, td__tree **out)
{
    reader r = {.arena = a, .source = td__arena_strdup(a, source), .positions = positions};

    *out = NULL;
    if (!r.source)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", source);
    if (nbytes > TD__TREE_MAX_BYTES)
        return TD_FAIL(TD_EINVAL, "%s: %zu bytes; a job file has at most %d", source, nbytes,
                       TD__TREE_MAX_BYTES);
    if (nbytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte-order mark */
        text += 3;
        nbytes -= 3;
    }
    if (!yaml_parser_initialize(&r.parser))
        return out_of_memory(&r);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, nbytes);
    td_status st = read_stream(&r, out);
    if (!st && !*out) {
        *out = td__tree_new(a, TD_TREE_NULL, NULL);
        if (*out)
            (*out)->source = r.source;
        else
            st = out_of_memory(&r);
    }
    yaml_parser_delete(&r.parser);
    return st;
}
