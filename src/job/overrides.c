/* overrides.c -- what is given beside a job's file: "path.to.key=value" and "@FILE". */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "job/job_impl.h"

static td_status out_of_memory(const td__job *j)
{
    return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
}

/* Scalars that stand for sections become maps. */
static td_status expand_mains(td__job *j, td__tree *root)
{
    for (const td__key *k = td__job_keys; k->path; k++) {
        const char *dot = strrchr(k->path, '.');
        char section[128];
        if (!(k->flags & TD_KEY_MAIN) || !dot)
            continue;
        snprintf(section, sizeof section, "%.*s", (int)(dot - k->path), k->path);
        const char *last = strrchr(section, '.');
        td__tree *t = td__keys_node(root, section), *parent = root;
        if (!t || t->kind != TD_TREE_SCALAR)
            continue;
        if (last) {
            char above[128];
            snprintf(above, sizeof above, "%.*s", (int)(last - section), section);
            parent = td__keys_node(root, above);
        }
        td__tree *map = td__tree_new(j->arena, TD_TREE_MAP, t);
        td__tree *copy = td__tree_scalar(j->arena, t->text, t);
        if (!map || !copy)
            return out_of_memory(j);
        td__tree_append(map, dot + 1, copy);
        td__tree_replace(parent, t, map);
    }
    return TD_OK;
}

/* `model: [..]` is {layers: [..]}, `model: lenet5` is {name: lenet5}. */
static td_status expand_model(td__job *j, td__tree *root)
{
    td__tree *m = td__tree_get(root, "model");

    if (!m || (m->kind != TD_TREE_LIST && m->kind != TD_TREE_SCALAR))
        return TD_OK;
    td__tree *map = td__tree_new(j->arena, TD_TREE_MAP, m);
    td__tree *copy = td__arena_alloc(j->arena, sizeof *copy);
    if (!map || !copy)
        return out_of_memory(j);
    map->key_line = m->key_line;
    map->key_column = m->key_column;
    td__tree_replace(root, m, map);
    *copy = *m;
    td__tree_append(map, m->kind == TD_TREE_LIST ? "layers" : "name", copy);
    return TD_OK;
}

/* Keep one line about a key that was given by its old name. */
static td_status note_renamed(td__job *j, const char *where, const td__key *k)
{
    td__renamed *note = td__arena_alloc(j->arena, sizeof *note);

    if (note)
        note->text = td__arena_printf(j->arena, "%s: %s is now %s", where, k->was, k->path);
    if (!note || !note->text)
        return out_of_memory(j);
    note->next = j->renamed;
    j->renamed = note;
    return TD_OK;
}

/* Keys that are given by their old names get their new ones. */
static td_status rename_keys(td__job *j, td__tree *root)
{
    for (const td__key *k = td__job_keys; k->path; k++) {
        td__tree *t = k->was ? td__keys_node(root, k->was) : NULL;
        if (!t)
            continue;
        if (td__keys_node(root, k->path))
            return TD_FAIL(TD_EINVAL, "%s: %s is the old name of %s, which is given too",
                           td__tree_where_key(t).text, k->was, k->path);
        TD_TRY(note_renamed(j, td__tree_where_key(t).text, k));
        t->key = strrchr(k->path, '.') + 1;
    }
    return TD_OK;
}

/* Everything under its present name and in its full form, so that overrides find their way. */
td_status td__job_expand(td__job *j, td__tree *root)
{
    TD_TRY(rename_keys(j, root));
    TD_TRY(expand_model(j, root));
    TD_TRY(expand_mains(j, root));
    td__tree *layers = td__keys_node(root, "model.layers"),
             *maps = td__keys_node(root, "data.maps"), *train = td__tree_get(root, "train");
    if (train && train->kind == TD_TREE_MAP)
        TD_TRY(td__sync_key_expand(j->arena, train));
    if (layers)
        TD_TRY(td__layers_expand(j->arena, "model.layers", layers));
    td__tree *features = td__keys_node(root, "data.features");
    if (features)
        TD_TRY(td__features_expand(j->arena, features));
    return maps ? td__stages_expand(j->arena, maps) : TD_OK;
}

/* A name that is wrong, not a disk that fails. */
td_status td__job_open(const char *path, td__file_map *m)
{
    char text[400];
    td_status st = td__file_map_open(m, path);

    if (st != TD_EIO)
        return st;
    snprintf(text, sizeof text, "%s", td_last_error());
    return TD_FAIL(TD_EINVAL, "%s", text);
}

/* Keys of `from` in the places of those in `to`; maps are merged. */
static void overlay(td__tree *to, const td__tree *from)
{
    for (td__tree *child = from->first, *next; child; child = next) {
        td__tree *old = td__tree_get(to, child->key);
        next = child->next;
        if (old && old->kind == TD_TREE_MAP && child->kind == TD_TREE_MAP)
            overlay(old, child);
        else
            td__tree_put(to, child->key, child);
    }
}

/* "@FILE": its keys, any part of a job. */
static td_status apply_file(td__job *j, td__tree *root, const char *path)
{
    td__tree *given = NULL;
    td__file_map m;

    TD_TRY(td__job_open(path, &m));
    char *name = td__arena_strdup(j->arena, path);
    td_status st =
        name ? td__tree_parse(j->arena, (const char *)m.data, m.nbytes, name, true, &given)
             : out_of_memory(j);
    td__file_map_close(&m);
    TD_TRY(st);
    if (given->kind == TD_TREE_NULL)
        return TD_OK;
    if (given->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: expected a map with keys of a job, found %s", path,
                       td__tree_found(given).text);
    TD_TRY(rename_keys(j, given));
    overlay(root, given);
    return td__job_expand(j, root);
}

td_status td__job_override(td__job *j, td__tree *root, const char *set)
{
    td__tree *value;
    char *path;

    if (set[0] == '@')
        return apply_file(j, root, set + 1);
    TD_TRY(td__tree_parse_set(j->arena, set, &path, &value));
    for (const td__key *k = td__job_keys; k->path; k++)
        if (k->was && !strcmp(path, k->was)) {
            TD_TRY(note_renamed(j, value->source, k));
            path = td__arena_strdup(j->arena, k->path);
            if (!path)
                return out_of_memory(j);
        }
    TD_TRY(td__tree_set(j->arena, root, path, value));
    return td__job_expand(j, root);
}
