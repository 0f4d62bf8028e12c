/* Limits of the gRPC server: clients that do not read, send too much, open too many calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "net/socket.h"
#include "rpc/grpc_wire.h"
#include "support/check.h"
#include "support/rpc_rig.h"

/* ---- limits ---- */

TEST(a_client_that_does_not_read_fills_only_its_own_limit)
{
    rpc_rig r;
    td__deadline until = td__deadline_in_ms(10000);
    long sent = 0;

    rpc_rig_init(&r, &(td__grpc_limits){.max_queued = 1 << 20});
    rpc_rig_start(&r, "/test.Service/Stream", "0", NULL, true);
    while (!r.held) {
        CHECK(!td__deadline_passed(until), "no call");
        rpc_turn(r.client);
    }
    rpc_client_stop_reading(r.client);
    while (td__call_room(r.held)) { /* a stream that asks first */
        rpc_rig_answer(r.held, 1000);
        sent++;
        if (sent % 1000 == 0)
            CHECK_OK(td__loop_turn(r.loop, 0));
    }
    CHECK(sent * 8 > 64 << 10, "the window alone is more than %ld bytes", sent * 8);
    CHECK_EQ_INT(r.ended, 0);
    for (long i = 0; i < 1 << 20 && r.held; i++) { /* and one that does not */
        rpc_rig_answer(r.held, 1000);
        if (i % 1000 == 0)
            CHECK_OK(td__loop_turn(r.loop, 0));
    }
    CHECK_EQ_INT(r.ended, 1);
    CHECK_EQ_INT(r.last, TD_GRPC_RESOURCE_EXHAUSTED);
    rpc_rig_fini(&r);
}

TEST(a_stream_hears_when_its_client_has_read)
{
    rpc_rig r;
    int32_t call;
    size_t sent = 0;
    td__deadline until = td__deadline_in_ms(10000);

    rpc_rig_init(&r, NULL);
    call = rpc_rig_start(&r, "/test.Service/Stream", "0", NULL, true);
    while (!r.held)
        rpc_turn(r.client);
    for (; td__call_room(r.held); sent += 8)
        rpc_rig_answer(r.held, 1000);
    while (!r.drained) {
        CHECK(!td__deadline_passed(until), "the stream never hears");
        rpc_turn(r.client);
    }
    td__call_finish(r.held, TD_GRPC_OK, "%s", "");
    CHECK_EQ_INT(rpc_wait(r.client, call)->n_body, sent);
    CHECK_EQ_INT(r.ended, 0);
    rpc_rig_fini(&r);
}

TEST(unfinished_requests_share_a_limit_of_bytes)
{
    static uint8_t big[3000];
    rpc_rig r;
    int32_t call;

    rpc_rig_init(&r, &(td__grpc_limits){.max_message = 4000, .max_pending = 5000});
    td__grpc_frame_head(big, 3900);
    rpc_call(r.client, "/test.Service/Unary", NULL, big, sizeof big, false);
    call = rpc_call(r.client, "/test.Service/Unary", NULL, big, sizeof big, false);
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, TD_GRPC_RESOURCE_EXHAUSTED);
    CHECK_EQ_INT(rpc_rig_say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rpc_rig_fini(&r);
}

TEST(more_streams_than_allowed_wait_in_the_client)
{
    rpc_rig r;
    td__grpc_stats s;
    int32_t calls[8];

    rpc_rig_init(&r, &(td__grpc_limits){.max_streams = 3});
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
    rpc_rig_fini(&r);
}

TEST(metadata_has_a_limit)
{
    static char large[3000];
    const char *headers[] = {"x-large", large, NULL};
    rpc_rig r;

    memset(large, 'a', sizeof large - 1);
    rpc_rig_init(&r, &(td__grpc_limits){.max_metadata = 2000});
    CHECK_EQ_INT(rpc_rig_say(&r, "/test.Service/Unary", "x", headers)->status,
                 TD_GRPC_RESOURCE_EXHAUSTED);
    CHECK_EQ_INT(rpc_rig_say(&r, "/test.Service/Unary", "x", NULL)->status, 0);
    rpc_rig_fini(&r);
}

/* A small message that would become a large tree in memory. */
TEST(decoding_has_a_budget)
{
    static uint8_t body[5 + 100000];
    rpc_rig r;
    const rpc_reply *a;

    rpc_rig_init(&r, NULL);
    td__grpc_frame_head(body, 100000);
    for (size_t i = 5; i + 1 < sizeof body; i += 2) { /* 50,000 unknown fields of one byte */
        body[i] = 0x7a;
        body[i + 1] = 0;
    }
    a = rpc_wait(r.client,
                 rpc_call(r.client, "/test.Service/Unary", NULL, body, sizeof body, true));
    CHECK_EQ_INT(a->status, TD_GRPC_INTERNAL);
    CHECK_EQ_INT(r.handled, 0);
    rpc_rig_fini(&r);
}

static bool closed(rpc_rig *r)
{
    td__grpc_stats s;

    CHECK_OK(td__loop_turn(r->loop, 5));
    td__grpc_stats_get(r->server, &s);
    return s.open_connections == 0;
}

/* Without a call a connection is told to go, whatever it answers to pings; a stream keeps it. */
TEST(idle_connections_are_closed)
{
    rpc_rig r;
    td__deadline until = td__deadline_in_ms(10000);

    rpc_rig_init(&r, &(td__grpc_limits){.idle_ms = 20, .keepalive_ms = 5});
    int32_t call = rpc_rig_start(&r, "/test.Service/Stream", "0", NULL, true);
    while (!r.held) {
        CHECK(!td__deadline_passed(until), "no call");
        rpc_turn(r.client);
    }
    td__deadline later = td__deadline_in_ms(100);
    while (!td__deadline_passed(later)) {
        rpc_turn(r.client);
        CHECK(!closed(&r), "a connection with a stream is closed");
    }
    td__call_finish(r.held, TD_GRPC_OK, "%s", "");
    CHECK_EQ_INT(rpc_wait(r.client, call)->status, 0);
    while (!closed(&r))
        CHECK(!td__deadline_passed(until), "an idle connection stays");
    rpc_rig_fini(&r);
}

/* One client address cannot have all connections. */
TEST(an_address_has_so_many_connections)
{
    rpc_rig r;
    td__grpc_stats s;
    char address[TD_ADDRESS_BYTES];
    int fds[8];
    td__deadline until = td__deadline_in_ms(10000);

    rpc_rig_init(&r, &(td__grpc_limits){.per_address = 3});
    CHECK_OK(td__grpc_listen(r.server, &(td__grpc_listener){.address = "127.0.0.1:0"}, address));
    for (int i = 0; i < 8; i++)
        CHECK_OK(td__socket_connect(address, td__deadline_in_ms(10000), &fds[i]));
    do {
        CHECK(!td__deadline_passed(until), "not all have come");
        CHECK_OK(td__loop_turn(r.loop, 100));
        td__grpc_stats_get(r.server, &s);
    } while (s.refused_connections < 5);
    CHECK_EQ_INT(s.open_connections, 3 + 1); /* and the rig's own, of no address */
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    while (s.open_connections > 1) {
        CHECK(!td__deadline_passed(until), "%u stay", s.open_connections);
        CHECK_OK(td__loop_turn(r.loop, 100));
        td__grpc_stats_get(r.server, &s);
    }
    CHECK_OK(td__socket_connect(address, td__deadline_in_ms(10000), &fds[0]));
    while (s.open_connections < 2) {
        CHECK(!td__deadline_passed(until), "there is room again, and nobody comes in");
        CHECK_OK(td__loop_turn(r.loop, 100));
        td__grpc_stats_get(r.server, &s);
    }
    close(fds[0]);
    rpc_rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_does_not_read_fills_only_its_own_limit),
        cmocka_unit_test(a_stream_hears_when_its_client_has_read),
        cmocka_unit_test(unfinished_requests_share_a_limit_of_bytes),
        cmocka_unit_test(more_streams_than_allowed_wait_in_the_client),
        cmocka_unit_test(metadata_has_a_limit),
        cmocka_unit_test(decoding_has_a_budget),
        cmocka_unit_test(idle_connections_are_closed),
        cmocka_unit_test(an_address_has_so_many_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
