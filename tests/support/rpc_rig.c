/* rpc_rig.c -- see rpc_rig.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/rpc_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "support/check.h"

/* A service whose messages are those of the health check: a text in, a number out. */
typedef Grpc__Health__V1__HealthCheckRequest Text;
typedef Grpc__Health__V1__HealthCheckResponse Number;

void rpc_rig_answer(td__call *c, int number)
{
    Number n = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    n.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)number;
    td__call_send(c, &n.base);
}

static void on_ended(void *data, td__call *c)
{
    rpc_rig *r = data;

    CHECK(c == r->held, "another call has ended");
    r->held = NULL;
    r->ended++;
}

static void on_drained(void *data, td__call *c)
{
    rpc_rig *r = data;

    CHECK(c == r->held, "another call has drained");
    r->drained++;
}

static const td__call_events EVENTS = {.ended = on_ended, .drained = on_drained};

static void hold(rpc_rig *r, td__call *c)
{
    r->held = c;
    td__call_follow(c, &EVENTS, r);
}

/* What to do is in the text of the request. */
static void unary(td__call *c, void *arg, const void *request)
{
    rpc_rig *r = arg;
    const Text *t = request;
    Number n = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    r->handled++;
    n.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)strlen(t->service);
    if (!strcmp(t->service, "fail"))
        td__call_finish(c, TD_GRPC_NOT_FOUND, "50%% of caf\xc3\xa9\n");
    else if (!strcmp(t->service, "hold"))
        hold(r, c);
    else
        td__call_reply(c, &n.base);
}

static void stream(td__call *c, void *arg, const void *request)
{
    rpc_rig *r = arg;
    const Text *t = request;
    long n = strtol(t->service, NULL, 10);

    r->handled++;
    for (long i = 0; i < n; i++)
        rpc_rig_answer(c, (int)i);
    if (n)
        td__call_finish(c, TD_GRPC_OK, "%s", "");
    else
        hold(r, c);
}

static void bidi(td__call *c, void *arg, const void *request)
{
    rpc_rig *r = arg;

    r->handled++;
    rpc_rig_answer(c, (int)strlen(((const Text *)request)->service));
}

/* Its first text is followed until the end, whose answer is the number of texts. */
static void collect(td__call *c, void *arg, const void *request)
{
    rpc_rig *r = arg;

    (void)request;
    r->handled++;
    if (!td__call_data(c))
        hold(r, c);
    CHECK(td__call_data(c) == r, "a call does not know its data");
}

static void collected(td__call *c, void *arg)
{
    rpc_rig *r = arg;

    r->held = NULL;
    rpc_rig_answer(c, r->handled);
    td__call_finish(c, TD_GRPC_OK, "%s", "");
}

static const td__grpc_method METHODS[] = {
    {.name = "Unary",
     .kind = TD_GRPC_UNARY,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .handle = unary,
     .tag = 7},
    {.name = "Stream",
     .kind = TD_GRPC_SERVER_STREAM,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .handle = stream},
    {.name = "Bidi",
     .kind = TD_GRPC_BIDI_STREAM,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .handle = bidi},
    {.name = "Collect",
     .kind = TD_GRPC_CLIENT_STREAM,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .handle = collect,
     .half_closed = collected},
};
static const td__grpc_service SERVICE = {"test.Service", METHODS,
                                         sizeof METHODS / sizeof METHODS[0]};

static td__grpc_code authorize(void *arg, td__call *c, char *why, size_t why_bytes)
{
    const char *token = td__call_metadata(c, "authorization");

    (void)arg;
    CHECK(td__call_method(c), "the method is not known");
    if (!token || !strcmp(token, "Bearer good"))
        return TD_GRPC_OK;
    snprintf(why, why_bytes, "bad token for tag %u", td__call_method(c)->tag);
    return TD_GRPC_UNAUTHENTICATED;
}

static void observe(void *arg, const td__call *c, td__grpc_code code, uint64_t ns)
{
    rpc_rig *r = arg;

    (void)c;
    (void)ns;
    r->observed++;
    r->last = code;
}

void rpc_rig_init(rpc_rig *r, const td__grpc_limits *limits)
{
    td__grpc_opts o = {.authorize = authorize, .observe = observe, .arg = r};

    *r = (rpc_rig){0};
    if (limits)
        o.limits = *limits;
    CHECK_OK(td__loop_create(&r->loop));
    CHECK_OK(td__grpc_create(r->loop, &o, &r->server));
    CHECK_OK(td__grpc_add(r->server, &SERVICE, r));
    r->client = rpc_client_attach(r->loop, r->server);
}

void rpc_rig_fini(rpc_rig *r)
{
    rpc_client_close(r->client);
    td__grpc_destroy(r->server);
    td__loop_destroy(r->loop);
}

size_t rpc_rig_text_frame(uint8_t *buf, size_t room, const char *text)
{
    Text t = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

    t.service = (char *)(uintptr_t)text;
    return rpc_frame(buf, room, &t.base);
}

int32_t rpc_rig_start(rpc_rig *r, const char *path, const char *text, const char *const *headers,
                      bool end)
{
    uint8_t buf[4096];

    return rpc_call(r->client, path, headers, buf, rpc_rig_text_frame(buf, sizeof buf, text), end);
}

const rpc_reply *rpc_rig_say(rpc_rig *r, const char *path, const char *text,
                             const char *const *headers)
{
    return rpc_wait(r->client, rpc_rig_start(r, path, text, headers, true));
}

void rpc_rig_turn_until(rpc_rig *r, const bool *flag)
{
    td__deadline until = td__deadline_in_ms(10000);

    while (!*flag) {
        CHECK(!td__deadline_passed(until), "it did not happen within ten seconds");
        rpc_turn(r->client);
    }
}
