/* http_pool.c -- HTTP clients for several threads (see http_pool.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/http_pool.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "remote/http_impl.h"

typedef struct entry {
    td__http *client;
    bool taken;
    struct entry *next;
} entry;

struct td__http_pool {
    pthread_mutex_t lock; /* everything below */
    entry *entries;
    bool stopped;
    td__http *options; /* a client that only holds the options: never used, never given out */
};

td_status td__http_pool_create(const td__http_opts *o, td__http_pool **out)
{
    td__http_pool *p = td__calloc(1, sizeof *p);

    *out = NULL;
    if (!p)
        return TD_FAIL(TD_ENOMEM, "out of memory for HTTP clients");
    pthread_mutex_init(&p->lock, NULL);
    td_status st = td__http_create(o, &p->options);
    if (st)
        td__http_pool_destroy(p);
    else
        *out = p;
    return st;
}

void td__http_pool_destroy(td__http_pool *p)
{
    if (!p)
        return;
    for (entry *e = p->entries, *next; e; e = next) {
        next = e->next;
        TD_ASSERT(!e->taken, "an HTTP client is still in use");
        td__http_destroy(e->client);
        td__free(e);
    }
    td__http_destroy(p->options);
    pthread_mutex_destroy(&p->lock);
    td__free(p);
}

static td_status add_client(td__http_pool *p, entry **out)
{
    entry *e = td__calloc(1, sizeof *e);

    if (!e)
        return TD_FAIL(TD_ENOMEM, "out of memory for an HTTP client");
    td_status st = td__http_create(&p->options->opts, &e->client);
    if (st) {
        td__free(e);
        return st;
    }
    if (p->stopped)
        td__http_stop(e->client);
    e->next = p->entries;
    p->entries = e;
    *out = e;
    return TD_OK;
}

td_status td__http_pool_take(td__http_pool *p, td__http **out)
{
    td_status st = TD_OK;
    entry *e;

    pthread_mutex_lock(&p->lock);
    for (e = p->entries; e && e->taken; e = e->next)
        continue;
    if (!e)
        st = add_client(p, &e);
    if (!st) {
        e->taken = true;
        *out = e->client;
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

void td__http_pool_give(td__http_pool *p, td__http *h)
{
    pthread_mutex_lock(&p->lock);
    for (entry *e = p->entries; e; e = e->next)
        if (e->client == h)
            e->taken = false;
    pthread_mutex_unlock(&p->lock);
}

void td__http_pool_stop(td__http_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    for (entry *e = p->entries; e; e = e->next)
        td__http_stop(e->client);
    pthread_mutex_unlock(&p->lock);
}

td_status td__http_pool_call(td__http_pool *p, const td__http_request *q, td__http_response *r)
{
    td__http *h;

    *r = (td__http_response){0};
    TD_TRY(td__http_pool_take(p, &h));
    td_status st = td__http_call(h, q, r);
    td__http_pool_give(p, h);
    return st;
}
