/* variants.c -- see variants.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "variants.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/nearest.h"
#include "parallel/sync.h"
#include "plan/mesh.h"

enum { MOST = 64, MOST_RANKS = 4096, MOST_SETS = 32 };

static const td__named_variant NAMED[] = {
#define TD_VARIANT(name, sets, help) {name, sets, help},
#include "variants.def"
#undef TD_VARIANT
};

typedef struct maker {
    td__arena *arena;
    td__variants list;
    const char *const *common; /* --set */
    int n_common;
    int ranks; /* the first number of --ranks */
} maker;

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "no memory for variants");
}

/* The next of a list of words between commas, those within brackets not counted; NULL after the
 * last. */
static char *next_word(maker *m, const char **rest)
{
    const char *from = *rest, *at = from;
    int depth = 0;

    if (!from)
        return NULL;
    for (; *at && (*at != ',' || depth); at++)
        depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
    *rest = *at ? at + 1 : NULL;
    return td__arena_printf(m->arena, "%.*s", (int)(at - from), from);
}

/* A directory's name from any text. */
static char *clean(maker *m, const char *text)
{
    char *name = td__arena_printf(m->arena, "%.60s", text);

    for (char *c = name; c && *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._=+-", *c))
            *c = '_';
    if (name && *name == '.')
        *name = '_';
    return name;
}

/* By another variant, or by a file of the comparison itself. */
static bool is_taken(const maker *m, const char *name)
{
    for (int i = 0; i < m->list.n; i++)
        if (strcmp(m->list.at[i].name, name) == 0)
            return true;
    return strcmp(name, "compare.json") == 0 || strcmp(name, "compare.html") == 0;
}

/* `wanted`, or with the first number that makes it the only one. */
static const char *own_name(maker *m, const char *wanted)
{
    const char *name = wanted;

    for (int i = 2; name && is_taken(m, name); i++)
        name = td__arena_printf(m->arena, "%s-%d", wanted, i);
    return name;
}

static td_status push(td__variant *v, const char *set)
{
    if (!set)
        return out_of_memory();
    if (v->n_sets == MOST_SETS)
        return TD_FAIL(TD_EINVAL, "%s: more than %d overrides", v->name, MOST_SETS);
    v->sets[v->n_sets++] = set;
    return TD_OK;
}

/* A variant with the overrides of all, without any of its own; the list has room for one more. */
static td_status begin(maker *m, const char *name, const char *what, td__variant **out)
{
    const char *wanted = clean(m, name);
    td__variant *v = &m->list.at[m->list.n];

    if (m->list.n == MOST)
        return TD_FAIL(TD_EINVAL, "more than %d variants", MOST);
    *v = (td__variant){.what = what, .name = wanted ? own_name(m, wanted) : NULL};
    v->sets = td__arena_alloc(m->arena, MOST_SETS * sizeof *v->sets);
    if (!v->sets || !v->name || !what)
        return out_of_memory();
    m->list.n++;
    for (int i = 0; i < m->n_common; i++)
        TD_TRY(push(v, m->common[i]));
    *out = v;
    return TD_OK;
}

/* sets: separated by "; ", as in variants.def. */
static td_status add(maker *m, const char *name, const char *sets)
{
    td__variant *v;

    if (!sets)
        return out_of_memory();
    TD_TRY(begin(m, name, sets, &v));
    for (const char *at = sets; *at;) {
        const char *end = strstr(at, "; ");
        size_t n = end ? (size_t)(end - at) : strlen(at);
        TD_TRY(push(v, td__arena_printf(m->arena, "%.*s", (int)n, at)));
        at += n + (end ? 2 : 0);
    }
    return TD_OK;
}

static td_status add_rule(maker *m, const td__sync_ops *r)
{
    return add(m, r->name,
               td__arena_printf(m->arena, "train.sync=%s%s%s%s%s", r->name, r->key ? "; " : "",
                                r->key ? r->key : "", r->key ? "=" : "", r->key ? r->sample : ""));
}

/* Those that no key asks for may be for other numbers of ranks alone. */
static bool can_be(const td__sync_ops *r, int ranks)
{
    td__sync_world apart = {.ranks = ranks}, shared = {.ranks = ranks, .shared = true};
    const td__sync_config none = {.rule = NULL};
    return r->key || !r->fits || r->fits(&none, &apart) || r->fits(&none, &shared);
}

/* Why --sync all has no variant of a rule; NULL: it has one. */
static const char *why_not(const td__sync_ops *r, int ranks)
{
    if (r->one_process)
        return "for threads of one process, with jobs of its own";
    if (can_be(r, ranks))
        return NULL;
    return can_be(r, 1) ? "for one rank" : "for a job that names more";
}

static td_status add_all(maker *m)
{
    for (const td__sync_ops *const *r = td__sync_rules; *r; r++) {
        const char *why = why_not(*r, m->ranks);
        if (!why) {
            TD_TRY(add_rule(m, *r));
            continue;
        }
        if (m->list.n_left_out == MOST)
            return TD_FAIL(TD_EINVAL, "more than %d variants", MOST);
        m->list.left_out[m->list.n_left_out++] = (td__compare_absent){(*r)->name, why};
    }
    return TD_OK;
}

static td_status add_named(maker *m, const char *name)
{
    td__nearest near = {.word = name};

    if (strcmp(name, "all") == 0)
        return add_all(m);
    for (int i = 0; i < TD_LEN(NAMED); i++) {
        if (strcmp(NAMED[i].name, name) == 0)
            return add(m, name, NAMED[i].sets);
        td__nearest_offer(&near, NAMED[i].name);
    }
    for (const td__sync_ops *const *r = td__sync_rules; *r; r++) {
        if (strcmp((*r)->name, name) == 0)
            return add_rule(m, *r);
        td__nearest_offer(&near, (*r)->name);
    }
    return TD_FAIL(TD_EINVAL, "--sync: unknown variant '%.60s'; %s%s", name,
                   near.best ? "did you mean " : "see tandem help compare",
                   near.best ? near.best : "");
}

/* The file's keys; its name without folder and ending is the variant's. */
static td_status add_file(maker *m, const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    const char *dot = strrchr(file, '.');
    int n = dot && dot > file ? (int)(dot - file) : (int)strlen(file);
    char *name = td__arena_printf(m->arena, "%.*s", n, file);
    char *sets = td__arena_printf(m->arena, "@%s", path);
    td__variant *v;

    if (!*path)
        return TD_FAIL(TD_EINVAL, "--runs: expected FILE,FILE,...");
    if (!name)
        return out_of_memory();
    TD_TRY(begin(m, name, sets, &v));
    return push(v, sets);
}

/* The job's own axes give way: one that is not named is 1, data what is left of the ranks. */
static char *mesh_sets(maker *m, const td__rank_mesh *mesh)
{
    const int *size = mesh->size;
    int pipeline = size[TD_AXIS_PIPELINE], tensor = size[TD_AXIS_TENSOR];
    char data[16] = "auto";
    if (size[TD_AXIS_DATA])
        snprintf(data, sizeof data, "%d", size[TD_AXIS_DATA]);
    return td__arena_printf(m->arena, "parallel.pipeline=%d; parallel.data=%s; parallel.tensor=%d",
                            pipeline ? pipeline : 1, data, tensor ? tensor : 1);
}

/* data=2,pipeline=2/pipeline=4: ways to arrange ranks, on as many as each needs unless --ranks says
 * how many. */
static td_status add_meshes(maker *m, const char *text)
{
    for (const char *at = text; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
        char *one = td__arena_printf(m->arena, "%.*s", (int)strcspn(at, "/"), at), *sets;
        td__rank_mesh mesh;
        td__variant *v;
        if (!one)
            return out_of_memory();
        if (td__rank_mesh_parse(one, &mesh))
            return TD_FAIL(TD_EINVAL, "--parallel: %s", td_last_error());
        sets = mesh_sets(m, &mesh);
        TD_TRY(add(m, one, sets));
        v = &m->list.at[m->list.n - 1];
        int64_t ranks = 1;
        for (int x = 0; x < TD_AXES && ranks <= MOST_RANKS; x++)
            ranks *= mesh.size[x] ? mesh.size[x] : 1;
        if (ranks > MOST_RANKS)
            return TD_FAIL(TD_EINVAL, "--parallel: %s is more than %d ranks", one, MOST_RANKS);
        v->ranks = (int)ranks;
    }
    return TD_OK;
}

/* KEY=V1,V2: one variant for each value, for each variant that --vary made before. */
static td_status vary(maker *m, const char *text, int first)
{
    const char *equals = strchr(text, '='), *rest = equals ? equals + 1 : NULL;
    td__variants old = {.at = m->list.at + first, .n = m->list.n - first};

    if (!equals || equals == text || !*rest)
        return TD_FAIL(TD_EINVAL, "--vary: expected KEY=VALUE,VALUE,..., found '%.60s'", text);
    td__variant *before = td__arena_alloc(m->arena, MOST * sizeof *before);
    if (!before)
        return out_of_memory();
    memcpy(before, old.at, (size_t)old.n * sizeof *before);
    m->list.n = first;
    const char *word = equals; /* the key's last word names the variant */
    while (word > text && word[-1] != '.')
        word--;
    for (char *value; (value = next_word(m, &rest));)
        for (int i = 0; i < (old.n ? old.n : 1); i++) {
            const char *name = old.n ? before[i].name : "", *sets = old.n ? before[i].what : "";
            char *set = td__arena_printf(m->arena, "%.*s=%s", (int)(equals - text), text, value);
            char *called = td__arena_printf(m->arena, "%s%s%.*s=%s", name, *name ? "+" : "",
                                            (int)(equals - word), word, value);
            if (!set || !called)
                return out_of_memory();
            td__variant *v;
            TD_TRY(begin(m, called,
                         td__arena_printf(m->arena, "%s%s%s", sets, *sets ? "; " : "", set), &v));
            for (int k = m->n_common; old.n && k < before[i].n_sets; k++)
                TD_TRY(push(v, before[i].sets[k]));
            TD_TRY(push(v, set));
        }
    return TD_OK;
}

/* The numbers of ranks: one for all, or every variant on each. */
static td_status set_ranks(maker *m, const char *text)
{
    const char *rest = text ? text : "1";
    bool several = strchr(rest, ',') != NULL;
    int n = m->list.n;
    td__variant *before = td__arena_alloc(m->arena, MOST * sizeof *before);

    if (!before)
        return out_of_memory();
    memcpy(before, m->list.at, (size_t)n * sizeof *before);
    m->list.n = 0;
    for (char *word; (word = next_word(m, &rest));) {
        char *end;
        long ranks = strtol(word, &end, 10);
        if (end == word || *end || ranks < 1 || ranks > MOST_RANKS)
            return TD_FAIL(TD_EINVAL, "--ranks: expected whole numbers from 1 to %d, found '%.60s'",
                           MOST_RANKS, word);
        for (int i = 0; i < n; i++) {
            td__variant v = before[i];
            v.ranks = text || !v.ranks ? (int)ranks : v.ranks;
            if (several)
                v.name = td__arena_printf(m->arena, "%s%sn=%ld", n > 1 ? v.name : "",
                                          n > 1 ? "+" : "", ranks);
            v.name = v.name ? own_name(m, v.name) : NULL;
            if (!v.name)
                return out_of_memory();
            if (m->list.n == MOST)
                return TD_FAIL(TD_EINVAL, "more than %d variants", MOST);
            m->list.at[m->list.n++] = v;
        }
    }
    return TD_OK;
}

static td_status add_words(maker *m, const td__args *a, const char *flag,
                           td_status (*one)(maker *m, const char *word))
{
    const char *const *values;
    int n = td__args_values(a, flag, &values);

    for (int i = 0; i < n; i++) {
        const char *rest = values[i];
        for (char *word; (word = next_word(m, &rest));)
            TD_TRY(one(m, word));
    }
    return TD_OK;
}

td_status td__variants_make(td__arena *arena, const td__args *a, td__variants *out)
{
    maker m = {.arena = arena};
    const char *const *values, *ranks = td__args_value(a, "ranks");

    m.list.at = td__arena_alloc(arena, (MOST + 1) * sizeof *m.list.at);
    m.list.left_out = td__arena_alloc(arena, MOST * sizeof *m.list.left_out);
    if (!m.list.at || !m.list.left_out)
        return out_of_memory();
    m.n_common = td__args_values(a, "set", &m.common);
    m.ranks = ranks ? (int)strtol(ranks, NULL, 10) : 1;
    if (m.n_common > MOST_SETS)
        return TD_FAIL(TD_EINVAL, "more than %d overrides", MOST_SETS);
    if (td__args_has(a, "base"))
        TD_TRY(add(&m, "job", ""));
    TD_TRY(add_words(&m, a, "sync", add_named));
    TD_TRY(add_words(&m, a, "runs", add_file));
    if (td__args_value(a, "parallel"))
        TD_TRY(add_meshes(&m, td__args_value(a, "parallel")));
    int first = m.list.n, n = td__args_values(a, "vary", &values);
    for (int i = 0; i < n; i++)
        TD_TRY(vary(&m, values[i], first));
    if (!m.list.n && (!ranks || !strchr(ranks, ',')))
        return TD_FAIL(TD_EINVAL, "nothing to compare: give --sync, --runs, --parallel, --vary or "
                                  "several --ranks");
    if (!m.list.n)
        TD_TRY(add(&m, "job", ""));
    TD_TRY(set_ranks(&m, ranks));
    *out = m.list;
    return TD_OK;
}
