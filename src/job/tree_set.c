/* tree_set.c -- overrides, "path.to.key=value", in a tree; see tree.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "base/key.h"
#include "job/tree.h"

static td_status out_of_memory(const char *source)
{
    return TD_FAIL(TD_ENOMEM, "%s: out of memory", source);
}

td_status td__tree_parse_set(td__arena *a, const char *set, char **path, td__tree **value)
{
    const char *equals = strchr(set, '=');
    char *source = td__arena_printf(a, "--set %s", set);

    if (!source)
        return out_of_memory(set);
    size_t n = equals ? (size_t)(equals - set) : 0;
    if (n == 0 || n > 200 || set[0] == '.' || set[n - 1] == '.' || memmem(set, n, "..", 2))
        return TD_FAIL(TD_EINVAL, "%.200s: expected path.to.key=value", source);
    *path = td__arena_printf(a, "%.*s", (int)n, set);
    if (!*path)
        return out_of_memory(source);
    return td__tree_parse(a, equals + 1, strlen(equals + 1), source, false, value);
}

td_status td__tree_set(td__arena *a, td__tree *t, const char *path, td__tree *value)
{
    for (;;) {
        size_t n = strcspn(path, ".");
        char *word = td__arena_printf(a, "%.*s", (int)n, path);
        bool last = !path[n];
        td__tree *next = NULL;
        int64_t i = 0;
        if (!word)
            return out_of_memory(value->source);
        if (t->kind == TD_TREE_LIST) {
            if (!td__parse_int(word, &i) || i < 0 || i > t->count)
                return TD_FAIL(TD_EINVAL, "%s: expected an item's number from 0 to %d, found %s",
                               value->source, t->count, *word ? word : "nothing");
            next = td__tree_at(t, (int)i);
        } else {
            next = td__tree_get(t, word);
        }
        bool descend = next && (next->kind == TD_TREE_MAP || next->kind == TD_TREE_LIST);
        if (!last && descend) {
            t = next;
            path += n + 1;
            continue;
        }
        td__tree *child = last ? value : td__tree_new(a, TD_TREE_MAP, value);
        if (!child)
            return out_of_memory(value->source);
        if (next)
            td__tree_replace(t, next, child);
        else
            td__tree_append(t, t->kind == TD_TREE_LIST ? NULL : word, child);
        if (last)
            return TD_OK;
        t = child;
        path += n + 1;
    }
}
