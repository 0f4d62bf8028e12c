/* foreign_horovod.c -- the rendezvous of Horovod's controller gloo: a key-value service over HTTP,
 * as Horovod's own launcher runs one.
 *
 *     PUT /scope/key      set it
 *     GET /scope/key      its value; 404: not there yet (ranks ask again every 10 ms)
 *     DELETE /scope/key   a rank has finished with the scope; its key is gone if the scope is one
 *                         that the ranks made up
 *
 * scopes     "global", "local_HOST" and "cross_LOCALRANK" are those of the three groups that every
 *            rank is in. When all ranks of one have finished with it, its keys are forgotten, so
 *            that a program may begin again (hvd.shutdown, hvd.init): keys carry the number of that
 *            round.
 * rank_and_size/HOST:LOCALRANK
 *            the place of a rank: an elastic program asks for it when it begins again.
 * worker_addresses/HOST:LOCALRANK
 *            where a rank of an elastic program listens for changes of hosts. Kept, not used: when
 *            a rank fails here, all are started again (--restarts).
 *
 * The protocol knows no authentication: the server of each host listens on its loopback interface
 * alone, and keys go to the other hosts through the rendezvous store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "launch/foreign/foreign_impl.h"

enum { OK = 200, BAD = 400, NOT_FOUND = 404, FAILED = 500, KEY = 256 };

/* Keys of the store: how many ranks have finished with a scope; how often one said so. */
static const char FINISHED[] = "foreign/horovod-finished/", LEFT[] = "foreign/horovod-left/";

typedef struct server {
    void *http;
    char address[TD_FOREIGN_HTTP_ADDRESS];
    char interface[64]; /* by which the others reach this host; "": unknown */
} server;

static td_status check(const td__foreign_http *http)
{
    return http ? TD_OK
                : TD_FAIL(TD_ENOTSUP, "this program was built without an HTTP server (TD_SERVICE)");
}

/* ---- scopes ---- */

/* Ranks of a scope that every launcher of Horovod knows; 0: it is none of these. */
static int scope_size(const td__hosts *h, const char *scope)
{
    char *end;
    int n = 0;
    if (!strcmp(scope, "global"))
        return h->size;
    for (int i = 0; !strncmp(scope, "local_", 6) && i < h->n; i++)
        if (!strcmp(scope + 6, h->host[i].name))
            return h->host[i].count;
    if (strncmp(scope, "cross_", 6) != 0 || !scope[6])
        return 0;
    long local = strtol(scope + 6, &end, 10);
    for (int i = 0; !*end && i < h->n; i++)
        n += h->host[i].count > local;
    return n;
}

static td_status join(const char *prefix, const char *name, char out[KEY])
{
    return snprintf(out, KEY, "%s%s", prefix, name) < KEY
               ? TD_OK
               : TD_FAIL(TD_EINVAL, "Horovod: the key %.60s... is too long", name);
}

/* How many ranks have finished with a scope. Asked for by every poll of a rank: a question, which
 * changes nothing that other hosts would have to forget. */
static td_status count_finished(td__foreign *f, const char *counter, long long *out)
{
    void *value = NULL;
    size_t nbytes = 0;
    char text[32] = "";
    *out = 0;
    TD_TRY(td__store_get(f->exchange.store, counter, td__deadline_in_ms(TD_EXCHANGE_ASK_MS), &value,
                         &nbytes));
    if (value && nbytes < sizeof text)
        memcpy(text, value, nbytes);
    td__free(value);
    *out = strtoll(text, NULL, 10);
    return TD_OK;
}

static td_status name_key(td__foreign *f, const char *scope, const char *key, char out[KEY])
{
    int size = scope_size(&f->s->hosts, scope);
    long long finished = 0;
    TD_TRY(join(FINISHED, scope, out));
    if (size)
        TD_TRY(count_finished(f, out, &finished));
    int n =
        snprintf(out, KEY, "foreign/horovod/%s/%lld/%s", scope, size ? finished / size : 0, key);
    return n < KEY ? TD_OK : TD_FAIL(TD_EINVAL, "Horovod: the key %.60s... is too long", key);
}

static unsigned give(td__foreign *f, const char *name, td__text *out)
{
    void *value = NULL;
    size_t nbytes = 0;
    if (td__store_get(f->exchange.store, name, td__deadline_in_ms(TD_EXCHANGE_ASK_MS), &value,
                      &nbytes))
        return FAILED;
    if (!value)
        return NOT_FOUND;
    td__text_append(out, value, nbytes);
    td__free(value);
    return OK;
}

static unsigned finish(td__foreign *f, const char *scope, const char *name)
{
    char counter[KEY], once[KEY];
    int64_t n;
    td__deadline until = td__deadline_in_ms(TD_EXCHANGE_ASK_MS);
    if (!scope_size(&f->s->hosts, scope))
        return td__store_delete(f->exchange.store, name, until) ? FAILED : OK;
    /* A key, which has the round in its name, counts once, whoever says it again. */
    if (join(LEFT, name, once) || join(FINISHED, scope, counter))
        return BAD;
    if (td__store_add(f->exchange.store, once, 1, until, &n))
        return FAILED;
    if (n > 1)
        return OK;
    return td__store_add(f->exchange.store, counter, 1, until, &n) ? FAILED : OK;
}

/* "rank,size,local rank,local size,cross rank,cross size" of "host:local rank"; -1 for all: it has
 * no place. */
static void give_place(td__foreign *f, const char *key, td__text *out)
{
    const td__hosts *h = &f->s->hosts;
    const char *colon = strrchr(key, ':');
    long local = colon ? strtol(colon + 1, NULL, 10) : -1;
    for (int i = 0; colon && i < h->n; i++) {
        td__world_place p;
        if (strlen(h->host[i].name) != (size_t)(colon - key) ||
            strncmp(h->host[i].name, key, (size_t)(colon - key)) != 0 || local < 0 ||
            local >= h->host[i].count)
            continue;
        td__world_find(h, i, (int)local, &p);
        td__text_printf(out, "%d,%d,%d,%d,%d,%d", p.rank, p.size, p.local_rank, p.local_size,
                        p.cross_rank, p.cross_size);
        return;
    }
    td__text_printf(out, "-1,-1,-1,-1,-1,-1");
}

static unsigned answer(void *user, const char *method, const char *scope, const char *key,
                       const void *body, size_t nbytes, td__text *out)
{
    td__foreign *f = user;
    char name[KEY];
    bool get = !strcmp(method, "GET");
    if (get && !strcmp(scope, "rank_and_size")) {
        give_place(f, key, out);
        return OK;
    }
    td_status st = name_key(f, scope, key, name);
    if (st)
        return st == TD_EINVAL ? BAD : FAILED;
    if (get)
        return give(f, name, out);
    if (!strcmp(method, "DELETE"))
        return finish(f, scope, name);
    return td__store_set(f->exchange.store, name, body, nbytes,
                         td__deadline_in_ms(TD_EXCHANGE_ASK_MS))
               ? FAILED
               : OK;
}

/* ---- the server ---- */

/* Which interface has this address: gloo listens there. */
static void find_interface(const char *address, char out[64])
{
    struct ifaddrs *all, *i;
    char text[64];
    out[0] = 0;
    if (getifaddrs(&all))
        return;
    for (i = all; i && !out[0]; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, text,
                      sizeof text) &&
            !strcmp(text, address))
            snprintf(out, 64, "%.63s", i->ifa_name);
    freeifaddrs(all);
}

static td_status create(td__foreign *f)
{
    server *s = f->server = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a server of Horovod");
    TD_TRY(check(f->s->http));
    find_interface(f->s->address, s->interface);
    return f->s->http->start("127.0.0.1:0", answer, f, &s->http, s->address);
}

static td_status rank_env(td__foreign *f, int rank, td__texts *env, int *fd)
{
    server *s = f->server;
    const char *colon = strrchr(s->address, ':');
    (void)rank, (void)fd;
    td__texts_add(env, "HOROVOD_GLOO_RENDEZVOUS_ADDR=%.*s", (int)(colon ? colon - s->address : 0),
                  s->address);
    td__texts_add(env, "HOROVOD_GLOO_RENDEZVOUS_PORT=%s", colon ? colon + 1 : "");
    td__texts_add(env, "HOROVOD_CONTROLLER=gloo");
    td__texts_add(env, "HOROVOD_CPU_OPERATIONS=gloo");
    if (s->interface[0])
        td__texts_add(env, "HOROVOD_GLOO_IFACE=%s", s->interface);
    return TD_OK;
}

static void destroy(td__foreign *f)
{
    server *s = f->server;
    if (s->http)
        f->s->http->stop(s->http);
    td__free(s);
}

const td__foreign_ops td__foreign_horovod = {
    .check = check, .create = create, .rank = rank_env, .destroy = destroy};
