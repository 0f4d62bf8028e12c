/* labels.c -- see labels.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/data/labels.h"

#include <string.h>

#include "base/fail.h"

enum { FIRST_BUCKETS = 16 };

/* Java's texts are UTF-16: a character beyond 16 bits counts as two. Bytes that are no UTF-8 stand
 * for themselves. */
static uint32_t java_hash(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    uint32_t h = 0;

    while (*p) {
        uint32_t c = *p++;
        int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;

        if (more)
            c &= 0x3fu >> more;
        for (; more && (*p & 0xc0) == 0x80; more--)
            c = c << 6 | (*p++ & 0x3f);
        if (c > 0xffff) {
            h = 31 * h + (0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + ((c - 0x10000) & 0x3ff);
        }
        h = 31 * h + c;
    }
    return h ^ h >> 16;
}

td_status td__labels_init(td__labels *l)
{
    *l = (td__labels){.n_buckets = FIRST_BUCKETS};
    TD_TRY(td__arena_create(&l->arena));
    l->buckets = td__calloc(FIRST_BUCKETS, sizeof *l->buckets);
    return l->buckets ? TD_OK : TD_FAIL(TD_ENOMEM, "labels: out of memory");
}

void td__labels_fini(td__labels *l)
{
    td__arena_destroy(l->arena);
    td__free(l->buckets);
}

static void append(td__label **bucket, td__label *label)
{
    while (*bucket)
        bucket = &(*bucket)->next;
    label->next = NULL;
    *bucket = label;
}

static bool grow(td__labels *l)
{
    int n = 2 * l->n_buckets;
    td__label **buckets = td__calloc((size_t)n, sizeof *buckets), *next;

    if (!buckets)
        return false;
    for (int i = 0; i < l->n_buckets; i++)
        for (td__label *k = l->buckets[i]; k; k = next) {
            next = k->next;
            append(&buckets[k->hash & (uint32_t)(n - 1)], k);
        }
    td__free(l->buckets);
    l->buckets = buckets;
    l->n_buckets = n;
    return true;
}

td__label *td__labels_find(const td__labels *l, const char *text)
{
    uint32_t hash = java_hash(text);
    td__label *k = l->buckets[hash & (uint32_t)(l->n_buckets - 1)];

    while (k && strcmp(k->text, text) != 0)
        k = k->next;
    return k;
}

td__label *td__labels_add(td__labels *l, const char *text)
{
    td__label *k = td__labels_find(l, text);

    if (k)
        return k;
    k = td__arena_alloc(l->arena, sizeof *k);
    if (!k || !(k->text = td__arena_strdup(l->arena, text)))
        return NULL;
    k->hash = java_hash(text);
    k->number = ++l->n;
    append(&l->buckets[k->hash & (uint32_t)(l->n_buckets - 1)], k);
    if (l->n > l->n_buckets / 4 * 3 && !grow(l))
        return NULL;
    return k;
}

td__label *td__labels_next(const td__labels *l, const td__label *after)
{
    int i = 0;

    if (after && after->next)
        return after->next;
    if (after)
        i = (int)(after->hash & (uint32_t)(l->n_buckets - 1)) + 1;
    while (i < l->n_buckets && !l->buckets[i])
        i++;
    return i < l->n_buckets ? l->buckets[i] : NULL;
}
