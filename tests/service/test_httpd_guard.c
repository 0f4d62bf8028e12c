/* Tokens, names of hosts, origins, rates and paths of routes: what stands before every handler. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "rpc/httpd_impl.h"
#include "support/check.h"

static void add(td__tokens *t, const char *user, td__scope scope, const char *token)
{
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX];
    CHECK_OK(td__sha256_of(token, strlen(token), digest));
    td__sha256_hex(digest, hex);
    CHECK_OK(td__tokens_add(t, user, scope, hex));
}

TEST(tokens_name_users_and_scopes)
{
    td__tokens *t;
    CHECK_OK(td__tokens_create(&t));
    CHECK(td__tokens_identify(NULL, NULL).scope == TD_SCOPE_ADMIN, "no table: everybody");
    CHECK(td__tokens_identify(t, NULL).scope == TD_SCOPE_ADMIN, "no tokens: everybody");
    add(t, "ann", TD_SCOPE_READ, "one");
    add(t, "bob", TD_SCOPE_SUBMIT, "two");
    add(t, "eve", TD_SCOPE_ADMIN, "three");
    static const struct {
        const char *sent, *user;
        td__scope scope;
    } CASES[] = {
        {"Bearer one", "ann", TD_SCOPE_READ},
        {"bearer two", "bob", TD_SCOPE_SUBMIT},
        {"Bearer three", "eve", TD_SCOPE_ADMIN},
        {NULL, "", TD_SCOPE_NONE},
        {"", "", TD_SCOPE_NONE},
        {"Bearer ", "", TD_SCOPE_NONE},
        {"Bearer ones", "", TD_SCOPE_NONE},
        {"Bearer on", "", TD_SCOPE_NONE},
        {"one", "", TD_SCOPE_NONE},
        {"Basic one", "", TD_SCOPE_NONE},
        {"Bearer  one", "", TD_SCOPE_NONE},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__identity who = td__tokens_identify(t, CASES[i].sent);
        CHECK(who.scope == CASES[i].scope && strcmp(who.user, CASES[i].user) == 0,
              "'%s' is %s with %s", CASES[i].sent ? CASES[i].sent : "", who.user,
              td__scope_name(who.scope));
    }
    td__tokens_destroy(t);
}

TEST(bad_tokens_are_refused)
{
    td__tokens *t;
    char digits[] = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    td__scope s;
    CHECK_OK(td__tokens_create(&t));
    CHECK_STATUS(td__tokens_add(t, "ann", TD_SCOPE_READ, "secret"), TD_EINVAL);
    CHECK_STATUS(td__tokens_add(t, "", TD_SCOPE_READ, digits), TD_EINVAL);
    CHECK_OK(td__tokens_add(t, "ann", TD_SCOPE_READ, digits));
    CHECK_STATUS(td__tokens_add(t, "bob", TD_SCOPE_ADMIN, digits), TD_EINVAL);
    digits[10] = 'x';
    CHECK_STATUS(td__tokens_add(t, "eve", TD_SCOPE_READ, digits), TD_EINVAL);
    CHECK_EQ_INT(td__tokens_count(t), 1);
    CHECK(!td__scope_parse("none", &s) && !td__scope_parse("", &s), "no scope of that name");
    CHECK(td__scope_parse("submit", &s) && s == TD_SCOPE_SUBMIT, "submit");
    td__tokens_destroy(t);
}

TEST(hosts_must_be_known)
{
    static const char *const NAMES[] = {"train.example.org", NULL}, *const ANY[] = {"*", NULL};
    static const char *const GOOD[] = {"localhost", "localhost:80",      "LocalHost:80",
                                       "127.0.0.1", "10.0.0.7:99",       "[::1]:6004",
                                       "[fe80::1]", "train.example.org", "TRAIN.example.org:443"};
    static const char *const BAD[] = {
        "",           "evil.example",  "localhost.evil.example", "[::1", "[evil]",
        "127.0.0.1:", "127.0.0.1:80x", "train.example.org.evil", ":80",  "127.0.0.1@evil"};
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++)
        CHECK(td__guard_host(GOOD[i], NAMES), "%s", GOOD[i]);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(!td__guard_host(BAD[i], NAMES), "%s", BAD[i]);
    CHECK(!td__guard_host(NULL, ANY), "no host at all");
    CHECK(td__guard_host("evil.example", ANY), "any");
    CHECK(!td__guard_host("train.example.org", NULL), "no names");
}

TEST(origins_must_be_ours)
{
    static const char *const ORIGINS[] = {"https://lab.example.org", NULL};
    CHECK(td__guard_origin("http://127.0.0.1:6004", "127.0.0.1:6004", NULL), "same");
    CHECK(td__guard_origin("https://a.b", "a.b", NULL), "a proxy may end TLS");
    CHECK(td__guard_origin("https://lab.example.org", "a.b", ORIGINS), "listed");
    CHECK(!td__guard_origin("http://lab.example.org", "a.b", ORIGINS), "another scheme");
    CHECK(!td__guard_origin("http://127.0.0.1:6005", "127.0.0.1:6004", NULL), "another port");
    CHECK(!td__guard_origin("null", "127.0.0.1:6004", NULL), "null");
    CHECK(!td__guard_origin("file://127.0.0.1:6004", "127.0.0.1:6004", NULL), "file");
    CHECK(!td__guard_origin("http://127.0.0.1:6004", NULL, NULL), "no host");
}

TEST(rates_are_per_client)
{
    td__rates *r;
    struct sockaddr_in a = {.sin_family = AF_INET}, b = {.sin_family = AF_INET};
    struct sockaddr_in6 c = {.sin6_family = AF_INET6};
    const struct sockaddr *pa = (const void *)&a, *pb = (const void *)&b, *pc = (const void *)&c;
    uint64_t now = 5000000000u;
    a.sin_addr.s_addr = htonl(0x0a000001);
    b.sin_addr.s_addr = htonl(0x0a000002);
    CHECK_OK(td__rates_create(10, 20, &r));
    for (int i = 0; i < 20; i++)
        CHECK(td__rates_take(r, pa, now), "%d of a burst", i);
    CHECK(!td__rates_take(r, pa, now), "the burst is used up");
    CHECK(td__rates_take(r, pb, now), "another client");
    now += 100000000u; /* a tenth of a second: one token */
    CHECK(td__rates_take(r, pa, now), "refilled");
    CHECK(!td__rates_take(r, pa, now), "by one");
    for (int i = 0; i < 20; i++) { /* addresses of one /64 share a bucket */
        c.sin6_addr.s6_addr[15] = (uint8_t)i;
        CHECK(td__rates_take(r, pc, now), "%d", i);
    }
    CHECK(!td__rates_take(r, pc, now), "the network's burst is used up");
    /* More clients than are remembered: a flood does not free those who are over their rate. */
    for (uint32_t i = 0; i < 2000; i++) {
        b.sin_addr.s_addr = htonl(0x0b000000 + i);
        td__rates_take(r, pb, now);
    }
    CHECK(!td__rates_take(r, pa, now), "still used up");
    td__rates_destroy(r);
}

TEST(paths_match_routes)
{
    static const struct {
        const char *pattern, *path, *first, *second;
    } CASES[] = {
        {"/v1/jobs", "/v1/jobs", NULL, NULL},
        {"/v1/jobs/{id}", "/v1/jobs/17", "17", NULL},
        {"/v1/jobs/{id}/artifacts/{name...}", "/v1/jobs/17/artifacts/a/b.bin", "17", "a/b.bin"},
        {"/{file}", "/app.js", "app.js", NULL},
    };
    static const char *const OTHERS[][2] = {
        {"/v1/jobs", "/v1/jobs/"},     {"/v1/jobs/{id}", "/v1/jobs/"},
        {"/v1/jobs/{id}", "/v1/jobs"}, {"/v1/jobs/{id}", "/v1/jobs/1/x"},
        {"/v1/x/{p...}", "/v1/x/"},    {"/{file}", "/a/b"},
    };
    td__httpd_param_value params[TD__HTTPD_PARAMS];
    char path[64];
    int n;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        snprintf(path, sizeof path, "%s", CASES[i].path);
        CHECK(td__httpd_match(CASES[i].pattern, path, params, &n), "%s", CASES[i].path);
        CHECK_EQ_INT(n, (CASES[i].first != NULL) + (CASES[i].second != NULL));
        CHECK(n < 1 || strcmp(params[0].value, CASES[i].first) == 0, "%s", params[0].value);
        CHECK(n < 2 || strcmp(params[1].value, CASES[i].second) == 0, "%s", params[1].value);
    }
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        snprintf(path, sizeof path, "%s", OTHERS[i][1]);
        CHECK(!td__httpd_match(OTHERS[i][0], path, params, &n), "%s", OTHERS[i][1]);
        CHECK(strcmp(path, OTHERS[i][1]) == 0, "a path that does not match stays whole");
    }
    CHECK(td__httpd_path_ok("/a/..b/.c/d."), "dots");
    static const char *const BAD[] = {"", "a", "/..", "/a/../b", "/a/.", "/a\\b", "/a\nb"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(!td__httpd_path_ok(BAD[i]), "%s", BAD[i]);
}

TEST(clients_have_so_many_connections)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001)},
                       other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000002)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6}, mapped = {.sin6_family = AF_INET6};
    const struct sockaddr *a = (const struct sockaddr *)&four, *b = (const struct sockaddr *)&other,
                          *n = (const struct sockaddr *)&six, *m = (const struct sockaddr *)&mapped;
    td__clients *c;

    assert_int_equal(inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr), 1);
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr), 1);
    CHECK_OK(td__clients_create(2, &c));
    for (int i = 0; i < 2; i++) {
        assert_true(td__clients_room(c, a));
        td__clients_enter(c, a);
    }
    assert_false(td__clients_room(c, a));
    assert_false(td__clients_room(c, m)); /* the same client */
    assert_true(td__clients_room(c, b) && td__clients_room(c, n) && td__clients_room(c, NULL));
    td__clients_enter(c, n);
    td__clients_enter(c, n);
    assert_int_equal(inet_pton(AF_INET6, "2001:db8::ffff:1", &six.sin6_addr), 1);
    assert_false(td__clients_room(c, n)); /* the same network */
    td__clients_leave(c, m);
    assert_true(td__clients_room(c, a));
    td__clients_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_name_users_and_scopes),
        cmocka_unit_test(bad_tokens_are_refused),
        cmocka_unit_test(hosts_must_be_known),
        cmocka_unit_test(origins_must_be_ours),
        cmocka_unit_test(rates_are_per_client),
        cmocka_unit_test(paths_match_routes),
        cmocka_unit_test(clients_have_so_many_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
