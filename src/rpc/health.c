/* health.c -- the health service; see health.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/health.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckRequest request_t;
typedef Grpc__Health__V1__HealthCheckResponse response_t;

typedef struct watcher {
    td__health *h;
    td__call *call;
    bool known; /* the service that it asked for exists */
    struct watcher *next, **link;
} watcher;

struct td__health {
    td__grpc *server;
    bool serving;
    watcher *watchers;
};

static bool knows(const td__health *h, const char *name)
{
    const td__grpc_service *s;

    if (!name[0])
        return true; /* the server as a whole */
    for (int i = 0; (s = td__grpc_service_at(h->server, i)) != NULL; i++)
        if (!strcmp(s->name, name))
            return true;
    return false;
}

static response_t status_of(const td__health *h)
{
    response_t r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    r.status = h->serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                          : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    return r;
}

static void check(td__call *c, void *arg, const void *request)
{
    td__health *h = arg;
    response_t r = status_of(h);
    const request_t *q = request;

    if (knows(h, q->service))
        td__call_reply(c, &r.base);
    else
        td__call_finish(c, TD_GRPC_NOT_FOUND, "unknown service %s", q->service);
}

static void watcher_ended(void *data, td__call *c)
{
    watcher *w = data;

    (void)c;
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    td__free(w);
}

static const td__call_events WATCHER_EVENTS = {.ended = watcher_ended};

static void tell(const watcher *w)
{
    response_t r = status_of(w->h);

    if (!w->known)
        r.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    td__call_send(w->call, &r.base);
}

static void watch(td__call *c, void *arg, const void *request)
{
    td__health *h = arg;
    watcher *w = td__calloc(1, sizeof *w);

    if (!w) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    *w = (watcher){.h = h,
                   .call = c,
                   .known = knows(h, ((const request_t *)request)->service),
                   .next = h->watchers,
                   .link = &h->watchers};
    if (w->next)
        w->next->link = &w->next;
    h->watchers = w;
    td__call_follow(c, &WATCHER_EVENTS, w);
    tell(w);
}

static const td__grpc_method METHODS[] = {
    {.name = "Check",
     .kind = TD_GRPC_UNARY,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .handle = check},
    {.name = "Watch",
     .kind = TD_GRPC_SERVER_STREAM,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .handle = watch},
};
static const td__grpc_service SERVICE = {"grpc.health.v1.Health", METHODS, TD_LEN(METHODS)};

td_status td__health_create(td__grpc *g, td__health **out)
{
    td__health *h = td__calloc(1, sizeof *h);
    td_status st;

    *out = NULL;
    if (!h)
        return TD_FAIL(TD_ENOMEM, "health: out of memory");
    h->server = g;
    h->serving = true;
    st = td__grpc_add(g, &SERVICE, h);
    if (st) {
        td__free(h);
        return st;
    }
    *out = h;
    return TD_OK;
}

void td__health_destroy(td__health *h)
{
    td__free(h);
}

void td__health_set(td__health *h, bool serving)
{
    if (h->serving == serving)
        return;
    h->serving = serving;
    for (const watcher *w = h->watchers; w; w = w->next)
        tell(w);
}
