/* The HTTP server over real sockets, server and client in turn on one thread: answers at once and
 * later, errors, bodies, uploads, streams, limits, clients that are slow or gone. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/socket.h"
#include "rpc/httpd.h"
#include "support/check.h"
#include "tandem/log.h"

enum { PATIENCE_MS = 10000, ROOM = 1 << 16 };

static td__loop *loop;
static td__httpd *server;
static td__httpd_request *kept; /* of the route /later */
static td__httpd_stream *stream;
static int n_closed, n_commits, commits_at_answer;
static char upload_text[64], upload_sha[65];
static const char *spool;

static void on_echo(void *arg, td__httpd_request *r)
{
    td__text t = {0};
    size_t n;
    const char *body = td__httpd_body(r, &n);
    const char *q = td__httpd_query(r, "q");
    (void)arg;
    td__text_printf(&t,
                    "{\"id\":\"%s\",\"q\":\"%s\",\"body\":%zu,\"text\":", td__httpd_param(r, "id"),
                    q ? q : "-", n);
    td__text_json(&t, body);
    td__text_add(&t, "}");
    td__httpd_reply_json(r, 200, &t);
}

static void on_later(void *arg, td__httpd_request *r)
{
    (void)arg;
    kept = r;
}

static void on_upload(void *arg, td__httpd_request *r)
{
    uint64_t n;
    const char *sha, *path = td__httpd_upload(r, &n, &sha);
    td__text t = {0};
    size_t have;
    (void)arg;
    char *data = check_read_file(path, &have);
    CHECK_EQ_INT(have, n);
    snprintf(upload_text, sizeof upload_text, "%.*s", (int)have, data);
    snprintf(upload_sha, sizeof upload_sha, "%s", sha);
    free(data);
    td__httpd_reply_json(r, 201, &t);
}

static void on_drained(void *arg)
{
    (void)arg;
}

static void on_closed(void *arg)
{
    (void)arg;
    stream = NULL;
    n_closed++;
}

static void on_stream(void *arg, td__httpd_request *r)
{
    static const td__httpd_stream_ops OPS = {.drained = on_drained, .closed = on_closed};
    stream = td__httpd_stream_open(r, TD_HTTPD_SSE, &OPS, arg);
    CHECK(stream, "a stream");
}

static const td__httpd_route ROUTES[] = {
    {"GET", "/echo/{id}", TD_SCOPE_NONE, TD_HTTPD_NO_BODY, on_echo, "echo"},
    {"POST", "/echo/{id}", TD_SCOPE_NONE, TD_HTTPD_JSON, on_echo, "echo"},
    {"GET", "/later", TD_SCOPE_NONE, TD_HTTPD_NO_BODY, on_later, "later"},
    {"PUT", "/upload", TD_SCOPE_NONE, TD_HTTPD_FILE, on_upload, "upload"},
    {"GET", "/stream", TD_SCOPE_NONE, TD_HTTPD_NO_BODY, on_stream, "stream"},
    {"GET", "/read", TD_SCOPE_READ, TD_HTTPD_NO_BODY, on_echo, "read"},
    {"GET", "/admin", TD_SCOPE_ADMIN, TD_HTTPD_NO_BODY, on_echo, "admin"},
    {0},
};

static void count_commit(void *arg)
{
    (void)arg;
    n_commits++;
}

static td__turn_hook commit_hook = {.run = count_commit};

static void start(const td__httpd_opts *more)
{
    td__httpd_opts o = more ? *more : (td__httpd_opts){0};
    o.listen = "127.0.0.1:0";
    o.routes = ROUTES;
    o.spool = spool = check_tmpdir();
    CHECK_OK(td__loop_create(&loop));
    td__loop_hook(loop, TD_TURN_COMMIT, &commit_hook);
    CHECK_OK(td__httpd_create(loop, &o, &server));
    n_closed = 0;
    kept = NULL;
}

static void stop(void)
{
    td__httpd_destroy(server);
    td__loop_unhook(loop, TD_TURN_COMMIT, &commit_hook);
    td__loop_destroy(loop);
    check_tmpdir_remove();
}

static void turn(void)
{
    CHECK_OK(td__loop_turn(loop, 10));
}

static int client(void)
{
    int fd;
    CHECK_OK(td__socket_connect(td__httpd_address(server), td__deadline_in_ms(PATIENCE_MS), &fd));
    return fd;
}

static void say(int fd, const char *text, size_t n)
{
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    while (n) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k > 0) {
            text += k;
            n -= (size_t)k;
        } else {
            CHECK(k < 0 && errno == EAGAIN && !td__deadline_passed(until), "send: %s",
                  strerror(errno));
        }
        turn();
    }
}

/* What the server sends until `mark` is in it, or it hangs up where mark is NULL. */
static const char *hear(int fd, const char *mark)
{
    static char got[ROOM];
    size_t n = 0;
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    got[0] = 0;
    for (;;) {
        ssize_t k = recv(fd, got + n, sizeof got - 1 - n, 0);
        if (k > 0) {
            n += (size_t)k;
            got[n] = 0;
        }
        if (mark && strstr(got, mark))
            return got;
        if (k == 0 || (k < 0 && errno != EAGAIN)) {
            CHECK(!mark, "the server hangs up after: %s", got);
            return got;
        }
        CHECK(!td__deadline_passed(until), "the server is silent after: %s", got);
        turn();
    }
}

/* One request on a connection of its own; the answer up to the end of its body. */
static const char *ask(const char *request)
{
    int fd = client();
    say(fd, request, strlen(request));
    const char *got = hear(fd, NULL);
    close(fd);
    return got;
}

#define GET(path, more) \
    "GET " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" more "\r\n"

#define EXPECT(request, ...)                                                             \
    do {                                                                                 \
        const char *const wanted_[] = {__VA_ARGS__};                                     \
        const char *answer_ = ask(request);                                              \
        for (size_t i_ = 0; i_ < sizeof wanted_ / sizeof *wanted_; i_++)                 \
            CHECK(strstr(answer_, wanted_[i_]), "no '%s' in: %s", wanted_[i_], answer_); \
    } while (0)

TEST(answers_and_errors)
{
    start(NULL);
    EXPECT(GET("/echo/7?q=a%20b", ""), "HTTP/1.1 200", "\"id\":\"7\"", "\"q\":\"a b\"",
           "application/json", "nosniff", "no-store", "Content-Security-Policy");
    EXPECT(GET("/nowhere", ""), "HTTP/1.1 404", "{\"error\":{\"code\":\"not_found\"");
    EXPECT("DELETE /echo/7 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
           "HTTP/1.1 405", "Allow: GET, POST");
    EXPECT(GET("/echo/%2e%2e/x", ""), "HTTP/1.1 400", "malformed path");
    EXPECT("POST /echo/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
           "Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
           "HTTP/1.1 200", "\"body\":7", "{\\\"a\\\":1}");
    EXPECT("POST /echo/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
           "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
           "HTTP/1.1 415");
    EXPECT("GET /echo/1 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
           "HTTP/1.1 403", "not called 'evil.example'");
    EXPECT(GET("/echo/1", "Origin: http://evil.example\r\n"), "HTTP/1.1 403", "evil.example");
    EXPECT(GET("/echo/1", "Origin: http://localhost\r\n"), "HTTP/1.1 200");
    stop();
}

TEST(answers_come_later_and_after_the_commit)
{
    td__text t = {0};
    start(NULL);
    int fd = client();
    say(fd, GET("/later", ""), strlen(GET("/later", "")));
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !kept; turn())
        CHECK(!td__deadline_passed(until), "no request came");
    for (int i = 0; i < 3; i++)
        turn();
    char byte;
    CHECK(recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN, "an answer before it was given");
    td__text_add(&t, "{}");
    commits_at_answer = n_commits;
    td__httpd_reply_json(kept, 200, &t);
    CHECK(recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN, "an answer before the commit");
    CHECK(strstr(hear(fd, NULL), "200 OK"), "the answer");
    CHECK(n_commits > commits_at_answer, "no commit before the answer");
    close(fd);
    /* A handler that is still busy at the end: its client hears of it, nothing is left. */
    fd = client();
    kept = NULL;
    say(fd, GET("/later", ""), strlen(GET("/later", "")));
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !kept; turn())
        CHECK(!td__deadline_passed(until), "no request came");
    stop();
    close(fd);
}

TEST(bodies_have_limits)
{
    static char big[70000];
    char head[256];
    td__httpd_opts o = {.limits = {.body = 1000, .upload = 2000, .header = 4096}};
    start(&o);
    EXPECT("POST /echo/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
           "Content-Length: 1001\r\n\r\n",
           "HTTP/1.1 413", "too_large");
    EXPECT(GET("/echo/x", "Content-Length: 1\r\n"), "HTTP/1.1 413");
    /* One that does not say its size first. */
    memset(big, 'x', sizeof big);
    int fd = client();
    int n = snprintf(head, sizeof head,
                     "POST /echo/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                     "\r\n%x\r\n",
                     1200);
    say(fd, head, (size_t)n);
    say(fd, big, 1200);
    say(fd, "\r\n0\r\n\r\n", 7);
    CHECK(strstr(hear(fd, "}}"), "413"), "too large in pieces");
    close(fd);
    memset(big, 'y', sizeof big); /* a header larger than any */
    fd = client();
    say(fd, "GET /echo/1 HTTP/1.1\r\nHost: localhost\r\nX: ", 43);
    say(fd, big, 20000);
    CHECK(strstr(hear(fd, NULL), " 4"), "a long header is refused");
    close(fd);
    stop();
}

TEST(uploads_become_files)
{
    start(NULL);
    EXPECT("PUT /upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n"
           "\r\nhello",
           "HTTP/1.1 201");
    CHECK(strcmp(upload_text, "hello") == 0, "%s", upload_text);
    CHECK(strcmp(upload_sha, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824") ==
              0,
          "%s", upload_sha);
    turn();
    CHECK(rmdir(spool) == 0, "a spool file is left");
    CHECK(mkdir(spool, 0700) == 0, "%s", strerror(errno));
    stop();
}

TEST(tokens_open_routes)
{
    td__tokens *t;
    CHECK_OK(td__tokens_create(&t)); /* the sha256 of "hello" */
    CHECK_OK(td__tokens_add(t, "ann", TD_SCOPE_READ,
                            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"));
    td__httpd_opts o = {.tokens = t};
    start(&o);
    EXPECT(GET("/echo/1", ""), "HTTP/1.1 200");
    EXPECT(GET("/read", ""), "HTTP/1.1 401", "WWW-Authenticate: Bearer", "unauthenticated");
    EXPECT(GET("/read", "Authorization: Bearer hullo\r\n"), "HTTP/1.1 401");
    EXPECT(GET("/read", "Authorization: Bearer hello\r\n"), "HTTP/1.1 200");
    EXPECT(GET("/admin", "Authorization: Bearer hello\r\n"), "HTTP/1.1 403", "scope admin");
    stop();
    td__tokens_destroy(t);
}

TEST(streams_flow_until_either_side_ends)
{
    start(NULL);
    int fd = client();
    say(fd, GET("/stream", ""), strlen(GET("/stream", "")));
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !stream; turn())
        CHECK(!td__deadline_passed(until), "no stream");
    td__httpd_stream_event(stream, "1", "state", "{\"a\":1}");
    CHECK(strstr(hear(fd, "{\"a\":1}\n\n"), "id: 1\nevent: state\ndata: "), "an event");
    for (int i = 0; i < 3; i++)
        turn(); /* it waits */
    td__httpd_stream_event(stream, "2", NULL, "second");
    hear(fd, "id: 2\ndata: second\n\n");
    td__httpd_stream_event(stream, NULL, NULL, "last");
    td__httpd_stream_end(stream);
    CHECK(strstr(hear(fd, NULL), "data: last"), "what was queued before the end");
    CHECK_EQ_INT(n_closed, 1);
    close(fd);
    /* A client that goes while nothing is sent to it. */
    fd = client();
    say(fd, GET("/stream", ""), strlen(GET("/stream", "")));
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !stream; turn())
        CHECK(!td__deadline_passed(until), "no stream");
    close(fd);
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); n_closed < 2; turn())
        CHECK(!td__deadline_passed(until), "the stream of a client that is gone stays");
    /* The server ends first. */
    fd = client();
    say(fd, GET("/stream", ""), strlen(GET("/stream", "")));
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !stream; turn())
        CHECK(!td__deadline_passed(until), "no stream");
    stop();
    CHECK_EQ_INT(n_closed, 3);
    close(fd);
}

TEST(slow_readers_are_cut_off)
{
    static char block[65536];
    td__httpd_opts o = {.limits = {.stream_backlog = 1 << 20}};
    start(&o);
    int fd = client();
    say(fd, GET("/stream", ""), strlen(GET("/stream", "")));
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !stream; turn())
        CHECK(!td__deadline_passed(until), "no stream");
    memset(block, 'z', sizeof block);
    for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !n_closed; turn()) {
        if (stream)
            td__httpd_stream_write(stream, block, sizeof block);
        CHECK(!td__deadline_passed(until), "a reader that does not read keeps its stream");
    }
    close(fd);
    stop();
}

TEST(slow_senders_are_cut_off)
{
    td__httpd_opts o = {.limits = {.request_s = 1}};
    start(&o);
    static const char HEAD[] = "GET /echo/1 HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    int fd = client();
    td__deadline until = td__deadline_in_ms(PATIENCE_MS), next = 0;
    say(fd, HEAD, sizeof HEAD - 1);
    for (;;) { /* a byte now and then, so that the connection is never idle */
        char byte;
        if (td__deadline_passed(next)) {
            if (send(fd, "x", 1, MSG_NOSIGNAL) < 0)
                break;
            next = td__deadline_in_ms(100);
        }
        if (recv(fd, &byte, 1, 0) == 0)
            break;
        CHECK(!td__deadline_passed(until), "a slow sender keeps its connection");
        turn();
    }
    close(fd);
    EXPECT(GET("/echo/1", ""), "HTTP/1.1 200");
    stop();
}

/* Between two requests there is more time than for one, and not for ever. */
TEST(idle_connections_are_closed)
{
    td__httpd_opts o = {.limits = {.request_s = 1, .idle_s = 3}};
    static const char ASK[] = "GET /echo/1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char text[2048];

    start(&o);
    int fd = client();
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    say(fd, ASK, sizeof ASK - 1);
    while (recv(fd, text, sizeof text, MSG_DONTWAIT) <= 0) {
        CHECK(!td__deadline_passed(until), "no answer");
        turn();
    }
    uint64_t answered = td__clock_ns();
    while (recv(fd, text, sizeof text, MSG_DONTWAIT) != 0) {
        CHECK(!td__deadline_passed(until), "an idle connection stays");
        turn();
    }
    CHECK(td__clock_ns() - answered > 2000000000ull, "it is closed as one that sends slowly");
    close(fd);
    stop();
}

TEST(rates_and_connections_have_limits)
{
    td__httpd_opts o = {.limits = {.requests_per_s = 1, .per_address = 4}};
    int refused = 0, fds[8];
    start(&o);
    for (int i = 0; i < 12; i++)
        refused += strstr(ask(GET("/echo/1", "")), "HTTP/1.1 429") != NULL;
    CHECK(refused >= 1 && refused <= 3, "%d of 12 requests are over a burst of 10", refused);
    for (int i = 0; i < 8; i++)
        fds[i] = client();
    int open = 0;
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    do {
        turn();
        open = 0;
        for (int i = 0; i < 8; i++) {
            char byte;
            open += recv(fds[i], &byte, 1, MSG_PEEK) != 0;
        }
        CHECK(!td__deadline_passed(until), "%d connections of one address are open", open);
    } while (open > 4);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    stop();
}

static void count_errors(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)part, (void)line;
    *(int *)user += level == TD_LOG_ERROR;
}

/* The server starts with the first connection; that one waits while there are no descriptors, which
 * is said once, and the loop sleeps. */
TEST(the_first_connection_waits_for_descriptors)
{
    struct rlimit before, none;
    int errors = 0, turns = 0;

    start(NULL);
    int fd = client(), lowest = dup(fd);
    CHECK(lowest >= 0 && !getrlimit(RLIMIT_NOFILE, &before), "no limit");
    close(lowest);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    td_log_set_sink(count_errors, &errors);
    CHECK(!setrlimit(RLIMIT_NOFILE, &none), "no limit");
    for (td__deadline until = td__deadline_in_ms(50); !td__deadline_passed(until); turns++)
        turn();
    CHECK(!setrlimit(RLIMIT_NOFILE, &before), "no limit");
    td_log_set_sink(NULL, NULL);
    CHECK_EQ_INT(errors, 1);
    CHECK(turns < 20, "%d turns in 50 ms", turns);
    say(fd, GET("/echo/1", ""), strlen(GET("/echo/1", "")));
    CHECK(strstr(hear(fd, NULL), "HTTP/1.1 200"), "no answer");
    close(fd);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_and_errors),
        cmocka_unit_test(answers_come_later_and_after_the_commit),
        cmocka_unit_test(bodies_have_limits),
        cmocka_unit_test(uploads_become_files),
        cmocka_unit_test(tokens_open_routes),
        cmocka_unit_test(streams_flow_until_either_side_ends),
        cmocka_unit_test(slow_readers_are_cut_off),
        cmocka_unit_test(slow_senders_are_cut_off),
        cmocka_unit_test(idle_connections_are_closed),
        cmocka_unit_test(rates_and_connections_have_limits),
        cmocka_unit_test(the_first_connection_waits_for_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
