/* items.c -- the items of lists (layers, stages, features) in their one full form, {kind: name,
 * ...}, and the lists whose items are one such each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "job/job_impl.h"

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "job: out of memory");
}

static td_status add_copy(td__arena *a, td__tree *map, const char *key, const td__tree *value)
{
    td__tree *copy = td__arena_alloc(a, sizeof *copy);

    if (!copy)
        return out_of_memory();
    *copy = *value;
    if (td__tree_get(map, key))
        return TD_FAIL(TD_EINVAL, "%s: %s: given twice", td__tree_where_key(value).text, key);
    td__tree_append(map, key, copy);
    return TD_OK;
}

static td_status add_name(td__arena *a, td__tree *map, const char *kind, const char *name,
                          const td__tree *at)
{
    td__tree *t = td__tree_scalar(a, name, at);

    if (!t)
        return out_of_memory();
    td__tree_append(map, kind, t);
    return TD_OK;
}

/* {name: main, more: ...} */
static td_status expand_short(td__arena *a, const char *kind, const char *main,
                              const td__tree *item, td__tree *map)
{
    const td__tree *first = item->first;

    TD_TRY(add_name(a, map, kind, first->key, item));
    if (first->kind == TD_TREE_MAP) {
        for (const td__tree *c = first->first; c; c = c->next)
            TD_TRY(add_copy(a, map, c->key, c));
    } else if (first->kind != TD_TREE_NULL) {
        if (!*main)
            return TD_FAIL(TD_EINVAL, "%s: %s takes no value, found %s", td__tree_where(first).text,
                           first->key, td__tree_found(first).text);
        TD_TRY(add_copy(a, map, main, first));
    }
    for (const td__tree *c = first->next; c; c = c->next)
        TD_TRY(add_copy(a, map, c->key, c));
    return TD_OK;
}

td_status td__item_expand(td__arena *a, const char *kind, const char *(*main_key)(const char *name),
                          const char *path, const td__tree *item, td__tree **out)
{
    td__tree *map = td__tree_new(a, TD_TREE_MAP, item);

    if (!map)
        return out_of_memory();
    *out = map;
    if (item->kind == TD_TREE_SCALAR)
        return add_name(a, map, kind, item->text, item);
    if (item->kind != TD_TREE_MAP || !item->first)
        return TD_FAIL(TD_EINVAL, "%s: %s: expected a %s, found %s", td__tree_where(item).text,
                       path, kind, td__tree_found(item).text);
    const char *main = main_key(item->first->key);
    if (!td__tree_get(item, kind) && main)
        return expand_short(a, kind, main, item, map);
    if (!td__tree_get(item, kind)) /* an unknown name, to be refused with the nearest one */
        return add_name(a, map, kind, item->first->key, item);
    for (const td__tree *c = item->first; c; c = c->next)
        TD_TRY(add_copy(a, map, c->key, c));
    return TD_OK;
}

td_status td__items_expand(td__arena *a, const char *kind,
                           const char *(*main_key)(const char *name), const char *path,
                           td__tree *list)
{
    for (td__tree *c = list->kind == TD_TREE_LIST ? list->first : NULL; c; c = c->next) {
        td__tree *item;
        TD_TRY(td__item_expand(a, kind, main_key, path, c, &item));
        td__tree_replace(list, c, item);
        c = item;
    }
    return TD_OK;
}

td_status td__items_resolve(td__arena *a, const char *path, td__item_resolve *one,
                            const td__tree *given, td__tree **out)
{
    int i = 0;

    *out = td__tree_new(a, TD_TREE_LIST, given);
    if (!*out)
        return out_of_memory();
    for (const td__tree *c = given->first; c; c = c->next) {
        td__tree *item;
        char *at = td__arena_printf(a, "%s.%d", path, i++);
        if (!at)
            return out_of_memory();
        TD_TRY(one(a, c, at, &item));
        td__tree_append(*out, NULL, item);
    }
    return TD_OK;
}
