/* store_table.c -- the keys of a store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/store_table.h"

#include <string.h>

#include "base/alloc.h"

enum { FIRST_BUCKETS = 256 };

/* FNV-1a. All who can choose keys hold the secret, so there is no need for a keyed hash. */
static uint64_t hash_of(const char *key)
{
    uint64_t h = 14695981039346656037u;

    for (; *key; key++)
        h = (h ^ (uint8_t)*key) * 1099511628211u;
    return h;
}

static td__store_entry **place(const td__store_table *t, uint64_t hash)
{
    return &t->bucket[hash & (t->n_buckets - 1)];
}

td__store_entry *td__store_find(const td__store_table *t, const char *key)
{
    uint64_t hash = hash_of(key);

    if (!t->bucket)
        return NULL;
    for (td__store_entry *e = *place(t, hash); e; e = e->next)
        if (e->hash == hash && strcmp(e->key, key) == 0)
            return e;
    return NULL;
}

static bool grow(td__store_table *t)
{
    td__store_table bigger = {.n_buckets = t->n_buckets ? 2 * t->n_buckets : FIRST_BUCKETS};

    bigger.bucket = td__calloc(bigger.n_buckets, sizeof *bigger.bucket);
    if (!bigger.bucket)
        return t->bucket != NULL; /* fuller than wished, but it works */
    for (size_t i = 0; i < t->n_buckets; i++) {
        while (t->bucket[i]) {
            td__store_entry *e = t->bucket[i];
            t->bucket[i] = e->next;
            e->next = *place(&bigger, e->hash);
            *place(&bigger, e->hash) = e;
        }
    }
    td__free(t->bucket);
    t->bucket = bigger.bucket;
    t->n_buckets = bigger.n_buckets;
    return true;
}

td__store_entry *td__store_enter(td__store_table *t, const char *key)
{
    td__store_entry *e = td__store_find(t, key);
    size_t len = strlen(key);

    if (e)
        return e;
    if (t->n_entries >= TD_STORE_MOST_KEYS || (t->n_entries >= t->n_buckets && !grow(t)))
        return NULL;
    e = td__calloc(1, sizeof *e + len + 1);
    if (!e)
        return NULL;
    e->hash = hash_of(key);
    memcpy(e->key, key, len + 1);
    e->next = *place(t, e->hash);
    *place(t, e->hash) = e;
    t->n_entries++;
    return e;
}

bool td__store_put(td__store_table *t, td__store_entry *e, const void *value, size_t nbytes)
{
    if (t->n_bytes - e->nbytes + nbytes > TD_STORE_MOST_BYTES)
        return false;
    void *copy = td__malloc(nbytes ? nbytes : 1);
    if (!copy)
        return false;
    if (nbytes)
        memcpy(copy, value, nbytes);
    td__free(e->value);
    t->n_bytes += nbytes - e->nbytes;
    e->value = copy;
    e->nbytes = nbytes;
    return true;
}

void td__store_drop(td__store_table *t, td__store_entry *e)
{
    t->n_bytes -= e->nbytes;
    td__free(e->value);
    e->value = NULL;
    e->nbytes = 0;
    if (e->waiters)
        return;
    td__store_entry **at = place(t, e->hash);
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    t->n_entries--;
    td__free(e);
}

void td__store_table_fini(td__store_table *t)
{
    for (size_t i = 0; i < t->n_buckets; i++) {
        while (t->bucket[i]) {
            td__store_entry *e = t->bucket[i];
            t->bucket[i] = e->next;
            td__free(e->value);
            td__free(e);
        }
    }
    td__free(t->bucket);
    *t = (td__store_table){0};
}
