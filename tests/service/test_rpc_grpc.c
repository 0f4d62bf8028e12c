/* The gRPC server against a raw client: framing, kinds of methods, errors, deadlines, shutting
 * down. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/grpc_wire.h"
#include "support/check.h"
#include "support/rpc_rig.h"

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
    rpc_rig r;
    const rpc_reply *a;

    rpc_rig_init(&r, NULL);
    a = rpc_rig_say(&r, "/test.Service/Unary", "three", NULL);
    CHECK_EQ_INT(a->http, 200);
    CHECK_EQ_INT(a->status, 0);
    CHECK_EQ_INT(a->n_body, 7);
    assert_memory_equal(a->body, "\0\0\0\0\2\x08\5", 7);
    CHECK_EQ_INT(r.observed, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_OK);
    rpc_rig_fini(&r);
}

TEST(error_texts_are_percent_encoded)
{
    rpc_rig r;
    const rpc_reply *a;

    rpc_rig_init(&r, NULL);
    a = rpc_rig_say(&r, "/test.Service/Unary", "fail", NULL);
    CHECK_EQ_INT(a->status, TD_GRPC_NOT_FOUND);
    assert_string_equal(a->message, "50%25 of caf%C3%A9%0A");
    CHECK_EQ_INT(a->n_body, 0);
    rpc_rig_fini(&r);
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
    rpc_rig r;

    rpc_rig_init(&r, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *headers[] = {rows[i].name, rows[i].value, NULL};
        const rpc_reply *a = rpc_rig_say(&r, rows[i].path, "x", headers);

        CHECK(a->http == rows[i].http, "row %zu: HTTP status %d", i, a->http);
        CHECK(a->status == rows[i].status, "row %zu: status %d", i, a->status);
        CHECK(!strcmp(a->message, rows[i].message), "row %zu: %s", i, a->message);
    }
    CHECK_EQ_INT(r.handled, 2);
    rpc_rig_fini(&r);
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
    rpc_rig r;

    rpc_rig_init(&r, &(td__grpc_limits){.max_message = 1024});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const rpc_reply *a = rpc_wait(r.client, rpc_call(r.client, "/test.Service/Unary", NULL,
                                                         rows[i].bytes, rows[i].n, true));

        CHECK(a->status == rows[i].status, "row %zu: status %d %s", i, a->status, a->message);
        CHECK(!strcmp(a->message, rows[i].message), "row %zu: %s", i, a->message);
    }
    CHECK_EQ_INT(r.handled, 1);
    rpc_rig_fini(&r);
}

TEST(a_request_may_come_byte_by_byte)
{
    rpc_rig r;
    uint8_t buf[64];
    size_t n = rpc_rig_text_frame(buf, sizeof buf, "slowly");
    int32_t call;

    rpc_rig_init(&r, NULL);
    call = rpc_call(r.client, "/test.Service/Unary", NULL, NULL, 0, false);
    for (size_t i = 0; i < n; i++) {
        rpc_turn(r.client);
        rpc_call_data(r.client, call, buf + i, 1, i + 1 == n);
    }
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, 0);
    CHECK_EQ_INT(rpc_reply_of(r.client, call)->body[6], 6);
    rpc_rig_fini(&r);
}

TEST(streams_carry_any_number_of_messages)
{
    rpc_rig r;
    const rpc_reply *a;
    int32_t call;

    rpc_rig_init(&r, NULL);
    a = rpc_rig_say(&r, "/test.Service/Stream", "1000", NULL);
    CHECK_EQ_INT(a->status, 0);
    CHECK_EQ_INT(a->n_body, 5 + 127 * 7 + 872 * 8); /* the number 0 takes no bytes */
    call = rpc_rig_start(&r, "/test.Service/Bidi", "a", NULL, false);
    rpc_wait_body(r.client, call, 7);
    CHECK_EQ_INT(r.handled, 2);
    uint8_t two[128];
    size_t n = rpc_rig_text_frame(two, 64, "bb");
    n += rpc_rig_text_frame(two + n, 64, "ccc");
    rpc_call_data(r.client, call, two, n, true);
    a = rpc_wait(r.client, call);
    CHECK_EQ_INT(a->status, 0);
    CHECK_EQ_INT(a->n_body, 21);
    CHECK_EQ_INT(a->body[6] * 100 + a->body[13] * 10 + a->body[20], 123);
    rpc_rig_fini(&r);
}

TEST(a_client_may_stream_to_one_answer)
{
    rpc_rig r;
    const rpc_reply *a;
    uint8_t two[128];

    rpc_rig_init(&r, NULL);
    int32_t call = rpc_rig_start(&r, "/test.Service/Collect", "a", NULL, false);
    size_t n = rpc_rig_text_frame(two, 64, "bb");
    n += rpc_rig_text_frame(two + n, 64, "ccc");
    rpc_call_data(r.client, call, two, n, true);
    a = rpc_wait(r.client, call);
    CHECK_EQ_INT(a->status, 0);
    CHECK_EQ_INT(a->n_body, 7);
    CHECK_EQ_INT(a->body[6], 3);
    CHECK_EQ_INT(r.ended, 0);
    rpc_rig_fini(&r);
}

/* ---- time ---- */

TEST(a_stream_that_comes_too_slowly_is_given_up)
{
    rpc_rig r;

    rpc_rig_init(&r, &(td__grpc_limits){.request_ms = 20});
    int32_t call = rpc_rig_start(&r, "/test.Service/Collect", "a", NULL, false);
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, TD_GRPC_CANCELLED);
    CHECK_EQ_INT(r.handled, 1);
    CHECK_EQ_INT(r.ended, 1);
    rpc_rig_fini(&r);
}

TEST(a_deadline_of_the_client_ends_its_call)
{
    const char *headers[] = {"grpc-timeout", "20m", NULL};
    rpc_rig r;
    const rpc_reply *a;

    rpc_rig_init(&r, NULL);
    a = rpc_rig_say(&r, "/test.Service/Unary", "hold", headers);
    CHECK_EQ_INT(a->status, TD_GRPC_DEADLINE_EXCEEDED);
    CHECK_EQ_INT(r.ended, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_DEADLINE_EXCEEDED);
    rpc_rig_fini(&r);
}

TEST(a_request_that_does_not_arrive_is_given_up)
{
    rpc_rig r;

    rpc_rig_init(&r, &(td__grpc_limits){.request_ms = 20});
    CHECK_EQ_INT(
        rpc_wait(r.client, rpc_call(r.client, "/test.Service/Unary", NULL, "\0\0", 2, false))
            ->status,
        TD_GRPC_CANCELLED);
    CHECK_EQ_INT(r.handled, 0);
    rpc_rig_fini(&r);
}

TEST(a_client_without_settings_or_signs_of_life_is_closed)
{
    rpc_rig r;
    int fd[2];
    char c;
    td__deadline until = td__deadline_in_ms(10000);

    rpc_rig_init(
        &r, &(td__grpc_limits){.handshake_ms = 20, .keepalive_ms = 30, .keepalive_answer_ms = 20});
    CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    CHECK_OK(td__grpc_attach(r.server, fd[1]));
    CHECK_EQ_INT(rpc_rig_say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
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
    rpc_rig_fini(&r);
}

/* ---- ends ---- */

TEST(cancelling_and_vanishing_end_a_call)
{
    rpc_rig r;
    int32_t call;
    bool held;

    rpc_rig_init(&r, NULL);
    call = rpc_rig_start(&r, "/test.Service/Unary", "hold", NULL, true);
    for (held = false; !held; held = r.held != NULL)
        rpc_turn(r.client);
    rpc_call_cancel(r.client, call);
    for (held = true; held; held = r.held != NULL)
        rpc_turn(r.client);
    CHECK_EQ_INT(r.ended, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_CANCELLED);
    rpc_rig_start(&r, "/test.Service/Unary", "hold", NULL, true);
    for (held = false; !held; held = r.held != NULL)
        rpc_turn(r.client);
    rpc_client_close(r.client);
    for (held = true; held; held = r.held != NULL)
        CHECK_OK(td__loop_turn(r.loop, 5));
    CHECK_EQ_INT(r.ended, 2);
    r.client = rpc_client_attach(r.loop, r.server);
    CHECK_EQ_INT(rpc_rig_say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rpc_rig_fini(&r);
}

static void on_done(void *arg)
{
    rpc_rig *r = arg;

    r->done = true;
    td__grpc_destroy(r->server);
    r->server = NULL;
}

TEST(shutting_down_lets_open_calls_finish)
{
    rpc_rig r;
    int32_t call;

    rpc_rig_init(&r, NULL);
    call = rpc_rig_start(&r, "/test.Service/Unary", "hold", NULL, true);
    while (!r.held)
        rpc_turn(r.client);
    td__grpc_shutdown(r.server, td__deadline_in_ms(10000), on_done, &r);
    while (!rpc_client_goaway(r.client))
        rpc_turn(r.client);
    CHECK(!r.done && r.held, "the open call was dropped");
    td__call_finish(r.held, TD_GRPC_OK, "%s", "");
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, 0);
    rpc_rig_turn_until(&r, &r.done);
    CHECK_EQ_INT(r.ended, 0);
    rpc_rig_fini(&r);
}

TEST(shutting_down_ends_calls_at_the_deadline)
{
    rpc_rig r;

    rpc_rig_init(&r, NULL);
    rpc_rig_start(&r, "/test.Service/Unary", "hold", NULL, true);
    while (!r.held)
        rpc_turn(r.client);
    td__grpc_shutdown(r.server, td__deadline_in_ms(20), on_done, &r);
    rpc_rig_turn_until(&r, &r.done);
    CHECK_EQ_INT(r.ended, 1);
    rpc_rig_fini(&r);
}

TEST(what_is_no_http2_closes_the_connection)
{
    static const char *const bytes[] = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\4\1garbage garbage",
                                        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello hello"};
    rpc_rig r;

    rpc_rig_init(&r, NULL);
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
    CHECK_EQ_INT(rpc_rig_say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rpc_rig_fini(&r);
}

TEST(a_thousand_calls_share_a_connection_over_tcp)
{
    char address[TD_ADDRESS_BYTES];
    uint8_t buf[64];
    size_t n = rpc_rig_text_frame(buf, sizeof buf, "abc");
    int32_t calls[1000];
    rpc_rig r;

    rpc_rig_init(&r, NULL);
    CHECK_OK(td__grpc_listen(r.server, &(td__grpc_listener){.address = "127.0.0.1:0"}, address));
    rpc_client_close(r.client);
    r.client = rpc_client_connect(r.loop, address);
    for (int i = 0; i < 1000; i++)
        calls[i] = rpc_call(r.client, "/test.Service/Unary", NULL, buf, n, true);
    for (int i = 0; i < 1000; i++)
        CHECK_EQ_INT(rpc_wait(r.client, calls[i])->status, 0);
    CHECK_EQ_INT(r.handled, 1000);
    rpc_rig_fini(&r);
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
        cmocka_unit_test(a_client_may_stream_to_one_answer),
        cmocka_unit_test(a_stream_that_comes_too_slowly_is_given_up),
        cmocka_unit_test(a_deadline_of_the_client_ends_its_call),
        cmocka_unit_test(a_request_that_does_not_arrive_is_given_up),
        cmocka_unit_test(a_client_without_settings_or_signs_of_life_is_closed),
        cmocka_unit_test(cancelling_and_vanishing_end_a_call),
        cmocka_unit_test(shutting_down_lets_open_calls_finish),
        cmocka_unit_test(shutting_down_ends_calls_at_the_deadline),
        cmocka_unit_test(what_is_no_http2_closes_the_connection),
        cmocka_unit_test(a_thousand_calls_share_a_connection_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
