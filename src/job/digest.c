/* digest.c -- what decides the numbers of a job: its sha256, as canonical text, and where two jobs
 * differ in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "base/sha256.h"
#include "job/job_impl.h"
#include "optim/schedule.h"

static bool is_length(const td__key *k)
{
    return !strcmp(k->path, "train.epochs") || !strcmp(k->path, "train.steps");
}

/* How long a run is decides its numbers only where the learning rate ends with it. */
static bool is_free(const td__job *j, const td__key *k)
{
    const char *schedule = j->train.schedule.name;

    if (is_length(k))
        return !td__schedule_has_end(schedule) || j->train.schedule.total_steps > 0;
    /* Plateau listens to validations: when they come, and of what. */
    if (!strncmp(k->path, "train.eval.", 11) || !strcmp(k->path, "train.early_stop.watch"))
        return strcmp(schedule, "plateau") != 0;
    return (k->flags & TD_KEY_FREE) || !strcmp(k->path, "metrics");
}

static ssize_t into_hash(void *hash, const char *text, size_t nbytes)
{
    td__sha256_update(hash, text, nbytes);
    return (ssize_t)nbytes;
}

/* A copy as the first version of the program would have written it: keys have their first names,
 * and those that it did not have are left out at their defaults. NULL: out of memory. */
static td__tree *first_form(td__arena *a, const td__tree *t)
{
    td__tree *copy = td__arena_alloc(a, sizeof *copy);

    if (!copy)
        return NULL;
    *copy = *t;
    copy->first = copy->last = copy->next = NULL;
    copy->count = 0;
    for (const td__tree *c = t->first; c; c = c->next) {
        const char *key = c->digest_key ? c->digest_key : c->key;
        if (key && !*key)
            continue;
        td__tree *child = first_form(a, c);
        if (!child)
            return NULL;
        td__tree_append(copy, key, child);
    }
    return copy;
}

/* `train.seed: 1` and so on, in the order of the table. */
static td_status write_keys(const td__job *j, FILE *to)
{
    for (const td__key *k = td__job_keys; k->path; k++) {
        const td__tree *t = td__keys_node(j->root, k->path);
        const char *key = t && t->digest_key ? t->digest_key : k->path;
        if (!t || is_free(j, k) || !*key)
            continue;
        td__tree *value = first_form(j->arena, t), map = {.kind = TD_TREE_MAP};
        if (!value)
            return TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
        td__tree_append(&map, key, value);
        TD_TRY(td__tree_write(&map, to));
    }
    return TD_OK;
}

td_status td__job_digest(const td__job *j, char hex[65])
{
    uint8_t digest[TD_SHA256_BYTES];
    td__sha256 hash;

    TD_TRY(td__sha256_init(&hash));
    FILE *f = fopencookie(&hash, "w", (cookie_io_functions_t){.write = into_hash});
    td_status st = f ? write_keys(j, f) : TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
    if (f && fclose(f) && !st)
        st = TD_FAIL(TD_ENOMEM, "%s: out of memory", j->file);
    if (!st) {
        td__sha256_final(&hash, digest);
        td__sha256_hex(digest, hex);
    }
    td__sha256_fini(&hash);
    return st;
}

/* The first place where two values differ: `path` grows on the way down, and names it. */
static bool differ(const td__tree *a, const td__tree *b, char *path, size_t room,
                   const td__tree **x, const td__tree **y)
{
    size_t len = strlen(path);

    *x = a;
    *y = b;
    if (!a || !b)
        return a != b;
    if (a->kind != b->kind || a->count != b->count)
        return true;
    if (a->kind == TD_TREE_SCALAR)
        return strcmp(a->text, b->text) != 0;
    int i = 0;
    for (const td__tree *c = a->first, *d = b->first; c && d; c = c->next, d = d->next, i++) {
        if (c->key && d->key && strcmp(c->key, d->key) != 0)
            return true;
        if (c->key)
            snprintf(path + len, room - len, ".%s", c->key);
        else
            snprintf(path + len, room - len, ".%d", i);
        if (differ(c, d, path, room, x, y))
            return true;
        path[len] = 0;
    }
    return false;
}

/* The first key that differs: of those that say how long a run is, or of the others. */
static bool differs(const td__job *a, const td__job *b, bool length, char *what, size_t nbytes)
{
    char path[256];
    const td__tree *x, *y;

    for (const td__key *k = td__job_keys; k->path; k++) {
        if (is_length(k) != length || (is_free(a, k) && is_free(b, k)))
            continue;
        snprintf(path, sizeof path, "%s", k->path);
        if (!differ(td__keys_node(a->root, k->path), td__keys_node(b->root, k->path), path,
                    sizeof path, &x, &y))
            continue;
        snprintf(what, nbytes, "%s (%s, now %s)", path, x ? td__tree_found(x).text : "nothing",
                 y ? td__tree_found(y).text : "nothing");
        return true;
    }
    return false;
}

bool td__job_differs(const td__job *a, const td__job *b, char *what, size_t nbytes)
{
    return differs(a, b, false, what, nbytes);
}

bool td__job_ends_elsewhere(const td__job *a, const td__job *b, char *what, size_t nbytes)
{
    return differs(a, b, true, what, nbytes);
}
