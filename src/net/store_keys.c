/* store_keys.c -- what a request does to the keys of the root store.
 *
 * A wait for one key hangs on that key; a wait for many hangs on the first that is missing, and
 * moves on from there when it comes: each key is looked at once per wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "net/store_server_impl.h"

static const td__store_reply OK = {.status = TD_OK};

static td_status full(const char *key)
{
    return TD_FAIL(TD_ENOMEM, "store: no room for key %s", key);
}

static void reply_value(td__store_server *s, td__ss_client *c, uint32_t id,
                        const td__store_entry *e)
{
    td__store_reply r = {.status = TD_OK, .flags = e && e->value ? TD_STORE_HAS_VALUE : 0};
    td__ss_reply(s, c, id, &r, r.flags ? e->value : NULL, r.flags ? e->nbytes : 0);
}

/* "prefix" + index; the length was checked when the wait came. */
static void key_of(const char *prefix, int index, char key[TD_STORE_KEY_BYTES + 1])
{
    snprintf(key, TD_STORE_KEY_BYTES + 1, "%.*s%d", TD_STORE_PREFIX_BYTES, prefix, index);
}

static void reply_all(td__store_server *s, const td__store_waiter *w)
{
    char key[TD_STORE_KEY_BYTES + 1];
    size_t total = 0, at = 0;

    for (int i = 0; i < w->n; i++) {
        key_of(w->prefix, i, key);
        total += sizeof(uint32_t) + td__store_find(&s->keys, key)->nbytes;
    }
    uint8_t *all = total <= TD_STORE_REPLY_BYTES / 2 ? td__malloc(total + 1) : NULL;
    if (!all) {
        td_status st = TD_FAIL(TD_ENOMEM, "store: the values of %s0..%d are %zu bytes", w->prefix,
                               w->n - 1, total);
        td__ss_reply_error(s, w->client, w->id, st);
        return;
    }
    for (int i = 0; i < w->n; i++) {
        key_of(w->prefix, i, key);
        const td__store_entry *e = td__store_find(&s->keys, key);
        uint32_t nbytes = (uint32_t)e->nbytes;
        memcpy(all + at, &nbytes, sizeof nbytes);
        memcpy(all + at + sizeof nbytes, e->value, e->nbytes);
        at += sizeof nbytes + e->nbytes;
    }
    td__store_reply r = {.status = TD_OK, .flags = TD_STORE_HAS_VALUE};
    td__ss_reply(s, w->client, w->id, &r, all, total);
    td__free(all);
}

static void waiter_free(td__store_server *s, td__store_waiter *w)
{
    if (w->server_prev)
        w->server_prev->server_next = w->server_next;
    else
        s->waiters = w->server_next;
    if (w->server_next)
        w->server_next->server_prev = w->server_prev;
    td__free(w);
}

/* The first key that is not there, from `index` on; n if all are. */
static int first_missing(td__store_server *s, const td__store_waiter *w, int index)
{
    char key[TD_STORE_KEY_BYTES + 1];

    for (; index < w->n; index++) {
        key_of(w->prefix, index, key);
        const td__store_entry *e = td__store_find(&s->keys, key);
        if (!e || !e->value)
            break;
    }
    return index;
}

/* Answer if everything is there, else hang the waiter on what is missing first. */
static void settle(td__store_server *s, td__store_waiter *w)
{
    char key[TD_STORE_KEY_BYTES + 1];
    td__store_entry *e = NULL;

    if (w->all) {
        w->index = first_missing(s, w, w->index);
        if (w->index == w->n) /* keys that were there may have been deleted since */
            w->index = first_missing(s, w, 0);
        key_of(w->prefix, w->index, key);
    }
    if (w->index < w->n) {
        e = td__store_enter(&s->keys, w->all ? key : w->prefix);
        w->index += !w->all && e && e->value;
    }
    if (w->index < w->n && e) {
        w->entry = e;
        w->next = e->waiters;
        e->waiters = w;
        return;
    }
    if (w->index < w->n)
        td__ss_reply_error(s, w->client, w->id, full(w->prefix));
    else if (w->all)
        reply_all(s, w);
    else
        reply_value(s, w->client, w->id, e);
    waiter_free(s, w);
}

static void wait_for(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    bool all = p->op == TD_STORE_WAIT_ALL;

    if (all && (p->number < 0 || p->number > TD_STORE_MOST_RANKS ||
                strlen(p->key) > TD_STORE_PREFIX_BYTES)) {
        td_status st = TD_FAIL(TD_EINVAL, "store: cannot wait for %lld keys %s...",
                               (long long)p->number, p->key);
        td__ss_reply_error(s, c, p->id, st);
        return;
    }
    td__store_waiter *w = td__calloc(1, sizeof *w);
    if (!w) {
        td__ss_reply_error(s, c, p->id, full(p->key));
        return;
    }
    w->client = c;
    w->id = p->id;
    w->all = all;
    w->n = all ? (int)p->number : 1;
    memcpy(w->prefix, p->key, sizeof w->prefix);
    w->server_next = s->waiters;
    if (s->waiters)
        s->waiters->server_prev = w;
    s->waiters = w;
    settle(s, w);
}

/* Store a value and wake the clients that wait for it; replies in case of failure only. */
static bool put(td__store_server *s, td__ss_client *c, const td__store_parts *p, const void *value,
                size_t nbytes)
{
    td__store_entry *e = td__store_enter(&s->keys, p->key);

    if (e && e->value)
        td__ss_forget(s, p->key);
    if (!e || !td__store_put(&s->keys, e, value, nbytes)) {
        td__ss_reply_error(s, c, p->id, full(p->key));
        return false;
    }
    td__store_waiter *w = e->waiters;
    e->waiters = NULL;
    while (w) {
        td__store_waiter *next = w->next;
        w->entry = NULL;
        settle(s, w);
        w = next;
    }
    return true;
}

static void set(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    if (put(s, c, p, p->value, p->nbytes))
        td__ss_reply(s, c, p->id, &OK, NULL, 0);
}

static void get(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    reply_value(s, c, p->id, td__store_find(&s->keys, p->key));
}

static void add(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    const td__store_entry *e = td__store_find(&s->keys, p->key);
    char text[32] = "0", *end = text;
    long long old, sum;

    if (e && e->value) {
        size_t n = e->nbytes < sizeof text ? e->nbytes : sizeof text - 1;
        memcpy(text, e->value, n);
        text[n] = 0;
    }
    errno = 0;
    old = strtoll(text, &end, 10);
    if (*end || end == text || errno || __builtin_add_overflow(old, p->number, &sum)) {
        td_status st = TD_FAIL(TD_EINVAL, "store: cannot add %lld to key %s, whose value is %.20s",
                               (long long)p->number, p->key, text);
        td__ss_reply_error(s, c, p->id, st);
        return;
    }
    int n = snprintf(text, sizeof text, "%lld", sum);
    td__store_reply r = {.status = TD_OK, .number = sum};
    if (put(s, c, p, text, (size_t)n))
        td__ss_reply(s, c, p->id, &r, NULL, 0);
}

static void compare_set(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    const td__store_entry *e = td__store_find(&s->keys, p->key);
    bool exists = e && e->value;
    bool same = p->expect ? exists && e->nbytes == p->expect_nbytes &&
                                memcmp(e->value, p->expect, e->nbytes) == 0
                          : !exists;
    td__store_reply r = {.status = TD_OK, .number = same};

    if (!same || put(s, c, p, p->value, p->nbytes))
        td__ss_reply(s, c, p->id, &r, NULL, 0);
}

static void delete (td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    td__store_entry *e = td__store_find(&s->keys, p->key);

    if (e) {
        td__ss_forget(s, p->key);
        td__store_drop(&s->keys, e);
    }
    td__ss_reply(s, c, p->id, &OK, NULL, 0);
}

void td__ss_keys_handle(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    static void (*const HANDLERS[TD_STORE_OP_COUNT])(td__store_server * s, td__ss_client * c,
                                                     const td__store_parts *p) = {
        [TD_STORE_SET] = set,           [TD_STORE_GET] = get, [TD_STORE_WAIT] = wait_for,
        [TD_STORE_WAIT_ALL] = wait_for, [TD_STORE_ADD] = add, [TD_STORE_COMPARE_SET] = compare_set,
        [TD_STORE_DELETE] = delete,
    };
    HANDLERS[p->op](s, c, p);
}

void td__ss_keys_cancel(td__store_server *s, const td__ss_client *c, const uint32_t *id)
{
    td__store_waiter *next;

    for (td__store_waiter *w = s->waiters; w; w = next) {
        next = w->server_next;
        if (w->client != c || (id && w->id != *id))
            continue;
        td__store_waiter **at = &w->entry->waiters;
        while (*at != w)
            at = &(*at)->next;
        *at = w->next;
        if (!w->entry->value)
            td__store_drop(&s->keys, w->entry);
        waiter_free(s, w);
    }
}

void td__ss_keys_fini(td__store_server *s)
{
    while (s->waiters)
        waiter_free(s, s->waiters);
    td__store_table_fini(&s->keys);
}
