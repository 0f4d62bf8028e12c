/* features.c -- data.features: what the columns of a table become, each kind a row of the table
 * below. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "job/job_impl.h"

enum { MAX_KEYS = 3, MAX_FEATURES = 65536 };

#define COLUMN TD_KEY_ROW("column", TEXT, "Column of the table.", .flags = TD_KEY_REQUIRED)
#define BUCKETS                                                              \
    TD_KEY_ROW("buckets", INT, "Number of buckets.", .lo = 2, .hi = 1048576, \
               .flags = TD_KEY_REQUIRED)

/* The first key is the one that `kind: value` gives. */
static const struct {
    const char *kind, *help;
    td__key keys[MAX_KEYS];
} KINDS[] = {
    {"numeric", "the number, one place in x", {COLUMN, TD_KEYS_END}},
    {"one_hot",
     "one place in x per category of the training file; others are 0",
     {COLUMN, TD_KEYS_END}},
    {"bucketized",
     "the interval that a number is in, one-hot",
     {COLUMN,
      TD_KEY_ROW("boundaries", TEXTS, "Rising numbers; an interval begins at each.",
                 .flags = TD_KEY_REQUIRED),
      TD_KEYS_END}},
    {"hashed", "the hash of a text, one-hot", {COLUMN, BUCKETS, TD_KEYS_END}},
    {"crossed",
     "the hash of the texts of several columns together, one-hot",
     {TD_KEY_ROW("columns", TEXTS, "Columns of the table.", .flags = TD_KEY_REQUIRED), BUCKETS,
      TD_KEYS_END}},
    {"embedding",
     "a data field called as the column: ids of categories for a layer `{embedding: 8, from: "
     "COLUMN}`; 0 is other",
     {COLUMN, TD_KEYS_END}},
    {"text",
     "a data field called as the column: its text for a stage `{tokenize: {field: COLUMN}}`",
     {COLUMN, TD_KEYS_END}},
};

static const char *kind_word(int i)
{
    return i >= 0 && i < TD_LEN(KINDS) ? KINDS[i].kind : NULL;
}

static int find_kind(const char *name)
{
    for (int i = 0; name && i < TD_LEN(KINDS); i++)
        if (!strcmp(KINDS[i].kind, name))
            return i;
    return -1;
}

static const char *main_key(const char *name)
{
    int i = find_kind(name);

    return i < 0 ? NULL : KINDS[i].keys[0].path;
}

td_status td__features_expand(td__arena *a, td__tree *list)
{
    return td__items_expand(a, "feature", main_key, "data.features", list);
}

static td_status resolve_one(td__arena *a, const td__tree *given, const char *path, td__tree **out)
{
    td__key keys[MAX_KEYS + 1] = {
        TD_KEY_ROW("feature", WORD, "", .list = kind_word, .flags = TD_KEY_REQUIRED), TD_KEYS_END};
    td__tree *item;

    TD_TRY(td__item_expand(a, "feature", main_key, path, given, &item));
    int kind = find_kind(td__keys_text(item, "feature"));
    for (int k = 0; kind >= 0 && k < MAX_KEYS; k++)
        keys[1 + k] = KINDS[kind].keys[k];
    char *prefix = td__arena_printf(a, "%s.", path);
    if (!prefix)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    return td__keys_resolve(a, keys, prefix, item, given, out);
}

td_status td__features_resolve(td__arena *a, const td__tree *given, td__tree **out)
{
    if (given->kind != TD_TREE_LIST || given->count > MAX_FEATURES)
        return TD_FAIL(TD_EINVAL, "%s: data.features: expected a list of features, found %s",
                       td__tree_where(given).text, td__tree_found(given).text);
    return td__items_resolve(a, "data.features", resolve_one, given, out);
}

/* Texts of a list, or one; -1: out of memory. */
static int texts_of(td__arena *a, const td__tree *t, const char *const **out)
{
    int n = t->kind == TD_TREE_LIST ? t->count : 1, i = 0;
    const char **texts = td__arena_alloc(a, (size_t)n * sizeof *texts);

    *out = texts;
    if (!texts)
        return -1;
    if (t->kind != TD_TREE_LIST)
        texts[i++] = t->text;
    for (const td__tree *c = t->kind == TD_TREE_LIST ? t->first : NULL; c; c = c->next)
        texts[i++] = c->text;
    return n;
}

static td_status fill_boundaries(td__arena *a, const td__tree *t, td_feature *f)
{
    const char *const *texts;
    char *end;
    int n = texts_of(a, t, &texts);
    double *x = n < 0 ? NULL : td__arena_alloc(a, (size_t)n * sizeof *x);

    if (!x)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    for (int i = 0; i < n; i++) {
        x[i] = strtod(texts[i], &end);
        if (end == texts[i] || *end || (i && !(x[i] > x[i - 1])))
            return TD_FAIL(TD_EINVAL, "%s: boundaries: expected rising numbers, found '%.60s'",
                           td__tree_where(t).text, texts[i]);
    }
    f->boundaries = x;
    f->n_boundaries = n;
    return TD_OK;
}

static td_status fill_one(td__arena *a, const td__tree *c, td_feature *f)
{
    const td__tree *columns = td__tree_get(c, "columns"), *limits = td__tree_get(c, "boundaries");
    const char *const *texts;

    f->kind = td__keys_text(c, "feature");
    f->column = td__keys_text(c, "column");
    f->buckets = (int64_t)td__keys_real(c, "buckets");
    if (limits)
        TD_TRY(fill_boundaries(a, limits, f));
    if (!columns)
        return TD_OK;
    int n = texts_of(a, columns, &texts);
    if (n < 0)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    if (n < 2)
        return TD_FAIL(TD_EINVAL, "%s: columns: expected two at least, found %s",
                       td__tree_where(columns).text, td__tree_found(columns).text);
    f->column = texts[0];
    f->with = texts + 1;
    f->n_with = n - 1;
    return TD_OK;
}

td_status td__features_fill(td__arena *a, const td__tree *list, const td_feature **features, int *n)
{
    *n = 0;
    *features = NULL;
    if (!list || !list->count)
        return TD_OK;
    td_feature *f = td__arena_alloc(a, (size_t)list->count * sizeof *f);
    if (!f)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    *features = f;
    for (const td__tree *c = list->first; c; c = c->next, ++*n)
        TD_TRY(fill_one(a, c, &f[*n]));
    return TD_OK;
}

void td__help_features(FILE *to, bool markdown)
{
    for (int i = 0; i < TD_LEN(KINDS); i++) {
        fprintf(to, markdown ? "\n**%s**: %s\n\n" : "\n  %s: %s\n", KINDS[i].kind, KINDS[i].help);
        td__help_keys(to, KINDS[i].keys, markdown);
    }
}
