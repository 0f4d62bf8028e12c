/* model_keys.c -- the `model` section checked against the tables of layers and ready-made models.
 * Nothing is known of the data yet: `classes` and the like stay words. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "job/build.h"

enum { MOST_DEPTH = 8 }; /* of blocks in blocks */

static const td__layer_def *const LAYERS[] = {
#define TD_LAYER(name) &td__layer_##name,
#include "job/layers.def"
#undef TD_LAYER
};

static const td__layer_def *const MODELS[] = {
#define TD_MODEL(name) &td__ready_##name,
#include "job/models.def"
#undef TD_MODEL
};

const td__key td__layer_common[] = {
    TD_KEY_ROW("from", TEXT, "Input: a name given by `as`, or a data field.",
               .shown = "the layer before"),
    TD_KEY_ROW("as", TEXT, "Name of the result, for `from`, `add` and `concat`."),
    TD_KEY_ROW("name", TEXT, "Name of the layer, the prefix of its parameters.",
               .shown = "kind and number, as conv2d1"),
    TD_KEY_ROW(
        "place", INT,
        "Stage of a pipeline that the layer is to run on, or cuda:1: the GPU of this process "
        "(docs/gpu.md); the result does not depend on it. See docs/pipeline.md.",
        .hi = 4095, .flags = TD_KEY_FREE | TD_KEY_LATER, .shown = "that of the layer before"),
    TD_KEYS_END};

const td__layer_def *td__layer_list(int i)
{
    return i >= 0 && i < TD_LEN(LAYERS) ? LAYERS[i] : NULL;
}

const td__layer_def *td__ready_list(int i)
{
    return i >= 0 && i < TD_LEN(MODELS) ? MODELS[i] : NULL;
}

const td__layer_def *td__layer_find(const char *name)
{
    for (int i = 0; i < TD_LEN(LAYERS); i++)
        if (!strcmp(LAYERS[i]->name, name))
            return LAYERS[i];
    return NULL;
}

int td__layer_kind(const td__layer_def *d)
{
    int i = 0;

    while (LAYERS[i] != d)
        i++;
    return i;
}

const td__layer_def *td__ready_find(const char *name)
{
    for (int i = 0; i < TD_LEN(MODELS); i++)
        if (!strcmp(MODELS[i]->name, name))
            return MODELS[i];
    return NULL;
}

static const char *layer_word(int i)
{
    return i < TD_LEN(LAYERS) ? LAYERS[i]->name : NULL;
}

static const char *model_word(int i)
{
    return i < TD_LEN(MODELS) ? MODELS[i]->name : NULL;
}

static const char *main_key(const char *name)
{
    const td__layer_def *d = td__layer_find(name);

    return !d ? NULL : d->keys[0].path ? d->keys[0].path : "";
}

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "job: out of memory");
}

/* The one value of a map that says what it is; the rest cannot be judged without it. */
static td_status only(td__arena *a, const td__tree *map, const char *key, td__tree **out)
{
    td__tree *value = td__tree_get(map, key);

    *out = td__tree_new(a, TD_TREE_MAP, map);
    td__tree *copy = td__arena_alloc(a, sizeof *copy);
    if (!*out || !copy)
        return out_of_memory();
    if (value) {
        *copy = *value;
        td__tree_append(*out, key, copy);
    }
    return TD_OK;
}

/* Resolve `map` against: the key that names the def, the def's own keys, `more`. */
static td_status resolve_def(td__arena *a, td__key named, const td__layer_def *d,
                             const td__key *more, const char *path, td__tree *map, td__tree **out)
{
    td__key keys[TD__LAYER_KEYS + 8] = {named};
    int n = 1;

    for (int i = 0; d && i < TD__LAYER_KEYS && d->keys[i].path; i++)
        keys[n++] = d->keys[i];
    for (int i = 0; more[i].path; i++)
        keys[n++] = more[i];
    if (!d)
        TD_TRY(only(a, map, named.path, &map));
    char *prefix = td__arena_printf(a, "%s.", path);
    if (!prefix)
        return out_of_memory();
    return td__keys_resolve(a, keys, prefix, map, map, out);
}

/* Where a list of layers stands: the job's named blocks, and how deep in them it is. */
typedef struct within {
    td__arena *arena;
    const td__tree *define; /* NULL: there are none */
    int depth;
} within;

static td_status resolve_list(const within *w, const td__tree *given, const char *path,
                              td__tree **out);

/* The layers of the block that a layer `use` names. */
static td_status find_block(const within *w, const td__tree *layer, const char *path,
                            td__tree **out)
{
    const td__tree *name = td__tree_get(layer, "block");
    char known[160] = "";

    *out = w->define ? td__tree_get(w->define, name->text) : NULL;
    if (*out && w->depth < MOST_DEPTH)
        return TD_OK;
    if (*out)
        return TD_FAIL(TD_EINVAL, "%s: %s: blocks are used within each other more than %d deep",
                       td__tree_where(name).text, path, MOST_DEPTH);
    for (const td__tree *c = w->define ? w->define->first : NULL; c && strlen(known) < 100;
         c = c->next)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "",
                 c->key);
    return TD_FAIL(TD_EINVAL, "%s: %s: `define` has no block %s%s%s", td__tree_where(name).text,
                   path, td__tree_found(name).text, known[0] ? "; it has: " : "", known);
}

static td_status resolve_layer(const within *w, const td__tree *given, const char *path,
                               td__tree **out)
{
    td__arena *a = w->arena;
    within inside = *w;
    static const td__key NAMED =
        TD_KEY_ROW("layer", WORD, "", .list = layer_word, .flags = TD_KEY_REQUIRED);
    td__tree *item;

    TD_TRY(td__item_expand(a, "layer", main_key, path, given, &item));
    const char *kind = td__keys_text(item, "layer");
    const td__layer_def *d = kind ? td__layer_find(kind) : NULL;
    TD_TRY(resolve_def(a, NAMED, d, td__layer_common, path, item, out));
    for (int i = 0; d && i < TD__LAYER_KEYS && d->keys[i].path; i++) {
        td__tree *inner = td__tree_get(*out, d->keys[i].path), *list;
        if (d->keys[i].type == TD_KEY_TREE && d == &td__layer_use &&
            (!inner || (w->define && td__tree_get(w->define, td__keys_text(*out, "block"))))) {
            TD_TRY(find_block(w, *out, path, &inner));
            inside.depth++;
        }
        if (d->keys[i].type != TD_KEY_TREE || !inner)
            continue;
        char *below = td__arena_printf(a, "%s.%s", path, d->keys[i].path);
        if (!below)
            return out_of_memory();
        TD_TRY(resolve_list(&inside, inner, below, &list));
        td__tree_put(*out, d->keys[i].path, list);
    }
    return TD_OK;
}

static td_status resolve_list(const within *w, const td__tree *given, const char *path,
                              td__tree **out)
{
    td__arena *a = w->arena;
    int i = 0;

    *out = td__tree_new(a, TD_TREE_LIST, given);
    if (!*out)
        return out_of_memory();
    if (given->kind != TD_TREE_LIST || !given->first)
        return TD_FAIL(TD_EINVAL, "%s: %s: expected a list of layers, found %s",
                       td__tree_where(given).text, path,
                       given->kind == TD_TREE_LIST ? "an empty one" : td__tree_found(given).text);
    for (const td__tree *c = given->first; c; c = c->next, i++) {
        char *item_path = td__arena_printf(a, "%s.%d", path, i);
        td__tree *item;
        if (!item_path)
            return out_of_memory();
        TD_TRY(resolve_layer(w, c, item_path, &item));
        td__tree_append(*out, NULL, item);
    }
    return TD_OK;
}

td_status td__layers_expand(td__arena *a, const char *path, td__tree *list)
{
    td__tree *before = NULL;
    int n = 0;

    for (td__tree *c = list->kind == TD_TREE_LIST ? list->first : NULL; c; c = c->next, n++) {
        td__tree *item;
        char *at = td__arena_printf(a, "%s.%d", path, n);
        if (!at)
            return out_of_memory();
        TD_TRY(td__item_expand(a, "layer", main_key, at, c, &item));
        td__tree_replace_after(list, before, item);
        before = c = item;
        const char *kind = td__keys_text(item, "layer");
        const td__layer_def *d = kind ? td__layer_find(kind) : NULL;
        for (int i = 0; d && i < TD__LAYER_KEYS && d->keys[i].path; i++) {
            td__tree *inner = td__tree_get(item, d->keys[i].path);
            if (d->keys[i].type != TD_KEY_TREE || !inner)
                continue;
            char *below = td__arena_printf(a, "%s.%s", at, d->keys[i].path);
            if (!below)
                return out_of_memory();
            TD_TRY(td__layers_expand(a, below, inner));
        }
    }
    return TD_OK;
}

#define MODEL_INPUT TD_KEY_ROW("input", TEXT, "Data field that the model reads.", .def = "x")

#define MODEL_FROM                                                                                \
    TD_KEY_ROW("from", TEXT,                                                                      \
               "Weights to begin with: FILE.safetensors, or a run's directory. Tensors with the " \
               "name and shape of a weight take its place, the others are new.",                  \
               .flags = TD_KEY_LATER),                                                            \
        TD_KEY_ROW("rename", TREE,                                                                \
                   "With from: what the names in the file are here, by their beginnings, as "     \
                   "`{module.: \"\", encoder.: backbone.}`.",                                     \
                   .flags = TD_KEY_LATER),                                                        \
        TD_KEY_ROW("fresh", TEXTS,                                                                \
                   "With from: layers, as a new head, whose weights are not taken from there. "   \
                   "Names of layers or weights, with * and ? as in a shell.",                     \
                   .flags = TD_KEY_LATER),                                                        \
        TD_KEY_ROW("freeze", TEXTS,                                                               \
                   "Layers that are not trained: no gradients, no updates, no weight decay. "     \
                   "Names as of fresh. Running averages of batch norms go on.",                   \
                   .flags = TD_KEY_LATER)

td_status td__model_resolve(td__arena *a, const td__tree *given, const td__tree *define,
                            td__tree **out)
{
    const within top = {.arena = a, .define = define};
    static const td__key INPUT[] = {MODEL_INPUT, MODEL_FROM, TD_KEYS_END};
    static const td__key LIST[] = {MODEL_INPUT, TD_KEY_ROW("layers", TREE, ""), MODEL_FROM,
                                   TD_KEYS_END};
    static const td__key NAMED =
        TD_KEY_ROW("name", WORD, "", .list = model_word, .flags = TD_KEY_REQUIRED | TD_KEY_MAIN);
    td__tree *list, *map = td__tree_new(a, TD_TREE_MAP, given);

    if (!map)
        return out_of_memory();
    for (const td__tree *c = define ? define->first : NULL; c; c = c->next) { /* also unused ones */
        char *path = td__arena_printf(a, "define.%s", c->key);
        if (!path)
            return out_of_memory();
        TD_TRY(resolve_list(&top, c, path, &list));
    }
    *map = *given;
    if (given->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL,
                       "%s: model: expected a list of layers or a ready-made model, "
                       "found %s",
                       td__tree_where(given).text, td__tree_found(given).text);
    const td__tree *layers = td__tree_get(given, "layers");
    if (!td__tree_get(given, "name") && layers) {
        TD_TRY(td__keys_resolve(a, LIST, "model.", given, given, out));
        TD_TRY(resolve_list(&top, layers, "model.layers", &list));
        td__tree_put(*out, "layers", list);
        return TD_OK;
    }
    const char *name = td__keys_text(given, "name");
    return resolve_def(a, NAMED, name ? td__ready_find(name) : NULL, INPUT, "model", map, out);
}
