/* spec.c -- specs from text and to text, by the rows of spec.def; see spec.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "job/keys.h"
#include "service/json_tree.h"

const td__key td__spec_keys[] = {
#define TD_TO(path) TD_OPTION(td__job_spec, path)
#define TD_TO_LIST(path, n) TD_OPTION_LIST(td__job_spec, path, n)
#define TD_KEY(...) TD_KEY_ROW(__VA_ARGS__),
#include "service/spec.def"
#undef TD_KEY
#undef TD_TO_LIST
#undef TD_TO
    TD_KEYS_END};

/* The maps of texts: which keys, which members, and whether values may be secrets. */
static const struct {
    const char *path;
    size_t at;
    bool hide; /* all values, not only those whose names say so */
} MAPS[] = {
    {"parameters", offsetof(td__job_spec, parameters), false},
    {"env", offsetof(td__job_spec, env), true},
    {"labels", offsetof(td__job_spec, labels), false},
    {"node_selector", offsetof(td__job_spec, node_selector), false},
};

static td__pairs *pairs_of(td__job_spec *s, size_t at)
{
    return (td__pairs *)(void *)((char *)s + at);
}

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "spec of a job: out of memory");
}

td__pairs *td__spec_map(td__job_spec *s, const char *path)
{
    for (int i = 0; i < TD_LEN(MAPS); i++)
        if (!strcmp(MAPS[i].path, path))
            return pairs_of(s, MAPS[i].at);
    return NULL;
}

td_status td__spec_allocate(td__job_spec **out)
{
    td__arena *a;

    *out = NULL;
    TD_TRY(td__arena_create(&a));
    td__job_spec *s = td__arena_alloc(a, sizeof *s);
    if (!s) {
        td__arena_destroy(a);
        return out_of_memory();
    }
    s->arena = a;
    *out = s;
    return TD_OK;
}

void td__spec_destroy(td__job_spec *s)
{
    if (s)
        td__arena_destroy(s->arena);
}

const char *td__spec_text(td__job_spec *s, const char *text)
{
    const char *copy = text && *text ? td__arena_strdup(s->arena, text) : "";

    return copy ? copy : "";
}

td_status td__spec_pairs(td__job_spec *s, const td__pair *pairs, int n, td__pairs *out)
{
    td__pair *list = td__arena_alloc(s->arena, (size_t)n * sizeof *list + 1);

    if (!list)
        return out_of_memory();
    for (int i = 0; i < n; i++) {
        list[i].key = td__arena_strdup(s->arena, pairs[i].key);
        list[i].value = td__arena_strdup(s->arena, pairs[i].value);
        if (!list[i].key || !list[i].value)
            return out_of_memory();
    }
    *out = (td__pairs){list, n};
    return TD_OK;
}

static td_status read_map(td__job_spec *s, const char *path, const td__tree *t, td__pairs *out)
{
    int n = 0;

    if (!t || t->kind == TD_TREE_NULL)
        return TD_OK;
    if (t->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: %s: expected a map of texts, found %s",
                       td__tree_where(t).text, path, td__tree_found(t).text);
    td__pair *list = td__arena_alloc(s->arena, (size_t)t->count * sizeof *list + 1);
    if (!list)
        return out_of_memory();
    for (const td__tree *c = t->first; c; c = c->next) {
        if (c->kind != TD_TREE_SCALAR && c->kind != TD_TREE_NULL)
            return TD_FAIL(TD_EINVAL, "%s: %s.%s: expected a text, found %s",
                           td__tree_where(c).text, path, c->key, td__tree_found(c).text);
        list[n++] = (td__pair){c->key, c->kind == TD_TREE_NULL ? "" : c->text};
    }
    *out = (td__pairs){list, n};
    return TD_OK;
}

/* Members by their rows, from a map whose keys are known; `section` stands before them. */
static td_status fill(td__job_spec *s, const char *section, const td__tree *map)
{
    for (const td__tree *t = map->first; t; t = t->next) {
        char path[128];
        size_t n =
            (size_t)snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", t->key);
        const td__key *k = td__keys_find(td__spec_keys, n < sizeof path ? path : "");
        if (!k && t->kind == TD_TREE_MAP)
            TD_TRY(fill(s, path, t));
        else if (k && k->type != TD_KEY_TREE)
            TD_TRY(td__key_fill(s->arena, k, t, s));
    }
    return TD_OK;
}

static td_status fill_all(td__job_spec *s, const td__tree *root)
{
    TD_TRY(fill(s, "", root));
    for (int i = 0; i < TD_LEN(MAPS); i++)
        TD_TRY(
            read_map(s, MAPS[i].path, td__tree_get(root, MAPS[i].path), pairs_of(s, MAPS[i].at)));
    const td__tree *job = td__tree_get(root, "job");
    if (job && job->kind != TD_TREE_SCALAR && job->kind != TD_TREE_NULL)
        return TD_FAIL(TD_EINVAL, "%s: job: expected the text of a job file, found %s",
                       td__tree_where(job).text, td__tree_found(job).text);
    if (job && job->kind == TD_TREE_SCALAR)
        s->job_file = job->text;
    return TD_OK;
}

/* outputModelName is output_model_name: the spelling of JSON made from protobuf messages. */
static td_status snake_keys(td__arena *a, td__tree *map)
{
    for (td__tree *t = map->first; t; t = t->next) {
        size_t n = strlen(t->key), used = 0;
        char *key = td__arena_alloc(a, 2 * n + 1);
        if (!key)
            return out_of_memory();
        for (size_t i = 0; i < n; i++) {
            if (i > 0 && isupper((unsigned char)t->key[i]))
                key[used++] = '_';
            key[used++] = (char)tolower((unsigned char)t->key[i]);
        }
        t->key = key;
    }
    return TD_OK;
}

/* {"metadata": {...}}, the book's TrainRequest, is what it holds. */
static void hoist_metadata(td__tree *given)
{
    td__tree *metadata = td__tree_get(given, "metadata");

    if (!metadata || metadata->kind != TD_TREE_MAP)
        return;
    td__tree_remove(given, metadata);
    for (td__tree *t = metadata->first, *next; t; t = next) {
        next = t->next;
        td__tree_put(given, t->key, t);
    }
}

static td_status resolve(td__job_spec *s, td__tree *given)
{
    td__tree *root;

    if (given->kind == TD_TREE_NULL)
        given->kind = TD_TREE_MAP;
    if (given->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: expected a map of keys, found %s",
                       td__tree_where(given).text, td__tree_found(given).text);
    hoist_metadata(given);
    TD_TRY(snake_keys(s->arena, given));
    TD_TRY(td__keys_resolve(s->arena, td__spec_keys, "", given, given, &root));
    for (const td__key *k = td__spec_keys; k->path; k++)
        if (k->to.type == TD_OPTION_TEXT)
            *(const char **)(void *)((char *)s + k->to.at) = "";
    s->job_file = "";
    return fill_all(s, root);
}

td_status td__spec_parse(const char *text, size_t nbytes, const char *source, td__job_spec **out)
{
    td_status st = TD_OK;
    td__job_spec *s;
    td__tree *given;

    *out = NULL;
    TD_TRY(td__spec_allocate(&s));
    TD_TRY_OR(st, fail, td__json_or_yaml(s->arena, text, nbytes, source, &given));
    TD_TRY_OR(st, fail, resolve(s, given));
    *out = s;
    return TD_OK;
fail:
    td__spec_destroy(s);
    return st;
}

td_status td__spec_create(td__job_spec **out)
{
    return td__spec_parse("{}", 2, "spec", out);
}

bool td__secret_name(const char *name)
{
    static const char *const PARTS[] = {"SECRET",     "TOKEN",      "PASSWORD", "PASSWD",
                                        "CREDENTIAL", "ACCESS_KEY", "API_KEY",  "PRIVATE_KEY"};

    for (int i = 0; i < TD_LEN(PARTS); i++)
        if (strcasestr(name, PARTS[i]))
            return true;
    return false;
}

/* Begins a member of the object that `path` lies in; *section is the one that is open, "" for
 * none. */
static void begin_member(td__text *out, const char *path, char section[64], bool *first)
{
    const char *dot = strrchr(path, '.');
    char in[64];

    snprintf(in, sizeof in, "%.*s", dot ? (int)(dot - path) : 0, path);
    if (strcmp(in, section) != 0) {
        td__text_add(out, section[0] ? "}" : "");
        if (in[0]) {
            td__text_add(out, *first ? "" : ",");
            td__text_json(out, in);
            td__text_add(out, ":{");
            *first = true;
        }
        snprintf(section, 64, "%s", in);
    }
    td__text_add(out, *first ? "" : ",");
    *first = false;
    td__text_json(out, dot ? dot + 1 : path);
    td__text_add(out, ":");
}

static void write_list(td__text *out, const char *const *list, int n)
{
    td__text_add(out, "[");
    for (int i = 0; i < n; i++) {
        td__text_add(out, i ? "," : "");
        td__text_json(out, list[i]);
    }
    td__text_add(out, "]");
}

static void write_pairs(td__text *out, const td__pairs *p, bool hide, bool public)
{
    td__text_add(out, "{");
    for (int i = 0; i < p->n; i++) {
        td__text_add(out, i ? "," : "");
        td__text_json(out, p->at[i].key);
        td__text_add(out, ":");
        bool hidden = public && (hide || td__secret_name(p->at[i].key));
        td__text_json(out, hidden ? "***" : p->at[i].value);
    }
    td__text_add(out, "}");
}

static void write_row(const td__job_spec *s, const td__key *k, td__text *out, char section[64],
                      bool *first)
{
    const char *at = (const char *)s + k->to.at;
    char text[64];

    if (k->to.type == TD_OPTION_TEXT) {
        const char *value = *(const char *const *)(const void *)at;
        if (!*value || (k->def && !strcmp(value, k->def)))
            return;
        begin_member(out, k->path, section, first);
        td__text_json(out, value);
    } else if (k->to.type == TD_OPTION_TEXTS) {
        int n = *(const int *)(const void *)((const char *)s + k->to.count);
        if (!n)
            return;
        begin_member(out, k->path, section, first);
        write_list(out, *(const char *const *const *)(const void *)at, n);
    } else {
        td__key_text(k, s, text, sizeof text);
        if (k->def && !strcmp(text, k->def))
            return;
        begin_member(out, k->path, section, first);
        td__text_add(out, text);
    }
}

static void write_spec(const td__job_spec *s, td__text *out, bool public)
{
    char section[64] = "";
    bool first = true;

    td__text_add(out, "{");
    for (const td__key *k = td__spec_keys; k->path; k++)
        if (k->to.type != TD_OPTION_NONE)
            write_row(s, k, out, section, &first);
    for (int i = 0; i < TD_LEN(MAPS); i++) {
        const td__pairs *p = (const td__pairs *)(const void *)((const char *)s + MAPS[i].at);
        if (p->n) {
            begin_member(out, MAPS[i].path, section, &first);
            write_pairs(out, p, MAPS[i].hide, public);
        }
    }
    if (*s->job_file) {
        begin_member(out, "job", section, &first);
        td__text_json(out, s->job_file);
    }
    td__text_add(out, section[0] ? "}}" : "}");
}

void td__spec_json(const td__job_spec *s, td__text *out)
{
    write_spec(s, out, false);
}

void td__spec_json_public(const td__job_spec *s, td__text *out)
{
    write_spec(s, out, true);
}
