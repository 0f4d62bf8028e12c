/* store_up.c -- a store below another: requests go up, answers come down, and the answers of waits
 * stay here. A thousand ranks of a host that wait for the same world cost the store above one
 * question.
 *
 * What is remembered is dropped when a write to it passes through here, and when the root says that
 * it was changed (FORGET). That word comes down the same connection as the answers, behind those
 * that it makes obsolete, so a copy is old for the time of a message and no longer; `get` always
 * goes up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "net/store_server_impl.h"

typedef struct asker {
    struct asker *next;
    td__ss_client *client;
    uint32_t id;
} asker;

/* A question that went up, and who asked it. */
struct td__ss_forward {
    td__ss_forward *next;
    uint32_t id;
    td__store_op op;
    int64_t number;
    char key[TD_STORE_KEY_BYTES + 1];
    asker *askers;
};

enum { ALL_KEY_BYTES = TD_STORE_KEY_BYTES + 32 };

static bool is_wait(td__store_op op)
{
    return op == TD_STORE_WAIT || op == TD_STORE_WAIT_ALL;
}

/* Where the answer of a wait is remembered. */
static td__store_table *memory_of(td__store_server *s, td__store_op op, const char *key,
                                  int64_t number, char name[ALL_KEY_BYTES])
{
    if (op == TD_STORE_WAIT)
        snprintf(name, ALL_KEY_BYTES, "%s", key);
    else
        snprintf(name, ALL_KEY_BYTES, "%lld %s", (long long)number, key);
    return op == TD_STORE_WAIT ? &s->keys : &s->alls;
}

static bool ask(td__ss_forward *f, td__ss_client *c, uint32_t id)
{
    asker *a = td__malloc(sizeof *a);

    if (!a)
        return false;
    *a = (asker){.next = f->askers, .client = c, .id = id};
    f->askers = a;
    return true;
}

/* A write passes through: forget what it may change. */
static void forget(td__store_server *s, const char *key)
{
    td__store_entry *e = td__store_find(&s->keys, key), *next;

    if (e)
        td__store_drop(&s->keys, e);
    for (size_t i = 0; i < s->alls.n_buckets; i++) {
        for (e = s->alls.bucket[i]; e; e = next) {
            const char *prefix = strchr(e->key, ' ') + 1;
            next = e->next;
            if (strncmp(key, prefix, strlen(prefix)) == 0)
                td__store_drop(&s->alls, e);
        }
    }
}

void td__ss_forget(td__store_server *s, const char *key)
{
    td__store_parts p = {.op = TD_STORE_FORGET};

    if (s->up)
        forget(s, key);
    snprintf(p.key, sizeof p.key, "%s", key);
    for (td__ss_client *c = s->clients; c; c = c->next)
        if (c->is_store && !c->gone)
            td__ss_request(s, c, &p, 0);
}

static void forward_free(td__ss_forward *f)
{
    while (f->askers) {
        asker *a = f->askers;
        f->askers = a->next;
        td__free(a);
    }
    td__free(f);
}

static td__ss_forward *forward_create(td__store_server *s, const td__store_parts *p)
{
    td__ss_forward *f = td__calloc(1, sizeof *f);

    if (!f)
        return NULL;
    f->id = ++s->last_forward;
    f->op = p->op;
    f->number = p->number;
    memcpy(f->key, p->key, sizeof f->key);
    f->next = s->forwards;
    s->forwards = f;
    return f;
}

static td__ss_forward *same_question(const td__store_server *s, const td__store_parts *p)
{
    for (td__ss_forward *f = s->forwards; f; f = f->next)
        if (f->op == p->op && f->number == p->number && strcmp(f->key, p->key) == 0)
            return f;
    return NULL;
}

void td__ss_up_handle(td__store_server *s, td__ss_client *c, const td__store_parts *p)
{
    td__ss_forward *f = NULL;
    bool asked = false;

    if (is_wait(p->op)) {
        char name[ALL_KEY_BYTES];
        const td__store_table *t = memory_of(s, p->op, p->key, p->number, name);
        const td__store_entry *e = td__store_find(t, name);
        if (e) {
            td__store_reply r = {.status = TD_OK, .flags = TD_STORE_HAS_VALUE};
            td__ss_reply(s, c, p->id, &r, e->value, e->nbytes);
            return;
        }
        f = same_question(s, p);
        asked = f != NULL;
    } else if (p->op != TD_STORE_GET && p->op != TD_STORE_JOIN) {
        forget(s, p->key);
    }
    f = f ? f : forward_create(s, p);
    if (!f || !ask(f, c, p->id)) {
        td__ss_reply_error(s, c, p->id, TD_FAIL(TD_ENOMEM, "store: a question to the store above"));
        return;
    }
    if (!asked)
        td__ss_request(s, s->up, p, f->id);
}

void td__ss_up_answer(td__store_server *s, const td__frame *frame, const void *payload)
{
    td__ss_forward **at = &s->forwards;
    td__store_reply r;

    while (*at && (*at)->id != frame->tag)
        at = &(*at)->next;
    if (!*at || frame->length < sizeof r)
        return;
    td__ss_forward *f = *at;
    *at = f->next;
    memcpy(&r, payload, sizeof r);
    const uint8_t *value = (const uint8_t *)payload + sizeof r;
    size_t nbytes = (size_t)frame->length - sizeof r;
    for (const asker *a = f->askers; a; a = a->next)
        td__ss_reply(s, a->client, a->id, &r, value, nbytes);
    if (is_wait(f->op) && r.status == TD_OK) {
        char name[ALL_KEY_BYTES];
        td__store_table *t = memory_of(s, f->op, f->key, f->number, name);
        td__store_entry *e = td__store_enter(t, name);
        if (e && !td__store_put(t, e, value, nbytes))
            td__store_drop(t, e); /* it will be asked for again */
    }
    forward_free(f);
}

void td__ss_up_cancel(td__store_server *s, const td__ss_client *c, const uint32_t *id)
{
    for (td__ss_forward *f = s->forwards; f; f = f->next) {
        for (asker **at = &f->askers; *at;) {
            asker *a = *at;
            if (a->client == c && (!id || a->id == *id)) {
                *at = a->next;
                td__free(a);
            } else {
                at = &a->next;
            }
        }
    }
}

void td__ss_up_fini(td__store_server *s)
{
    while (s->forwards) {
        td__ss_forward *f = s->forwards;
        s->forwards = f->next;
        forward_free(f);
    }
    td__store_table_fini(&s->alls);
}
