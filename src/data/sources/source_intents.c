/* source_intents.c -- short texts and their intents, as CLINC150 has them.
 *
 *     {"train": [["what is my balance", "balance"], ...], "val": [...], "test": [...]}
 *
 * x is (context) word numbers (words.h), padded with 0; y the class. Words and classes come from
 * "train". Other members ("oos_train" ...) are left alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/table.h"
#include "data/words.h"

enum { DEFAULT_CONTEXT = 32, MAX_CONTEXT = 1 << 20, DEFAULT_VOCAB = 8192 };

#define EXPECTED                                                                               \
    "clinc150_small.json, data_small.json or data_full.json of CLINC150 (set data.dir), or a " \
    "file of that form (data.train)"

static td_status find_file(const td__source_opts *o, char path[TD__PATH])
{
    static const char *const NAMES[] = {"clinc150_small.json", "data_small.json", "data_full.json"};

    if (o->train)
        return td__data_path(o->dir, o->train, path);
    for (int i = TD_LEN(NAMES) - 1; i >= 0; i--) {
        TD_TRY(td__data_path(o->dir, NAMES[i], path));
        if (td__is_file(path))
            break;
    }
    return TD_OK;
}

/* The texts of a part: an array of pairs. */
static td_status check_part(const json_t *list, const char *path, const char *name)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return TD_FAIL(TD_EPROTO, "%s: \"%s\" is not a list of [text, intent]", path, name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i);
        if (json_array_size(pair) != 2 || !json_is_string(json_array_get(pair, 0)) ||
            !json_is_string(json_array_get(pair, 1)))
            return TD_FAIL(TD_EPROTO, "%s: entry %zu of \"%s\" is not [text, intent]", path, i,
                           name);
    }
    return TD_OK;
}

static const char *text_at(const json_t *list, size_t i, size_t which)
{
    return json_string_value(json_array_get(json_array_get(list, i), which));
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sorted different intents of train, in the arena. */
static td_status collect_classes(const json_t *train, td__arena *arena, const char ***names,
                                 int64_t *count)
{
    size_t n = json_array_size(train), kept = 0;
    const char **all = td__arena_alloc(arena, n * sizeof *all);

    if (!all)
        return TD_FAIL(TD_ENOMEM, "intents: no memory for classes");
    for (size_t i = 0; i < n; i++)
        all[i] = text_at(train, i, 1);
    qsort(all, n, sizeof *all, compare_texts);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(all[i], all[i - 1]) != 0)
            all[kept++] = all[i];
    for (size_t i = 0; i < kept; i++) {
        all[i] = td__arena_strdup(arena, all[i]);
        if (!all[i])
            return TD_FAIL(TD_ENOMEM, "intents: no memory for classes");
    }
    *names = all;
    *count = (int64_t)kept;
    return TD_OK;
}

static td_status fill(td__table *t, const json_t *list, const td__words *words, const char *path)
{
    const td__field *y = &t->head.fields[1];
    int64_t context = t->head.fields[0].shape.dim[0];

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = json_array_get(json_array_get(list, i), 0);
        const char *intent = text_at(list, i, 1);
        const char *const *class =
            bsearch(&intent, y->class_names, (size_t)y->classes, sizeof *class, compare_texts);
        if (!class)
            return TD_FAIL(TD_EINVAL, "%s: the intent '%s' does not occur in \"train\"", path,
                           intent);
        td__words_encode(words, json_string_value(text), json_string_length(text),
                         (int32_t *)(void *)t->column[0] + (int64_t)i * context, context);
        ((int32_t *)(void *)t->column[1])[i] = (int32_t)(class - y->class_names);
    }
    return TD_OK;
}

static td_status build(const td__source_opts *o, const json_t *train, const json_t *list,
                       const char *path, td__table *t)
{
    td__field x = {
        .name = "x", .dtype = TD_I32, .shape = TD_SHAPE(o->context ? o->context : DEFAULT_CONTEXT)};
    td__field y = {.name = "y", .dtype = TD_I32};
    td__words *words = NULL;
    const char **classes;
    td_status st = TD_OK;

    TD_TRY(td__arena_create(&t->arena));
    TD_TRY(collect_classes(train, t->arena, &classes, &y.classes));
    y.class_names = classes;
    TD_TRY(td__words_create(&words));
    for (size_t i = 0; i < json_array_size(train); i++) {
        const char *text = text_at(train, i, 0);
        TD_TRY_OR(st, done, td__words_add(words, text, strlen(text)));
    }
    TD_TRY_OR(st, done, td__words_rank(words, o->vocab ? o->vocab : DEFAULT_VOCAB));
    x.classes = td__words_count(words);
    TD_TRY_OR(st, done, td__words_names(words, t->arena, &x.class_names));
    TD_TRY_OR(st, done, td__table_add(t, &x));
    TD_TRY_OR(st, done, td__table_add(t, &y));
    TD_TRY_OR(st, done, fill(t, list, words, path));
done:
    td__words_destroy(words);
    return st;
}

static td_status intents_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    char path[TD__PATH];
    td__file_map map;
    json_error_t error;
    td__table *t = NULL;
    td_status st = TD_OK;

    *out = NULL;
    if (o->context < 0 || o->context > MAX_CONTEXT)
        return TD_FAIL(TD_EINVAL, "intents: context is %" PRId64 ", expected 1 to %d", o->context,
                       MAX_CONTEXT);
    if (o->vocab < 0 || o->vocab > INT32_MAX || (o->vocab && o->vocab <= TD__WORD_FIRST))
        return TD_FAIL(TD_EINVAL, "intents: vocab is %" PRId64 ", expected more than %d", o->vocab,
                       TD__WORD_FIRST);
    TD_TRY(find_file(o, path));
    TD_TRY(td__data_map(path, EXPECTED, &map));
    json_t *root = json_loadb((const char *)map.data, map.nbytes, 0, &error);
    td__file_map_close(&map);
    if (!root)
        return TD_FAIL(TD_EPROTO, "%s:%d:%d: not JSON: %s", path, error.line, error.column,
                       error.text);
    const json_t *train = json_object_get(root, "train"), *list = json_object_get(root, part);
    if (!list && strcmp(part, "valid") == 0)
        list = json_object_get(root, "val");
    if (!list && strcmp(part, "train") != 0) {
        st = TD_FAIL(TD_ENOTSUP, "%s: no member \"%s\"", path, part);
        goto done;
    }
    TD_TRY_OR(st, done, check_part(train, path, "train"));
    TD_TRY_OR(st, done, check_part(list, path, part));
    TD_TRY_OR(st, done, td__table_create((int64_t)json_array_size(list), &t));
    TD_TRY_OR(st, done, build(o, train, list, path, t));
    *out = &t->head;
    t = NULL;
done:
    td__table_destroy(t);
    json_decref(root);
    return st;
}

const td__source_def td__source_intents = {
    .name = "intents",
    .help = "texts and intents as CLINC150: {\"train\": [[text, intent], ...], \"val\": ...}",
    .reads = "dir train context vocab",
    .open = intents_open,
};
