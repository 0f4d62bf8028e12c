/* Strangers at the door of a store, and at the socket of shared memory: each kind is refused, the
 * log says so once, and members go on as if nothing had happened. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/rng.h"
#include "net/greet.h"
#include "net/mesh_shm.h"
#include "net/socket.h"
#include "net/store.h"
#include "net/store_wire.h"
#include "net/tls.h"
#include "support/check.h"
#include "tandem/log.h"

enum { SOON_MS = 100000 };

static const td__secret SECRET = {{1, 2, 3}}, WRONG = {{1, 2, 4}};

static td__deadline soon(void)
{
    return td__deadline_in_ms(SOON_MS);
}

static struct {
    pthread_mutex_t lock;
    int refusals; /* lines in the log */
} seen = {PTHREAD_MUTEX_INITIALIZER, 0};

static void count_refusals(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)level;
    if (part == TD_LOG_PART_NET && strstr(line, "refused")) {
        pthread_mutex_lock(&seen.lock);
        seen.refusals++;
        pthread_mutex_unlock(&seen.lock);
    }
}

static int refusals(void)
{
    pthread_mutex_lock(&seen.lock);
    int n = seen.refusals;
    pthread_mutex_unlock(&seen.lock);
    return n;
}

/* A server that is destroyed may have taken a stranger in and not yet looked at it. */
static void await_refusal(int before, const char *who)
{
    for (td__deadline until = soon(); refusals() == before; sched_yield())
        CHECK(!td__deadline_passed(until), "%s: not refused", who);
}

static int connect_raw(const char *address)
{
    int fd;
    CHECK_OK(td__socket_connect(address, soon(), &fd));
    return fd;
}

/* Wait until the other end closes; what it said before is dropped. */
static void expect_closed(int fd)
{
    char byte[256];
    td__deadline until = soon();
    ssize_t n;

    while ((n = recv(fd, byte, sizeof byte, 0)) != 0) {
        if (n < 0 && errno != EAGAIN)
            break; /* a reset is an end too */
        CHECK(!td__deadline_passed(until), "the server keeps a stranger");
        td__socket_poll(fd, false, until);
    }
    close(fd);
}

static void send_raw(int fd, const void *data, size_t nbytes)
{
    assert_int_equal(send(fd, data, nbytes, MSG_NOSIGNAL), nbytes);
}

/* ---- the strangers ---- */

static void wrong_secret(const char *address)
{
    td__store *c;
    td_status st = td__store_connect(address, &WRONG, NULL, soon(), &c);
    CHECK(st == TD_EPROTO || st == TD_EPEER, "%s", td_status_name(st));
}

static void port_scan(const char *address)
{
    for (int i = 0; i < 50; i++)
        close(connect_raw(address));
}

static void random_bytes(const char *address)
{
    td__rng_key key = {.seed = 5};

    for (int k = 0; k < 20; k++) {
        uint32_t junk[64];
        int fd = connect_raw(address);
        for (int i = 0; i < TD_LEN(junk); i++)
            junk[i] = td__rng_u32(&key, (uint64_t)k * 64 + (uint64_t)i);
        send_raw(fd, junk, sizeof junk);
        expect_closed(fd);
    }
}

static void http_request(const char *address)
{
    static const char GET[] = "GET / HTTP/1.1\r\nHost: store\r\nAccept: text/html, */*\r\n\r\n";
    int fd = connect_raw(address);

    send_raw(fd, GET, sizeof GET - 1);
    expect_closed(fd);
}

/* A frame that claims 2^63 bytes, without and behind a good hello: neither is a proof. */
static void huge_length(const char *address)
{
    td__frame f = {.kind = TD_STORE_SET, .length = 1ull << 63, .total = 1ull << 63};
    td__handshake h;
    int fd = connect_raw(address);

    td__frame_seal(&f);
    send_raw(fd, &f, sizeof f);
    send_raw(fd, &f, sizeof f);
    expect_closed(fd);
    CHECK_OK(td__handshake_init(&h, &WRONG, TD_HS_CLIENT, TD_HS_STORE, NULL));
    fd = connect_raw(address);
    send_raw(fd, h.out, h.out_used);
    send_raw(fd, &f, sizeof f);
    expect_closed(fd);
}

/* Copy what a member says to the server, and say it again. The member talks through us. */
static void replayed_handshake(const char *address)
{
    td__handshake c;
    uint8_t hello[TD_HELLO_BYTES], answer[TD_HELLO_BYTES + TD_PROOF_BYTES], proof[TD_PROOF_BYTES];

    CHECK_OK(td__handshake_init(&c, &SECRET, TD_HS_CLIENT, TD_HS_STORE, NULL));
    memcpy(hello, c.out, sizeof hello);
    int fd = connect_raw(address);
    td__conn conn = td__conn_of(fd);
    send_raw(fd, hello, sizeof hello);
    CHECK_OK(td__conn_recv_all(&conn, answer, sizeof answer, soon(), "the server"));
    memcpy(c.in, answer, sizeof answer);
    c.in_used = sizeof answer;
    CHECK_OK(td__handshake_advance(&c));
    memcpy(proof, c.out, sizeof proof);
    close(fd);

    fd = connect_raw(address);
    conn = td__conn_of(fd);
    send_raw(fd, hello, sizeof hello);
    CHECK_OK(td__conn_recv_all(&conn, answer, sizeof answer, soon(), "the server"));
    send_raw(fd, proof, sizeof proof);
    expect_closed(fd);
}

/* Hundreds of connections that say nothing, or one byte: they are thrown out, by time or because
 * others want in. */
static void slow_loris(const char *address)
{
    enum { N = 400 };
    static int fd[N];

    for (int i = 0; i < N; i++) {
        fd[i] = connect_raw(address);
        if (i % 2)
            send_raw(fd[i], "T", 1);
    }
    td__store *c; /* in the middle of it, a member comes in */
    CHECK_OK(td__store_connect(address, &SECRET, NULL, soon(), &c));
    td__store_close(c);
    for (int i = 0; i < N; i++)
        expect_closed(fd[i]);
}

typedef struct stranger {
    const char *name;
    void (*knock)(const char *address);
} stranger;

static const stranger STRANGERS[] = {
    {"wrong secret", wrong_secret}, {"port scan", port_scan},    {"random bytes", random_bytes},
    {"http", http_request},         {"2^63 bytes", huge_length}, {"replay", replayed_handshake},
    {"slow loris", slow_loris},
};

/* A stranger knocks at a store that has a member. */
static void receive(const stranger *who, const td__store_opts *o)
{
    td__store_server *s;
    td__store *c;
    int64_t count = 0;
    int before = refusals();

    CHECK_OK(td__store_server_create(&SECRET, o, &s));
    CHECK_OK(td__store_connect(td__store_server_address(s), &SECRET, o, soon(), &c));
    CHECK_OK(td__store_add(c, "n", 1, soon(), &count));
    print_message("%s\n", who->name);
    who->knock(td__store_server_address(s));
    CHECK_OK(td__store_add(c, "n", 1, soon(), &count));
    CHECK_EQ_INT(count, 2);
    await_refusal(before, who->name);
    td__store_close(c);
    td__store_server_destroy(s);
    CHECK(refusals() - before == 1, "%s: %d lines in the log", who->name, refusals() - before);
}

TEST(strangers_are_refused_and_members_go_on)
{
    for (int i = 0; i < TD_LEN(STRANGERS); i++)
        receive(&STRANGERS[i], NULL);
}

/* ---- at a store with TLS ---- */

static td__store_opts tls_opts; /* of the members */

static void knock_with(const char *address, const td__secret *secret, const char *tls_dir)
{
    td__store *c;
    td_status st =
        td__store_connect(address, secret, &(td__store_opts){.tls_dir = tls_dir}, soon(), &c);

    CHECK(st == TD_EPROTO || st == TD_EPEER, "%s: %s", td_status_name(st), td_last_error());
}

static void tls_wrong_secret(const char *address)
{
    knock_with(address, &WRONG, tls_opts.tls_dir);
}

/* It has the secret, but another certificate: somebody in between would look like this. */
static void tls_wrong_certificate(const char *address)
{
    const char *other = check_path("other");

    CHECK(mkdir(other, 0700) == 0 || errno == EEXIST, "%s: %s", other, strerror(errno));
    CHECK_OK(td__tls_make(other));
    knock_with(address, &SECRET, other);
}

static void tls_none(const char *address)
{
    knock_with(address, &SECRET, NULL);
}

static const stranger TLS_STRANGERS[] = {
    {"wrong secret", tls_wrong_secret},
    {"wrong certificate", tls_wrong_certificate},
    {"no TLS", tls_none},
    {"random bytes", random_bytes},
    {"http", http_request},
    {"port scan", port_scan},
};

TEST(strangers_are_refused_by_tls_too)
{
    tls_opts.tls_dir = check_tmpdir();
    CHECK_OK(td__tls_make(tls_opts.tls_dir));
    for (int i = 0; i < TD_LEN(TLS_STRANGERS); i++)
        receive(&TLS_STRANGERS[i], &tls_opts);
    check_tmpdir_remove();
}

/* One user has all addresses of the loopback network: as many lines as that would fill any disk. */
TEST(many_addresses_do_not_flood_the_log)
{
    enum { SOURCES = 200, MOST_LINES = 8 };
    td__store_server *s;
    CHECK_OK(td__store_server_create(&SECRET, NULL, &s));
    const char *port = strrchr(td__store_server_address(s), ':');
    int before = refusals();
    CHECK(port, "no port in %s", td__store_server_address(s));
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtol(port + 1, NULL, 10)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (uint32_t i = 0; i < SOURCES; i++) {
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000102 + i)};
        char junk[512] = "GET / HTTP/1.1";
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&own, sizeof own) &&
                  !connect(fd, (struct sockaddr *)&to, sizeof to),
              "source %u: %s", i, strerror(errno));
        send_raw(fd, junk, sizeof junk);
        expect_closed(fd);
    }
    int lines = refusals() - before;
    CHECK(lines > 0 && lines <= MOST_LINES, "%d lines for %d strangers", lines, SOURCES);
    td__store_server_destroy(s);
}

typedef struct local_strangers {
    td__shm_door door;
    int refused;
} local_strangers;

/* A local process that has the name of the socket, but not the token. */
static void *knock_at_socket(void *user)
{
    local_strangers *l = user;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = strlen(l->door.name);
    char junk[20] = "no token", answer;
    memcpy(to.sun_path + 1, l->door.name, n);
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        socklen_t nbytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
        bool came = fd >= 0 && !connect(fd, (struct sockaddr *)&to, nbytes) &&
                    send(fd, junk, sizeof junk, MSG_NOSIGNAL) == sizeof junk;
        bool closed = came && recv(fd, &answer, 1, 0) <= 0;
        close(fd);
        if (!came) /* rank 0 waits no longer */
            return NULL;
        l->refused += closed;
    }
}

/* While ranks assemble, the socket of shared memory is open to all processes of the host. */
TEST(local_processes_do_not_flood_the_log)
{
    enum { MOST_LINES = 8, WAIT_MS = 1000 };
    local_strangers l = {.door = {.listener = -1}};
    td__mesh *m = NULL;
    pthread_t thread;
    int before = refusals();
    CHECK_OK(td__shm_door_open(&l.door));
    CHECK(!pthread_create(&thread, NULL, knock_at_socket, &l), "no thread");
    CHECK_STATUS(td__mesh_shm_join(&l.door, 0, 2, td__deadline_in_ms(WAIT_MS), &m), TD_ETIMEDOUT);
    pthread_join(thread, NULL);
    int lines = refusals() - before;
    print_message("%d strangers, %d lines\n", l.refused, lines);
    CHECK(l.refused > MOST_LINES, "only %d strangers were refused", l.refused);
    CHECK(lines > 0 && lines <= MOST_LINES, "%d lines for %d strangers", lines, l.refused);
}

/* Who has the secret but speaks nonsense loses its connection; nobody else does. */
TEST(a_member_that_speaks_nonsense_is_cut_off)
{
    static const uint64_t LENGTHS[] = {1ull << 63, 100u << 20, 3};
    td__store_server *s;

    CHECK_OK(td__store_server_create(&SECRET, NULL, &s));
    for (int i = 0; i < TD_LEN(LENGTHS); i++) {
        td__frame f = {.kind = TD_STORE_SET, .length = LENGTHS[i]};
        td__conn conn;
        CHECK_OK(td__greet_connect(td__store_server_address(s), TD_HS_STORE, &SECRET, NULL, soon(),
                                   &conn));
        td__frame_seal(&f);
        send_raw(conn.fd, &f, sizeof f);
        send_raw(conn.fd, "abc", 3);
        expect_closed(conn.fd);
    }
    td__store *c;
    CHECK_OK(td__store_connect(td__store_server_address(s), &SECRET, NULL, soon(), &c));
    CHECK_OK(td__store_set(c, "a", "b", 1, soon()));
    td__store_close(c);
    td__store_server_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_refused_and_members_go_on),
        cmocka_unit_test(strangers_are_refused_by_tls_too),
        cmocka_unit_test(many_addresses_do_not_flood_the_log),
        cmocka_unit_test(local_processes_do_not_flood_the_log),
        cmocka_unit_test(a_member_that_speaks_nonsense_is_cut_off),
    };
    td_log_set_sink(count_refusals, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
