/* sync_keys.c -- train.sync: a sync rule by its name, and its options, which are rows of the rule's
 * own table (parallel/sync.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "job/job_impl.h"

static const char AUTO[] = "auto";

static const char *rule_word(int i)
{
    return i == 0 ? AUTO : td__sync_rules[i - 1] ? td__sync_rules[i - 1]->name : NULL;
}

/* The keys below train.sync of a rule; `auto` (NULL) has no options. Each is left out of digests at
 * its default, so that a rule may get more of them. */
static void rule_keys(const td__sync_ops *rule, td__key keys[TD__SYNC_SETTINGS + 2])
{
    int n = 0;

    keys[n++] = (td__key)TD_KEY_ROW("rule", WORD, "", .list = rule_word, .def = AUTO);
    for (const td__key *k = rule ? rule->options : NULL; k && k->path; k++) {
        keys[n] = *k;
        keys[n++].flags |= TD_KEY_LATER;
    }
    keys[n] = (td__key)TD_KEYS_END;
}

td_status td__sync_key_expand(td__arena *a, td__tree *train)
{
    td__tree *t = td__tree_get(train, "sync");

    if (!t || t->kind != TD_TREE_SCALAR)
        return TD_OK;
    td__tree *map = td__tree_new(a, TD_TREE_MAP, t), *name = td__tree_scalar(a, t->text, t);
    if (!map || !name)
        return TD_FAIL(TD_ENOMEM, "job: out of memory");
    map->key_line = t->key_line;
    map->key_column = t->key_column;
    td__tree_append(map, "rule", name);
    td__tree_replace(train, t, map);
    return TD_OK;
}

td_status td__sync_key_resolve(td__arena *a, td__tree *train)
{
    td__key keys[TD__SYNC_SETTINGS + 2];
    td__tree *out;

    TD_TRY(td__sync_key_expand(a, train));
    const td__tree *given = td__tree_get(train, "sync");
    if (given->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: train.sync: expected a sync rule, found %s",
                       td__tree_where(given).text, td__tree_found(given).text);
    const char *name = td__keys_text(given, "rule");
    const td__sync_ops *rule = name ? td__sync_named(name) : NULL;
    rule_keys(rule, keys);
    if (name && !rule && strcmp(name, AUTO) != 0) { /* says so, whatever else there is */
        td__tree *only = td__tree_new(a, TD_TREE_MAP, given);
        td__tree *copy = td__tree_scalar(a, name, td__tree_get(given, "rule"));
        if (!only || !copy)
            return TD_FAIL(TD_ENOMEM, "job: out of memory");
        td__tree_append(only, "rule", copy);
        given = only;
    }
    TD_TRY(td__keys_resolve(a, keys, "train.sync.", given, given, &out));
    if (!rule || rule->fits) /* the numbers are those of auto */
        out->digest_key = "";
    td__tree_put(train, "sync", out);
    return TD_OK;
}

td_status td__sync_key_fill(td__job *j)
{
    const td__tree *t = j->sync;
    const td__sync_ops *rule = td__sync_named(td__keys_text(t, "rule"));
    td__sync_config *c = &j->train.sync;

    if (!rule)
        return TD_OK;
    c->rule = rule->name;
    for (const td__key *k = rule->options; k && k->path; k++)
        c->set[c->n_set++] =
            (td__sync_setting){k->path, td__key_real(k, td__keys_text(t, k->path))};
    td__sync_job job = {.optim = &j->train.optim,
                        .threads = j->train.threads,
                        .verify = j->train.verify,
                        .backend = j->train.backend};
    td_status st = td__sync_check(c, &job, &(td__sync_world){.ranks = 1});
    if (!st)
        return TD_OK;
    char text[400];
    snprintf(text, sizeof text, "%s", td_last_error());
    return TD_FAIL(st, "%s: %s", td__tree_where(t).text, text);
}

void td__help_sync(FILE *to, bool markdown)
{
    for (const td__sync_ops *const *r = td__sync_rules; *r; r++) {
        fprintf(to, markdown ? "\n**%s**: %s. Promise: %s.\n" : "\n  %s: %s\n      promise: %s\n",
                (*r)->name, (*r)->help, (*r)->promise);
        if (!(*r)->options)
            continue;
        if (markdown)
            fputc('\n', to);
        td__help_keys(to, (*r)->options, markdown);
    }
}
