/* The gRPC server against a raw client: framing, kinds of methods, errors, deadlines, limits, slow
 * and hostile clients, shutting down. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "grpc/health/v1/health.pb-c.h"
#include "rpc/grpc_wire.h"
#include "support/check.h"
#include "support/rpc_client.h"

/* A service whose messages are those of the health check: a text in, a number out. */
typedef Grpc__Health__V1__HealthCheckRequest Text;
typedef Grpc__Health__V1__HealthCheckResponse Number;

typedef struct rig {
    td__loop *loop;
    td__grpc *server;
    rpc_client *client;
    td__call *held; /* a call that its handler did not finish */
    int handled, ended, drained, half_closed, observed;
    td__grpc_code last;
    bool done;
} rig;

static void answer(td__call *c, int number)
{
    Number n = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    n.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)number;
    td__call_send(c, &n.base);
}

static void on_ended(void *data, td__call *c)
{
    rig *r = data;

    CHECK(c == r->held, "another call has ended");
    r->held = NULL;
    r->ended++;
}

static void on_drained(void *data, td__call *c)
{
    rig *r = data;

    CHECK(c == r->held, "another call has drained");
    r->drained++;
}

static const td__call_events EVENTS = {.ended = on_ended, .drained = on_drained};

static void hold(rig *r, td__call *c)
{
    r->held = c;
    td__call_follow(c, &EVENTS, r);
}

/* What to do is in the text of the request. */
static void unary(td__call *c, void *arg, const void *request)
{
    rig *r = arg;
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
    rig *r = arg;
    const Text *t = request;
    long n = strtol(t->service, NULL, 10);

    r->handled++;
    for (long i = 0; i < n; i++)
        answer(c, (int)i);
    if (n)
        td__call_finish(c, TD_GRPC_OK, "%s", "");
    else
        hold(r, c);
}

static void bidi(td__call *c, void *arg, const void *request)
{
    rig *r = arg;

    r->handled++;
    answer(c, (int)strlen(((const Text *)request)->service));
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
};
static const td__grpc_service SERVICE = {"test.Service", METHODS, 3};

static td__grpc_code authorize(void *arg, td__call *c, char *why, size_t why_bytes)
{
    const char *token = td__call_metadata(c, "authorization");

    (void)arg;
    CHECK(td__call_method(c) && td__call_service(c) == &SERVICE, "the method is not known");
    if (!token || !strcmp(token, "Bearer good"))
        return TD_GRPC_OK;
    snprintf(why, why_bytes, "bad token for tag %u", td__call_method(c)->tag);
    return TD_GRPC_UNAUTHENTICATED;
}

static void observe(void *arg, const td__call *c, td__grpc_code code, uint64_t ns)
{
    rig *r = arg;

    (void)c;
    (void)ns;
    r->observed++;
    r->last = code;
}

static void rig_init(rig *r, const td__grpc_limits *limits)
{
    td__grpc_opts o = {.authorize = authorize, .observe = observe, .arg = r};

    *r = (rig){0};
    if (limits)
        o.limits = *limits;
    CHECK_OK(td__loop_create(&r->loop));
    CHECK_OK(td__grpc_create(r->loop, &o, &r->server));
    CHECK_OK(td__grpc_add(r->server, &SERVICE, r));
    r->client = rpc_client_attach(r->loop, r->server);
}

static void rig_fini(rig *r)
{
    td__grpc_stats s;

    rpc_client_close(r->client);
    if (r->server)
        td__grpc_stats_get(r->server, &s);
    td__grpc_destroy(r->server);
    td__loop_destroy(r->loop);
}

static size_t text_frame(uint8_t *buf, size_t room, const char *text)
{
    Text t = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

    t.service = (char *)(uintptr_t)text;
    return rpc_frame(buf, room, &t.base);
}

static int32_t start(rig *r, const char *path, const char *text, const char *const *headers,
                     bool end)
{
    uint8_t buf[4096];

    return rpc_call(r->client, path, headers, buf, text_frame(buf, sizeof buf, text), end);
}

static const rpc_reply *say(rig *r, const char *path, const char *text, const char *const *headers)
{
    return rpc_wait(r->client, start(r, path, text, headers, true));
}

static void turn_until(rig *r, const bool *flag)
{
    td__deadline until = td__deadline_in_ms(10000);

    while (!*flag) {
        CHECK(!td__deadline_passed(until), "it did not happen within ten seconds");
        rpc_turn(r->client);
    }
}

/* ---- wire ---- */

TEST(timeouts_have_digits_and_a_unit)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t ns;
    } rows[] = {
        {"1n", true, 1},
        {"10u", true, 10000},
        {"5m", true, 5000000},
        {"2S", true, 2000000000},
        {"3M", true, 180000000000},
        {"1H", true, 3600000000000},
        {"99999999H", true, UINT64_MAX},
        {"0S", true, 0},
        {"", false, 0},
        {"S", false, 0},
        {"1", false, 0},
        {"1s", false, 0},
        {"-1S", false, 0},
        {"123456789S", false, 0},
        {"1 S", false, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t ns = 0;

        CHECK(td__grpc_timeout(rows[i].text, strlen(rows[i].text), &ns) == rows[i].good, "%s",
              rows[i].text);
        CHECK(ns == rows[i].ns, "%s is %llu ns", rows[i].text, (unsigned long long)ns);
    }
}

/* ---- calls ---- */

TEST(a_unary_call_has_one_answer_and_a_status)
{
    rig r;
    const rpc_reply *a;

    rig_init(&r, NULL);
    a = say(&r, "/test.Service/Unary", "three", NULL);
    CHECK_EQ_INT(a->http, 200);
    CHECK_EQ_INT(a->status, 0);
    CHECK_EQ_INT(a->n_body, 7);
    assert_memory_equal(a->body, "\0\0\0\0\2\x08\5", 7);
    CHECK_EQ_INT(r.observed, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_OK);
    rig_fini(&r);
}

TEST(error_texts_are_percent_encoded)
{
    rig r;
    const rpc_reply *a;

    rig_init(&r, NULL);
    a = say(&r, "/test.Service/Unary", "fail", NULL);
    CHECK_EQ_INT(a->status, TD_GRPC_NOT_FOUND);
    assert_string_equal(a->message, "50%25 of caf%C3%A9%0A");
    CHECK_EQ_INT(a->n_body, 0);
    rig_fini(&r);
}

TEST(what_is_no_call_of_a_known_method_is_refused)
{
    static const struct {
        const char *path, *name, *value;
        int http, status;
        const char *message;
    } rows[] = {
        {"/test.Service/Nothing", NULL, NULL, 200, TD_GRPC_UNIMPLEMENTED,
         "Method not found: test.Service/Nothing"},
        {"/test.Servic/Unary", NULL, NULL, 200, TD_GRPC_UNIMPLEMENTED,
         "Method not found: test.Servic/Unary"},
        {"/test.Service", NULL, NULL, 200, TD_GRPC_UNIMPLEMENTED, "Method not found: test.Service"},
        {"/test.Service/Unary", ":method", "GET", 405, -1, ""},
        {"/test.Service/Unary", "content-type", "application/json", 415, -1, ""},
        {"/test.Service/Unary", "content-type", "application/grpc-web", 415, -1, ""},
        {"/test.Service/Unary", "content-type", "application/grpc+proto", 200, 0, ""},
        {"/test.Service/Unary", "grpc-timeout", "soon", 200, TD_GRPC_INTERNAL,
         "malformed grpc-timeout"},
        {"/test.Service/Unary", "authorization", "Bearer bad", 200, TD_GRPC_UNAUTHENTICATED,
         "bad token for tag 7"},
        {"/test.Service/Unary", "authorization", "Bearer good", 200, 0, ""},
    };
    rig r;

    rig_init(&r, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *headers[] = {rows[i].name, rows[i].value, NULL};
        const rpc_reply *a = say(&r, rows[i].path, "x", headers);

        CHECK(a->http == rows[i].http, "row %zu: HTTP status %d", i, a->http);
        CHECK(a->status == rows[i].status, "row %zu: status %d", i, a->status);
        CHECK(!strcmp(a->message, rows[i].message), "row %zu: %s", i, a->message);
    }
    CHECK_EQ_INT(r.handled, 2);
    rig_fini(&r);
}

TEST(bodies_that_are_not_one_message_are_refused)
{
    static const struct {
        const char *bytes;
        size_t n;
        int status;
        const char *message;
    } rows[] = {
        {"", 0, TD_GRPC_INTERNAL, "Half-closed without a request"},
        {"\0\0\0", 3, TD_GRPC_INTERNAL, "Half-closed without a request"},
        {"\0\0\0\0\5abc", 8, TD_GRPC_INTERNAL, "Half-closed without a request"},
        {"\0\0\0\0\0\0\0\0\0\0", 10, TD_GRPC_INTERNAL, "Too many requests"},
        {"\1\0\0\0\0", 5, TD_GRPC_UNIMPLEMENTED, "compressed messages are not supported"},
        {"\0\0\0\0\1\xff", 6, TD_GRPC_INTERNAL,
         "grpc.health.v1.HealthCheckRequest: malformed request"},
        {"\0\0\0\4\1", 5, TD_GRPC_RESOURCE_EXHAUSTED,
         "the message has 1025 bytes, at most 1024 are allowed"},
        {"\0\xff\xff\xff\xff", 5, TD_GRPC_RESOURCE_EXHAUSTED,
         "the message has 4294967295 bytes, at most 1024 are allowed"},
        {"\0\0\0\0\0", 5, TD_GRPC_OK, ""},
    };
    rig r;

    rig_init(&r, &(td__grpc_limits){.max_message = 1024});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const rpc_reply *a = rpc_wait(r.client, rpc_call(r.client, "/test.Service/Unary", NULL,
                                                         rows[i].bytes, rows[i].n, true));

        CHECK(a->status == rows[i].status, "row %zu: status %d %s", i, a->status, a->message);
        CHECK(!strcmp(a->message, rows[i].message), "row %zu: %s", i, a->message);
    }
    CHECK_EQ_INT(r.handled, 1);
    rig_fini(&r);
}

TEST(a_request_may_come_byte_by_byte)
{
    rig r;
    uint8_t buf[64];
    size_t n = text_frame(buf, sizeof buf, "slowly");
    int32_t call;

    rig_init(&r, NULL);
    call = rpc_call(r.client, "/test.Service/Unary", NULL, NULL, 0, false);
    for (size_t i = 0; i < n; i++) {
        rpc_turn(r.client);
        rpc_call_data(r.client, call, buf + i, 1, i + 1 == n);
    }
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, 0);
    CHECK_EQ_INT(rpc_reply_of(r.client, call)->body[6], 6);
    rig_fini(&r);
}

TEST(streams_carry_any_number_of_messages)
{
    rig r;
    const rpc_reply *a;
    int32_t call;

    rig_init(&r, NULL);
    a = say(&r, "/test.Service/Stream", "1000", NULL);
    CHECK_EQ_INT(a->status, 0);
    CHECK_EQ_INT(a->n_body, 5 + 127 * 7 + 872 * 8); /* the number 0 takes no bytes */
    call = start(&r, "/test.Service/Bidi", "a", NULL, false);
    rpc_wait_body(r.client, call, 7);
    CHECK_EQ_INT(r.handled, 2);
    uint8_t two[128];
    size_t n = text_frame(two, 64, "bb");
    n += text_frame(two + n, 64, "ccc");
    rpc_call_data(r.client, call, two, n, true);
    a = rpc_wait(r.client, call);
    CHECK_EQ_INT(a->status, 0);
    CHECK_EQ_INT(a->n_body, 21);
    CHECK_EQ_INT(a->body[6] * 100 + a->body[13] * 10 + a->body[20], 123);
    rig_fini(&r);
}

/* ---- time ---- */

TEST(a_deadline_of_the_client_ends_its_call)
{
    const char *headers[] = {"grpc-timeout", "20m", NULL};
    rig r;
    const rpc_reply *a;

    rig_init(&r, NULL);
    a = say(&r, "/test.Service/Unary", "hold", headers);
    CHECK_EQ_INT(a->status, TD_GRPC_DEADLINE_EXCEEDED);
    CHECK_EQ_INT(r.ended, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_DEADLINE_EXCEEDED);
    rig_fini(&r);
}

TEST(a_request_that_does_not_arrive_is_given_up)
{
    rig r;

    rig_init(&r, &(td__grpc_limits){.request_ms = 20});
    CHECK_EQ_INT(
        rpc_wait(r.client, rpc_call(r.client, "/test.Service/Unary", NULL, "\0\0", 2, false))
            ->status,
        TD_GRPC_CANCELLED);
    CHECK_EQ_INT(r.handled, 0);
    rig_fini(&r);
}

TEST(a_client_without_settings_or_signs_of_life_is_closed)
{
    rig r;
    int fd[2];
    char c;
    td__deadline until = td__deadline_in_ms(10000);

    rig_init(&r,
             &(td__grpc_limits){.handshake_ms = 20, .keepalive_ms = 30, .keepalive_answer_ms = 20});
    CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    CHECK_OK(td__grpc_attach(r.server, fd[1]));
    CHECK_EQ_INT(say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    while (recv(fd[0], &c, 1, 0) != 0)
        if (td__deadline_passed(until))
            CHECK(false, "a silent client is not closed");
        else
            rpc_turn(r.client); /* this client answers pings */
    CHECK(!rpc_client_gone(r.client), "a live client was closed");
    rpc_client_stop_reading(r.client); /* now it does not */
    for (td__grpc_stats s = {.open_connections = 1}; s.open_connections;) {
        CHECK(!td__deadline_passed(until), "a client that answers no ping is not closed");
        CHECK_OK(td__loop_turn(r.loop, 5));
        td__grpc_stats_get(r.server, &s);
    }
    close(fd[0]);
    rig_fini(&r);
}

/* ---- limits ---- */

TEST(a_client_that_does_not_read_fills_only_its_own_limit)
{
    rig r;
    td__deadline until = td__deadline_in_ms(10000);
    long sent = 0;

    rig_init(&r, &(td__grpc_limits){.max_queued = 1 << 20});
    start(&r, "/test.Service/Stream", "0", NULL, true);
    while (!r.held) {
        CHECK(!td__deadline_passed(until), "no call");
        rpc_turn(r.client);
    }
    rpc_client_stop_reading(r.client);
    while (td__call_room(r.held)) { /* a stream that asks first */
        answer(r.held, 1000);
        sent++;
        if (sent % 1000 == 0)
            CHECK_OK(td__loop_turn(r.loop, 0));
    }
    CHECK(sent * 8 > 64 << 10, "the window alone is more than %ld bytes", sent * 8);
    CHECK_EQ_INT(r.ended, 0);
    for (long i = 0; i < 1 << 20 && r.held; i++) { /* and one that does not */
        answer(r.held, 1000);
        if (i % 1000 == 0)
            CHECK_OK(td__loop_turn(r.loop, 0));
    }
    CHECK_EQ_INT(r.ended, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_RESOURCE_EXHAUSTED);
    rig_fini(&r);
}

TEST(a_stream_hears_when_its_client_has_read)
{
    rig r;
    int32_t call;
    size_t sent = 0;
    td__deadline until = td__deadline_in_ms(10000);

    rig_init(&r, NULL);
    call = start(&r, "/test.Service/Stream", "0", NULL, true);
    while (!r.held)
        rpc_turn(r.client);
    for (; td__call_room(r.held); sent += 8)
        answer(r.held, 1000);
    while (!r.drained) {
        CHECK(!td__deadline_passed(until), "the stream never hears");
        rpc_turn(r.client);
    }
    td__call_finish(r.held, TD_GRPC_OK, "%s", "");
    CHECK_EQ_INT(rpc_wait(r.client, call)->n_body, sent);
    CHECK_EQ_INT(r.ended, 0);
    rig_fini(&r);
}

TEST(unfinished_requests_share_a_limit_of_bytes)
{
    static uint8_t big[3000];
    rig r;
    int32_t call;

    rig_init(&r, &(td__grpc_limits){.max_message = 4000, .max_pending = 5000});
    td__grpc_frame_head(big, 3900);
    rpc_call(r.client, "/test.Service/Unary", NULL, big, sizeof big, false);
    call = rpc_call(r.client, "/test.Service/Unary", NULL, big, sizeof big, false);
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, TD_GRPC_RESOURCE_EXHAUSTED);
    CHECK_EQ_INT(say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rig_fini(&r);
}

TEST(more_streams_than_allowed_wait_in_the_client)
{
    rig r;
    td__grpc_stats s;
    int32_t calls[8];

    rig_init(&r, &(td__grpc_limits){.max_streams = 3});
    rpc_turn(r.client);
    rpc_turn(r.client); /* settings have been exchanged */
    for (int i = 0; i < 8; i++)
        calls[i] = rpc_call(r.client, "/test.Service/Bidi", NULL, NULL, 0, false);
    for (int i = 0; i < 8; i++) {
        rpc_turn(r.client);
        td__grpc_stats_get(r.server, &s);
        CHECK(s.open_calls <= 3, "%u calls are open", s.open_calls);
        rpc_call_data(r.client, calls[i], NULL, 0, true);
        CHECK_EQ_INT(rpc_wait(r.client, calls[i])->status, 0);
    }
    rig_fini(&r);
}

TEST(metadata_has_a_limit)
{
    static char large[3000];
    const char *headers[] = {"x-large", large, NULL};
    rig r;

    memset(large, 'a', sizeof large - 1);
    rig_init(&r, &(td__grpc_limits){.max_metadata = 2000});
    CHECK_EQ_INT(say(&r, "/test.Service/Unary", "x", headers)->status, TD_GRPC_RESOURCE_EXHAUSTED);
    CHECK_EQ_INT(say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rig_fini(&r);
}

/* A small message that would become a large tree in memory. */
TEST(decoding_has_a_budget)
{
    static uint8_t body[5 + 100000];
    rig r;
    const rpc_reply *a;

    rig_init(&r, NULL);
    td__grpc_frame_head(body, 100000);
    for (size_t i = 5; i + 1 < sizeof body; i += 2) { /* 50,000 unknown fields of one byte */
        body[i] = 0x7a;
        body[i + 1] = 0;
    }
    a = rpc_wait(r.client,
                 rpc_call(r.client, "/test.Service/Unary", NULL, body, sizeof body, true));
    CHECK_EQ_INT(a->status, TD_GRPC_INTERNAL);
    CHECK_EQ_INT(r.handled, 0);
    rig_fini(&r);
}

/* ---- ends ---- */

TEST(cancelling_and_vanishing_end_a_call)
{
    rig r;
    int32_t call;
    bool held;

    rig_init(&r, NULL);
    call = start(&r, "/test.Service/Unary", "hold", NULL, true);
    for (held = false; !held; held = r.held != NULL)
        rpc_turn(r.client);
    rpc_call_cancel(r.client, call);
    for (held = true; held; held = r.held != NULL)
        rpc_turn(r.client);
    CHECK_EQ_INT(r.ended, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_CANCELLED);
    start(&r, "/test.Service/Unary", "hold", NULL, true);
    for (held = false; !held; held = r.held != NULL)
        rpc_turn(r.client);
    rpc_client_close(r.client);
    for (held = true; held; held = r.held != NULL)
        CHECK_OK(td__loop_turn(r.loop, 5));
    CHECK_EQ_INT(r.ended, 2);
    r.client = rpc_client_attach(r.loop, r.server);
    CHECK_EQ_INT(say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rig_fini(&r);
}

static void on_done(void *arg)
{
    rig *r = arg;

    r->done = true;
    td__grpc_destroy(r->server);
    r->server = NULL;
}

TEST(shutting_down_lets_open_calls_finish)
{
    rig r;
    int32_t call;

    rig_init(&r, NULL);
    call = start(&r, "/test.Service/Unary", "hold", NULL, true);
    while (!r.held)
        rpc_turn(r.client);
    td__grpc_shutdown(r.server, td__deadline_in_ms(10000), on_done, &r);
    while (!rpc_client_goaway(r.client))
        rpc_turn(r.client);
    CHECK(!r.done && r.held, "the open call was dropped");
    td__call_finish(r.held, TD_GRPC_OK, "%s", "");
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, 0);
    turn_until(&r, &r.done);
    CHECK_EQ_INT(r.ended, 0);
    rig_fini(&r);
}

TEST(shutting_down_ends_calls_at_the_deadline)
{
    rig r;

    rig_init(&r, NULL);
    start(&r, "/test.Service/Unary", "hold", NULL, true);
    while (!r.held)
        rpc_turn(r.client);
    td__grpc_shutdown(r.server, td__deadline_in_ms(20), on_done, &r);
    turn_until(&r, &r.done);
    CHECK_EQ_INT(r.ended, 1);
    rig_fini(&r);
}

TEST(what_is_no_http2_closes_the_connection)
{
    static const char *const bytes[] = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\4\1garbage garbage",
                                        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello hello"};
    rig r;

    rig_init(&r, NULL);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        int fd[2];
        char c[4096];
        td__deadline until = td__deadline_in_ms(10000);

        CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
        CHECK_OK(td__grpc_attach(r.server, fd[1]));
        CHECK(send(fd[0], bytes[i], i == 1 ? 43 : strlen(bytes[i]), 0) > 0, "cannot send");
        while (recv(fd[0], c, sizeof c, 0) != 0) {
            CHECK(!td__deadline_passed(until), "row %zu: the connection stays open", i);
            CHECK_OK(td__loop_turn(r.loop, 5));
        }
        close(fd[0]);
    }
    CHECK_EQ_INT(say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rig_fini(&r);
}

TEST(a_thousand_calls_share_a_connection_over_tcp)
{
    char address[TD_ADDRESS_BYTES];
    uint8_t buf[64];
    size_t n = text_frame(buf, sizeof buf, "abc");
    int32_t calls[1000];
    rig r;

    rig_init(&r, NULL);
    CHECK_OK(td__grpc_listen(r.server, &(td__grpc_listener){.address = "127.0.0.1:0"}, address));
    rpc_client_close(r.client);
    r.client = rpc_client_connect(r.loop, address);
    for (int i = 0; i < 1000; i++)
        calls[i] = rpc_call(r.client, "/test.Service/Unary", NULL, buf, n, true);
    for (int i = 0; i < 1000; i++)
        CHECK_EQ_INT(rpc_wait(r.client, calls[i])->status, 0);
    CHECK_EQ_INT(r.handled, 1000);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeouts_have_digits_and_a_unit),
        cmocka_unit_test(a_unary_call_has_one_answer_and_a_status),
        cmocka_unit_test(error_texts_are_percent_encoded),
        cmocka_unit_test(what_is_no_call_of_a_known_method_is_refused),
        cmocka_unit_test(bodies_that_are_not_one_message_are_refused),
        cmocka_unit_test(a_request_may_come_byte_by_byte),
        cmocka_unit_test(streams_carry_any_number_of_messages),
        cmocka_unit_test(a_deadline_of_the_client_ends_its_call),
        cmocka_unit_test(a_request_that_does_not_arrive_is_given_up),
        cmocka_unit_test(a_client_without_settings_or_signs_of_life_is_closed),
        cmocka_unit_test(a_client_that_does_not_read_fills_only_its_own_limit),
        cmocka_unit_test(a_stream_hears_when_its_client_has_read),
        cmocka_unit_test(unfinished_requests_share_a_limit_of_bytes),
        cmocka_unit_test(more_streams_than_allowed_wait_in_the_client),
        cmocka_unit_test(metadata_has_a_limit),
        cmocka_unit_test(decoding_has_a_budget),
        cmocka_unit_test(cancelling_and_vanishing_end_a_call),
        cmocka_unit_test(shutting_down_lets_open_calls_finish),
        cmocka_unit_test(shutting_down_ends_calls_at_the_deadline),
        cmocka_unit_test(what_is_no_http2_closes_the_connection),
        cmocka_unit_test(a_thousand_calls_share_a_connection_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
