/* warm.c -- the keys of a model that begins with other weights: freeze, fresh, rename. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/fail.h"
#include "base/pattern.h"
#include "job/build.h"

static td_status out_of_memory(const td__job *j)
{
    return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
}

static td_status read_rename(td__job *j, const td__tree *t)
{
    int n = 0;

    if (t->kind != TD_TREE_MAP || !t->count)
        return TD_FAIL(TD_EINVAL,
                       "%s: model.rename: expected a map, beginnings of names in the file and what "
                       "they are here, found %s",
                       td__tree_where(t).text, td__tree_found(t).text);
    const char *(*pairs)[2] = td__arena_alloc(j->arena, (size_t)t->count * sizeof *pairs);
    if (!pairs)
        return out_of_memory(j);
    for (const td__tree *c = t->first; c; c = c->next, n++) {
        if (c->kind != TD_TREE_SCALAR)
            return TD_FAIL(TD_EINVAL, "%s: model.rename.%s: expected a text, found %s",
                           td__tree_where(c).text, c->key, td__tree_found(c).text);
        pairs[n][0] = c->key;
        pairs[n][1] = c->text;
    }
    j->from_opts.rename = (const char *const(*)[2])pairs;
    j->from_opts.n_renames = n;
    return TD_OK;
}

td_status td__job_read_warm(td__job *j)
{
    const td__tree *model = j->model, *t;

    j->from_opts.n_fresh = td__keys_texts(j->arena, model, "fresh", &j->from_opts.fresh);
    j->n_freeze = td__keys_texts(j->arena, model, "freeze", &j->freeze);
    if (j->from_opts.n_fresh < 0 || j->n_freeze < 0)
        return out_of_memory(j);
    if (j->n_freeze) {
        j->freeze_used = td__arena_alloc(j->arena, (size_t)j->n_freeze * sizeof *j->freeze_used);
        if (!j->freeze_used)
            return out_of_memory(j);
    }
    for (const char *const *key = (const char *const[]){"fresh", "rename", NULL}; *key; key++)
        if ((t = td__tree_get(model, *key)) && !td__tree_get(model, "from"))
            return TD_FAIL(TD_EINVAL, "%s: model.%s: needs model.from", td__tree_where_key(t).text,
                           *key);
    t = td__tree_get(model, "rename");
    return t ? read_rename(j, t) : TD_OK;
}

bool td__build_frozen(void *build, const char *name)
{
    td__build *b = build;
    td__job *j = b->job;
    bool any = false;

    for (int i = 0; i < j->n_freeze; i++)
        if (td__pattern_matches(j->freeze[i], name)) {
            any = true;
            if (b->record)
                j->freeze_used[i] = true;
        }
    if (!any && !b->trained++)
        snprintf(b->example, sizeof b->example, "%s", name);
    return any;
}

td_status td__build_check_frozen(const td__build *b)
{
    const td__job *j = b->job;
    const td__tree *t = td__tree_get(j->model, "freeze");

    for (int i = 0; b->record && i < j->n_freeze; i++)
        if (!j->freeze_used[i])
            return TD_FAIL(TD_EINVAL, "%s: model.freeze: no weight matches '%s'; there is %s",
                           td__tree_where(t).text, j->freeze[i], b->example);
    if (j->n_freeze && !b->trained)
        return TD_FAIL(TD_EINVAL, "%s: model.freeze: nothing is left to train",
                       td__tree_where(t).text);
    return TD_OK;
}
