/* What goes over the wire: frames, the handshake as a state machine, requests to the store, and the
 * schedule of faults. No sockets here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/fault.h"
#include "net/frame.h"
#include "net/handshake.h"
#include "net/store_wire.h"
#include "support/check.h"

/* ---- frames ---- */

TEST(frames_come_back)
{
    td__frame f = {.kind = 7, .flags = 1, .length = 100, .total = 200, .tag = 3, .sequence = 4}, g;

    td__frame_seal(&f);
    CHECK_OK(td__frame_open(&f, 100, &g));
    assert_memory_equal(&f, &g, sizeof f);
    CHECK_STATUS(td__frame_open(&f, 99, &g), TD_EPROTO);
}

TEST(every_flipped_bit_of_a_header_is_noticed)
{
    td__frame f = {.kind = 2, .length = 1 << 20, .total = 1 << 20, .tag = 9}, g;
    uint8_t wire[TD_FRAME_BYTES];

    td__frame_seal(&f);
    for (int bit = 0; bit < 8 * TD_FRAME_BYTES; bit++) {
        memcpy(wire, &f, sizeof wire);
        wire[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        CHECK_STATUS(td__frame_open(wire, UINT64_MAX, &g), TD_EPROTO);
    }
}

TEST(lengths_are_bounded)
{
    static const uint64_t LENGTHS[] = {1ull << 63, UINT64_MAX, (1ull << 32) + 1, 1001};
    td__frame f = {.kind = 1}, g;

    for (int i = 0; i < TD_LEN(LENGTHS); i++) {
        f.length = LENGTHS[i];
        td__frame_seal(&f);
        CHECK_STATUS(td__frame_open(&f, 1000, &g), TD_EPROTO);
    }
}

TEST(requests_are_taken_apart)
{
    uint8_t payload[100] = {0};
    td__store_request r = {.key_nbytes = 3, .flags = TD_STORE_HAS_EXPECT, .expect_nbytes = 2};
    td__frame f = {.kind = TD_STORE_COMPARE_SET, .tag = 5, .length = sizeof r + 3 + 2 + 4};
    td__store_parts p;

    memcpy(payload, &r, sizeof r);
    memcpy(payload + sizeof r, "keyexnew!", 9);
    CHECK_OK(td__store_parse(&f, payload, &p));
    assert_string_equal(p.key, "key");
    CHECK_EQ_INT(p.expect_nbytes, 2);
    CHECK_EQ_INT(p.nbytes, 4);
    assert_memory_equal(p.value, "new!", 4);
    for (uint64_t n = 0; n < sizeof r + 5; n++) { /* cut off */
        f.length = n;
        CHECK_STATUS(td__store_parse(&f, payload, &p), TD_EPROTO);
    }
    f.length = sizeof r + 9;
    payload[sizeof r + 1] = 0; /* a zero in the key */
    CHECK_STATUS(td__store_parse(&f, payload, &p), TD_EPROTO);
    f.kind = TD_STORE_OP_COUNT;
    CHECK_STATUS(td__store_parse(&f, payload, &p), TD_EPROTO);
}

/* ---- the handshake ---- */

static const td__secret SECRET = {{1, 2, 3}}, OTHER = {{1, 2, 4}};

/* Hand what `from` wants to send to `to`; its status. */
static td_status pass(td__handshake *from, td__handshake *to)
{
    size_t n = from->out_used - from->out_sent;

    assert_true(n <= sizeof to->in);
    if (n != to->in_want - to->in_used)
        return TD_EINVAL;
    memcpy(to->in + to->in_used, from->out + from->out_sent, n);
    to->in_used += n;
    from->out_sent += n;
    return td__handshake_advance(to);
}

static void start(td__handshake *c, td__handshake *s, const td__secret *cs, const uint8_t *cb,
                  const uint8_t *sb)
{
    CHECK_OK(td__handshake_init(c, cs, TD_HS_CLIENT, TD_HS_STORE, cb));
    CHECK_OK(td__handshake_init(s, &SECRET, TD_HS_SERVER, TD_HS_STORE, sb));
}

TEST(who_shares_the_secret_is_let_in)
{
    td__handshake c, s;

    start(&c, &s, &SECRET, NULL, NULL);
    CHECK_OK(pass(&c, &s));
    assert_false(s.done);
    CHECK_OK(pass(&s, &c));
    assert_true(c.done);
    CHECK_OK(pass(&c, &s));
    assert_true(s.done);
}

TEST(wrong_secret_service_role_or_channel_is_refused)
{
    static const uint8_t A[TD_BINDING_BYTES] = {1}, B[TD_BINDING_BYTES] = {2};
    td__handshake c, s;

    start(&c, &s, &OTHER, NULL, NULL);
    CHECK_OK(pass(&c, &s));
    CHECK_STATUS(pass(&s, &c), TD_EPROTO); /* the client sees it first */
    assert_string_equal(td_last_error(), "wrong secret");

    start(&c, &s, &SECRET, A, B); /* somebody between two TLS channels */
    CHECK_OK(pass(&c, &s));
    CHECK_STATUS(pass(&s, &c), TD_EPROTO);

    start(&c, &s, &SECRET, NULL, NULL);
    CHECK_OK(td__handshake_init(&c, &SECRET, TD_HS_CLIENT, TD_HS_MESH, NULL));
    CHECK_STATUS(pass(&c, &s), TD_EPROTO);
}

TEST(a_client_without_the_secret_is_refused)
{
    td__handshake c, s;

    start(&c, &s, &SECRET, NULL, NULL);
    CHECK_OK(pass(&c, &s));
    s.out_sent = s.out_used; /* it ignores the answer and guesses */
    memset(s.in, 0x5a, s.in_want);
    s.in_used = s.in_want;
    CHECK_STATUS(td__handshake_advance(&s), TD_EPROTO);
    assert_false(s.done);
}

TEST(a_replayed_handshake_is_refused)
{
    td__handshake c, s, again;
    uint8_t hello[TD_HELLO_BYTES], proof[TD_PROOF_BYTES];

    start(&c, &s, &SECRET, NULL, NULL);
    memcpy(hello, c.out, sizeof hello);
    CHECK_OK(pass(&c, &s));
    CHECK_OK(pass(&s, &c));
    memcpy(proof, c.out, sizeof proof);
    CHECK_OK(pass(&c, &s));

    CHECK_OK(td__handshake_init(&again, &SECRET, TD_HS_SERVER, TD_HS_STORE, NULL));
    memcpy(again.in, hello, sizeof hello);
    again.in_used = sizeof hello;
    CHECK_OK(td__handshake_advance(&again));
    memcpy(again.in, proof, sizeof proof);
    again.in_used = sizeof proof;
    CHECK_STATUS(td__handshake_advance(&again), TD_EPROTO);
}

TEST(a_reflected_handshake_is_refused)
{
    td__handshake c, s;

    start(&c, &s, &SECRET, NULL, NULL);
    CHECK_OK(pass(&c, &s));
    /* The server's own proof sent back to it. */
    memcpy(s.in, s.out + TD_HELLO_BYTES, TD_PROOF_BYTES);
    s.in_used = TD_PROOF_BYTES;
    CHECK_STATUS(td__handshake_advance(&s), TD_EPROTO);
    /* The client's hello sent back to it, with anything behind. */
    memcpy(c.in, c.hello[0], TD_HELLO_BYTES);
    c.in_used = c.in_want;
    CHECK_STATUS(td__handshake_advance(&c), TD_EPROTO);
}

/* ---- faults ---- */

TEST(fault_schedules_are_read)
{
    static const char *const WRONG[] = {";",          " ",       "seed=1",  "drop",
                                        "drop=2",     "drop=x",  "delay=5", "delay=5ms@2",
                                        "rate=0MB/s", "seed=-1", "speed=1", "rate=5MB"};
    td__fault_plan p;

    CHECK_OK(td__fault_parse("seed=7,drop=0.25,delay=5ms@0.5,cut=1,rate=125MB/s", &p));
    CHECK_EQ_INT(p.seed, 7);
    CHECK_EQ_INT(p.delay_ns, 5000000);
    assert_true(p.drop == 0.25 && p.delay_share == 0.5 && p.cut == 1 && p.rate == 125e6);
    CHECK_OK(td__fault_parse("", &p));
    for (int i = 0; i < TD_LEN(WRONG); i++) {
        CHECK_STATUS(td__fault_parse(WRONG[i], &p), TD_EINVAL);
        char name[8];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(WRONG[i], "="), WRONG[i]);
        CHECK(strstr(td_last_error(), name) != NULL, "%s: %s", WRONG[i], td_last_error());
    }
}

/* Who is refused by a slow link asks when to try again, perhaps when that time has passed already:
 * the socket would never say. */
TEST(a_slow_link_says_when_to_try_again)
{
    td__fault_plan p;
    char byte = 1;
    struct iovec one = {.iov_base = &byte, .iov_len = 1};
    int fd[2];
    CHECK_OK(td__fault_parse("delay=20ms", &p));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0, "no sockets");
    td__conn c = td__conn_of(fd[0]);
    CHECK_OK(td__fault_push(&c, &p, 0, 1));
    CHECK_EQ_INT(td__conn_retry_ns(&c), 0);
    ssize_t sent = 1;
    for (uint32_t n = 1; n < 1000 && sent == 1; n++) { /* a delay may be over by the time of use */
        td__conn_message(&c, n, 1);
        sent = td__conn_send(&c, &one, 1);
    }
    CHECK(sent < 0 && errno == EAGAIN, "not slow");
    uint64_t at = td__conn_retry_ns(&c);
    CHECK(at, "refused by the socket");
    while (td__clock_ns() <= at)
        sched_yield();
    CHECK(td__conn_retry_ns(&c) == at, "it is the socket now");
    CHECK_EQ_INT(td__conn_send(&c, &one, 1), 1);
    CHECK_EQ_INT(td__conn_retry_ns(&c), 0);
    td__conn_close(&c);
    close(fd[1]);
}

TEST(faults_of_ranks_are_read_and_written)
{
    static const char *const GOOD[] = {
        "kill rank=2 at=step:17:allreduce:3", "stop rank=1 for=3s at=step:20",
        "cut 0-1 at=step:5:comm:2",           "flip rank=1 at=step:9",
        "full rank=0 at=step:4:state.json:1", "kill rank=0 at=generation:2:op:7",
        "slow rank=1 for=0.002s at=step:3",   "hang rank=1 at=step:3:comm:1",
        "slow rank=2 times=10 at=step:1"};
    static const char *const WRONG[] = {"kill",
                                        "kill rank=2",
                                        "kill at=step:3",
                                        "kill rank=x at=step:3",
                                        "kill rank=-1 at=step:3",
                                        "kill rank=2 at=3",
                                        "kill rank=2 at=step:",
                                        "kill rank=2 at=step:0",
                                        "kill rank=2 at=generation:0",
                                        "kill rank=2 at=step:99999999999999999999",
                                        "kill rank=2 rank=1 at=step:3",
                                        "kill rank=2 at=step:3 at=step:4",
                                        "stop rank=2 for=1s for=2s at=step:3",
                                        "cut 0-1 1-2 at=step:3",
                                        "kill rank=2 at=step:3:allreduce:0",
                                        "kill rank=2 at=step:3:allreduce:1x",
                                        "kill rank=2 for=3s at=step:3",
                                        "stop rank=2 for=3 at=step:3",
                                        "cut 1 at=step:3",
                                        "cut 1-1 at=step:3",
                                        "slow rank=2 times=0.5 at=step:3",
                                        "kill rank=2 times=3 at=step:3",
                                        "slow rank=2 times=3x",
                                        "seed=1; kill rank=2"};
    td__fault_plan p;
    char text[TD_FAULT_TEXT], all[22 * (TD_FAULT_EVENTS + 2)] = "";

    for (int i = 0; i < TD_LEN(GOOD); i++) {
        CHECK_OK(td__fault_parse(GOOD[i], &p));
        CHECK_EQ_INT(p.n_events, 1);
        assert_string_equal(td__fault_text(&p.events[0], text), GOOD[i]);
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i % 2 ? "; " : "\n", GOOD[i]);
    }
    CHECK_OK(td__fault_parse(all, &p));
    CHECK_EQ_INT(p.n_events, TD_LEN(GOOD));
    CHECK_OK(td__fault_parse("kill rank=1 at=step:2:barrier; seed=7,rate=1/10s", &p));
    assert_true(p.events[0].count == 1 && p.seed == 7 && p.every_ns == 10000000000u);
    for (int i = 0; i < TD_LEN(WRONG); i++)
        CHECK(td__fault_parse(WRONG[i], &p) == TD_EINVAL, "%s is taken", WRONG[i]);
    all[0] = 0;
    for (int i = 0; i <= TD_FAULT_EVENTS; i++)
        memcpy(all + 22 * i, "kill rank=1 at=step:2;", 23);
    CHECK_STATUS(td__fault_parse(all, &p), TD_EINVAL);
}

TEST(faults_of_ranks_are_drawn)
{
    enum { EVERY = 10, INTERVALS = 300, RANKS = 5 };
    td__fault_plan p, q;
    td__fault_event a, b;
    int acts[TD_FAULT_COUNT] = {0}, who[RANKS] = {0}, differ = 0;
    uint64_t last = 0;

    CHECK_OK(td__fault_parse("seed=7,rate=1/10steps", &p));
    assert_true(p.every_steps == EVERY && !p.every_ns);
    q = p;
    q.seed = 8;
    for (uint64_t n = 1; n <= INTERVALS; n++) { /* one in each, never close to the one before */
        int found = 0;
        for (uint64_t s = (n - 1) * EVERY + 1; s <= n * EVERY; s++) {
            uint64_t is = td__fault_of_step(&p, s);
            CHECK(!is || is == n, "fault %d in step %d", (int)is, (int)s);
            CHECK(!is || n == 1 || s > last + 3, "steps %d and %d", (int)last, (int)s);
            found += is > 0;
            last = is ? s : last;
            differ += is != td__fault_of_step(&q, s);
        }
        CHECK_EQ_INT(found, 1);
        td__fault_draw(&p, n, RANKS, &a);
        td__fault_draw(&p, n, RANKS, &b);
        assert_memory_equal(&a, &b, sizeof a);
        CHECK(a.rank >= 0 && a.rank < RANKS && a.peer != a.rank && a.count > 0, "event %d", (int)n);
        acts[a.act]++;
        who[a.rank]++;
    }
    assert_true(acts[TD_FAULT_KILL] > acts[TD_FAULT_STOP] && acts[TD_FAULT_STOP] > 30 &&
                acts[TD_FAULT_CUT] > 30 && differ > INTERVALS);
    for (int r = 0; r < RANKS; r++)
        CHECK(who[r] > 30, "rank %d was hit %d times", r, who[r]);
    CHECK_STATUS(td__fault_parse("seed=7,rate=1/0steps", &p), TD_EINVAL);
    CHECK_STATUS(td__fault_parse("seed=7,rate=1/5stepss", &p), TD_EINVAL);
}

TEST(the_same_seed_gives_the_same_faults)
{
    td__fault_plan p, q;
    td__fault a, b;
    int hits = 0, differ = 0;
    enum { N = 2000 };

    CHECK_OK(td__fault_parse("seed=3,drop=0.1,truncate=0.1,flip=0.1,delay=1ms", &p));
    q = p;
    q.seed = 4;
    for (uint32_t i = 0; i < N; i++) {
        td__fault_decide(&p, 1, 2, i, 1000, &a);
        td__fault_decide(&p, 1, 2, i, 1000, &b);
        assert_memory_equal(&a, &b, sizeof a);
        td__fault_decide(&q, 1, 2, i, 1000, &b);
        hits += a.drop;
        differ += a.drop != b.drop || a.delay_ns != b.delay_ns;
        assert_true(a.keep == UINT64_MAX || a.keep < 1000);
        assert_true(a.flip == UINT64_MAX || a.flip < 8000);
        assert_true(a.delay_ns <= 1000000);
    }
    CHECK(hits > N / 20 && hits < N / 5, "%d of %d", hits, N);
    CHECK(differ > N / 2, "seeds 3 and 4 differ in %d", differ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_back),
        cmocka_unit_test(every_flipped_bit_of_a_header_is_noticed),
        cmocka_unit_test(lengths_are_bounded),
        cmocka_unit_test(requests_are_taken_apart),
        cmocka_unit_test(who_shares_the_secret_is_let_in),
        cmocka_unit_test(wrong_secret_service_role_or_channel_is_refused),
        cmocka_unit_test(a_client_without_the_secret_is_refused),
        cmocka_unit_test(a_replayed_handshake_is_refused),
        cmocka_unit_test(a_reflected_handshake_is_refused),
        cmocka_unit_test(fault_schedules_are_read),
        cmocka_unit_test(a_slow_link_says_when_to_try_again),
        cmocka_unit_test(faults_of_ranks_are_read_and_written),
        cmocka_unit_test(faults_of_ranks_are_drawn),
        cmocka_unit_test(the_same_seed_gives_the_same_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
