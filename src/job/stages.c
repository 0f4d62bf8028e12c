/* stages.c -- data.maps: the stages that change samples, each a row of the table below. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "data/map.h"
#include "job/job_impl.h"

enum { MAX_KEYS = 12, MAX_STAGES = 64 };

/* A key, the member of td__map_opts that it sets, and the one stage that calls it so (NULL: all
 * that read the member). Which members a stage reads is in its def. */
static const struct {
    const char *member, *only;
    td__key key;
} KEYS[] = {
    {"a", "normalize",
     TD_KEY_ROW("mean", REAL, "Mean to subtract.", .lo = -1e30, .hi = 1e30,
                .shown = "measured on the training part")},
    {"b", "normalize",
     TD_KEY_ROW("std", REAL, "Standard deviation to divide by.", .hi = 1e30, .flags = TD_KEY_ABOVE,
                .shown = "measured on the training part")},
    {"size", "one_hot", TD_KEY_ROW("classes", INT, "Number of classes.", .lo = 2, .hi = 1e6)},
    {"text", "filter",
     TD_KEY_ROW("where", TEXT, "Condition of the samples to keep: `y < 5`.",
                .flags = TD_KEY_REQUIRED)},
    {"text", "tokenize",
     TD_KEY_ROW("unit", WORD, "What a token is.", .words = "word char lower byte", .def = "word")},
    {"size2", "tokenize",
     TD_KEY_ROW("vocab", INT, "Number of words to keep.", .lo = 2, .hi = 1e9, .shown = "all")},
    {"a", "flip",
     TD_KEY_ROW("p", REAL, "Probability.", .hi = 1, .flags = TD_KEY_ABOVE, .def = "0.5")},
    {"a", "color",
     TD_KEY_ROW("brightness", REAL, "Brightness is multiplied by 1 - this to 1 + this.", .hi = 1)},
    {"b", "color",
     TD_KEY_ROW("contrast", REAL, "Contrast is multiplied by 1 - this to 1 + this.", .hi = 1)},
    {"size", NULL, TD_KEY_ROW("size", INT, "New height, or length.", .lo = 1, .hi = 1e6)},
    {"size2", NULL, TD_KEY_ROW("width", INT, "New width.", .lo = 1, .hi = 1e6)},
    {"pad", NULL, TD_KEY_ROW("pad", INT, "Padding on each side.", .hi = 65536)},
    {"a", "pad", TD_KEY_ROW("value", REAL, "Padding value.", .lo = -1e30, .hi = 1e30)},
};

static const td__key FIELD = TD_KEY_ROW("field", TEXT, "Data field to transform.", .def = "x");

/* The keys of a stage, ended by a path of NULL; the first is the one that `name: value` gives. */
static void stage_keys(const td__map_def *d, td__key *out)
{
    int n = 0;

    for (int i = 0; i < TD_LEN(KEYS); i++) {
        bool named_here = KEYS[i].only && !strcmp(KEYS[i].only, d->name), taken = false;
        for (int k = 0; k < i; k++) /* by a name of its own */
            taken = taken || (KEYS[k].only && !strcmp(KEYS[k].only, d->name) &&
                              !strcmp(KEYS[k].member, KEYS[i].member));
        if (td__has_word(d->reads, KEYS[i].member) && !taken && (!KEYS[i].only || named_here))
            out[n++] = KEYS[i].key;
    }
    out[n++] = FIELD;
    out[n] = (td__key)TD_KEYS_END;
}

static const char *stage_word(int i)
{
    const td__map_def *d = td__map_list(i);

    return d ? d->name : NULL;
}

/* The names are those of KEYS or FIELD: they outlive the local table. */
static const char *main_key(const char *name)
{
    const td__map_def *d = td__map_find(name);
    td__key keys[MAX_KEYS];

    if (!d)
        return NULL;
    stage_keys(d, keys);
    return keys[0].path;
}

static td_status resolve_one(td__arena *a, const td__tree *given, const char *path, td__tree **out)
{
    td__key keys[MAX_KEYS + 1] = {
        TD_KEY_ROW("map", WORD, "", .list = stage_word, .flags = TD_KEY_REQUIRED), TD_KEYS_END};
    td__tree *item;

    TD_TRY(td__item_expand(a, "map", main_key, path, given, &item));
    const char *name = td__keys_text(item, "map");
    const td__map_def *d = name ? td__map_find(name) : NULL;
    if (d)
        stage_keys(d, keys + 1);
    if (!d) { /* says what is wrong with the name, whatever else there is */
        td__tree *only = td__tree_new(a, TD_TREE_MAP, item);
        if (!only)
            return TD_FAIL(TD_ENOMEM, "job: out of memory");
        td__tree *t = td__tree_get(item, "map");
        td__tree_append(only, "map", t);
        item = only;
    }
    char *prefix = td__arena_printf(a, "%s.", path);
    if (!prefix)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    return td__keys_resolve(a, keys, prefix, item, given, out);
}

td_status td__stages_expand(td__arena *a, td__tree *list)
{
    return td__items_expand(a, "map", main_key, "data.maps", list);
}

td_status td__stages_resolve(td__arena *a, const td__tree *given, td__tree **out)
{
    if (given->kind != TD_TREE_LIST || given->count > MAX_STAGES)
        return TD_FAIL(TD_EINVAL, "%s: data.maps: expected a list of at most %d stages, found %s",
                       td__tree_where(given).text, MAX_STAGES, td__tree_found(given).text);
    return td__items_resolve(a, "data.maps", resolve_one, given, out);
}

/* The text was checked: it is what the member takes. */
static void set_member(td__map_opts *o, const char *member, const char *text)
{
    const struct {
        const char *name;
        double *real;
        int64_t *whole;
    } MEMBERS[] = {{"a", &o->a, NULL},
                   {"b", &o->b, NULL},
                   {"size", NULL, &o->size},
                   {"size2", NULL, &o->size2},
                   {"pad", NULL, &o->pad}};

    for (int i = 0; i < TD_LEN(MEMBERS); i++)
        if (!strcmp(MEMBERS[i].name, member)) {
            if (MEMBERS[i].real)
                *MEMBERS[i].real = strtod(text, NULL);
            else
                td__parse_int(text, MEMBERS[i].whole);
            return;
        }
    o->text = text;
}

td_status td__stages_fill(td__arena *a, const td__tree *list, const td__map_opts **maps, int *n)
{
    *n = 0;
    *maps = NULL;
    if (!list || !list->count)
        return TD_OK;
    td__map_opts *o = td__arena_alloc(a, (size_t)list->count * sizeof *o);
    if (!o)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    *maps = o;
    for (const td__tree *c = list->first; c; c = c->next, o++, ++*n) {
        o->name = td__keys_text(c, "map");
        o->field = td__keys_text(c, "field");
        for (int i = 0; i < TD_LEN(KEYS); i++)
            if ((!KEYS[i].only || !strcmp(KEYS[i].only, o->name)) &&
                td__tree_get(c, KEYS[i].key.path))
                set_member(o, KEYS[i].member, td__keys_text(c, KEYS[i].key.path));
    }
    return TD_OK;
}

void td__help_stages(FILE *to, bool markdown)
{
    const td__map_def *d;

    for (int i = 0; (d = td__map_list(i)); i++) {
        td__key keys[MAX_KEYS];
        stage_keys(d, keys);
        fprintf(to, markdown ? "\n**%s**: %s\n\n" : "\n  %s: %s\n", d->name, d->help);
        td__help_keys(to, keys, markdown);
    }
}
