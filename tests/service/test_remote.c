/* The client of remote storage: addresses, signatures, S3's answers; and HTTP against a server that
 * refuses, cuts, stalls and lies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "remote/remote.h"
#include "remote/s3_xml.h"
#include "remote/sigv4.h"
#include "remote/url.h"
#include "support/check.h"
#include "support/http_server.h"

enum { SOON_MS = 20000, BIG = 300000, LONG_FILE = 8 << 20 };

static td__deadline soon(void)
{
    return td__deadline_in_ms(SOON_MS);
}

TEST(addresses)
{
    static const struct {
        const char *text;
        int kind; /* -1: refused */
        const char *bucket, *path, *error;
    } CASES[] = {
        {"s3://bucket/a/b.txt", TD_URL_S3, "bucket", "a/b.txt", NULL},
        {"S3://my-bucket", TD_URL_S3, "my-bucket", "", NULL},
        {"http://h:80/a?b=c", TD_URL_HTTP, "", "http://h:80/a?b=c", NULL},
        {"https://h/", TD_URL_HTTP, "", "https://h/", NULL},
        {"runs/a", TD_URL_FILE, "", "runs/a", NULL},
        {"file:/tmp/x", TD_URL_FILE, "", "/tmp/x", NULL},
        {"file:///tmp/x", TD_URL_FILE, "", "/tmp/x", NULL},
        {"./a:b", TD_URL_FILE, "", "./a:b", NULL},
        {"gs://bucket/x", -1, NULL, NULL, "unknown kind of address"},
        {"s3:/bucket/x", -1, NULL, NULL, "unknown kind of address"},
        {"s3://", -1, NULL, NULL, "3 to 255 characters"},
        {"s3://b$cket/x", -1, NULL, NULL, "letters, digits"},
        {"s3://bucket/a/../b", -1, NULL, NULL, "'..'"},
        {"http:///x", -1, NULL, NULL, "unknown kind of address"},
        {"file:", -1, NULL, NULL, "no path"},
        {"", -1, NULL, NULL, "empty"},
        {"http://h/\n", -1, NULL, NULL, "control character"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__url u;
        td_status st = td__url_parse(CASES[i].text, &u);
        if (CASES[i].kind < 0) {
            CHECK(st == TD_EINVAL && strstr(td_last_error(), CASES[i].error), "%s: %s",
                  CASES[i].text, td_last_error());
            continue;
        }
        CHECK(st == TD_OK && (int)u.kind == CASES[i].kind &&
                  strcmp(u.bucket, CASES[i].bucket) == 0 && strcmp(u.path, CASES[i].path) == 0,
              "%s: kind %d, bucket '%s', path '%s'", CASES[i].text, (int)u.kind, u.bucket, u.path);
    }
}

TEST(secrets_are_not_shown)
{
    char shown[256];

    td__url_shown("https://user:se@cret@host/a?X-Amz-Signature=12#f", shown, sizeof shown);
    assert_string_equal(shown, "https://host/a");
    td__url_shown("s3://bucket/key", shown, sizeof shown);
    assert_string_equal(shown, "s3://bucket/key");
}

/* The examples of "Signature Calculations for the Authorization Header" in Amazon's documentation
 * of the S3 API. */
TEST(signatures_are_those_of_the_documentation)
{
    static const char EMPTY[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    struct {
        td__sigv4 s;
        const char *signature;
    } CASES[] = {
        {{.method = "GET",
          .path = "/test.txt",
          .header = {{"range", "bytes=0-9"}, {"host", "examplebucket.s3.amazonaws.com"}},
          .n_headers = 2},
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {{.method = "PUT",
          .path = "/test%24file.text",
          .header = {{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                     {"date", "Fri, 24 May 2013 00:00:00 GMT"},
                     {"host", "examplebucket.s3.amazonaws.com"}},
          .n_headers = 3,
          .payload = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        {{.method = "GET",
          .path = "/",
          .query = {{"lifecycle", ""}},
          .n_query = 1,
          .header = {{"host", "examplebucket.s3.amazonaws.com"}},
          .n_headers = 1},
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {{.method = "GET",
          .path = "/",
          .query = {{"prefix", "J"}, {"max-keys", "2"}}, /* to be sorted */
          .n_query = 2,
          .header = {{"host", "examplebucket.s3.amazonaws.com"}},
          .n_headers = 1},
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__sigv4 *s = &CASES[i].s;
        td__sigv4_times times;
        td__text t = {0};
        s->access_key = "AKIAIOSFODNN7EXAMPLE";
        s->secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        s->region = "us-east-1";
        s->now = 1369353600; /* 2013-05-24 */
        if (!s->payload[0])
            memcpy(s->payload, EMPTY, sizeof EMPTY);
        CHECK_OK(td__sigv4_sign(s, &times, &t));
        CHECK(strstr(t.data, CASES[i].signature), "%zu: %s", i, t.data);
        CHECK(strstr(t.data, "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"), "%s",
              t.data);
        td__text_fini(&t);
    }
}

TEST(answers_of_s3)
{
    td__text t = {0};
    td__s3_xml x;
    char text[64];

    td__text_add(&t, "<R><C><Key>a&amp;b&#60;</Key></C><C><Key>c</Key></C><Next>n</Next></R>");
    td__s3_xml_init(&x, &t);
    CHECK(td__s3_xml_next(&x, "C") && td__s3_xml_text(&x, "Key", text, sizeof text), "first");
    assert_string_equal(text, "a&b<");
    CHECK(!td__s3_xml_text(&x, "Next", text, sizeof text), "outside of the element");
    CHECK(td__s3_xml_next(&x, "C") && td__s3_xml_text(&x, "Key", text, sizeof text), "second");
    assert_string_equal(text, "c");
    CHECK(!td__s3_xml_next(&x, "C"), "a third");
    CHECK(td__s3_xml_whole_text(&t, "Next", text, sizeof text), "anywhere");
    CHECK(!td__s3_xml_whole_text(&t, "Key", text, 3), "too long for its place");
    td__text_clear(&t);
    td__text_add(&t, "<Key>a&nosuch;</Key><Open>x");
    CHECK(!td__s3_xml_whole_text(&t, "Key", text, sizeof text), "an unknown entity");
    CHECK(!td__s3_xml_whole_text(&t, "Open", text, sizeof text), "never closed");
    td__text_fini(&t);
}

typedef struct rig {
    http_server *server;
    td__remote *remote;
    char big[BIG], sha256[TD_SHA256_HEX];
} rig;

static rig *set_up(const td__http_opts *http)
{
    rig *r = calloc(1, sizeof *r);
    uint8_t digest[TD_SHA256_BYTES];

    check_tmpdir();
    r->server = http_server_start(NULL);
    CHECK_OK(
        td__remote_create(&(td__remote_opts){.http = *http, .s3 = &(td__s3_opts){0}}, &r->remote));
    for (int i = 0; i < BIG; i++)
        r->big[i] = (char)(i * 7 + i / 251);
    CHECK_OK(td__sha256_of(r->big, BIG, digest));
    td__sha256_hex(digest, r->sha256);
    http_server_set(r->server, "big", r->big, BIG);
    return r;
}

static void tear_down(rig *r)
{
    td__remote_destroy(r->remote);
    http_server_stop(r->server);
    free(r);
    check_tmpdir_remove();
}

static bool file_is(const char *path, const char *data, size_t nbytes)
{
    char *have = malloc(nbytes + 1);
    FILE *f = fopen(path, "rb");
    bool same = f && fread(have, 1, nbytes + 1, f) == nbytes && memcmp(have, data, nbytes) == 0;
    if (f)
        fclose(f);
    free(have);
    return same;
}

TEST(objects_over_http)
{
    rig *r = set_up(&(td__http_opts){0});
    td__text t = {0};

    CHECK_OK(td__remote_put(r->remote, http_server_url(r->server, "a"), "hello", 5, soon()));
    CHECK_OK(td__remote_get(r->remote, http_server_url(r->server, "a"), 100, &t, soon()));
    assert_string_equal(t.data, "hello");
    CHECK_STATUS(td__remote_get(r->remote, http_server_url(r->server, "a"), 4, &t, soon()),
                 TD_EPROTO);
    CHECK_OK(td__remote_delete(r->remote, http_server_url(r->server, "a"), soon()));
    CHECK_OK(td__remote_delete(r->remote, http_server_url(r->server, "a"), soon()));
    CHECK_STATUS(
        td__remote_get(r->remote, http_server_url(r->server, "a?key=secret"), 100, &t, soon()),
        TD_EINVAL);
    CHECK(td__remote_absent(r->remote), "not said to be absent");
    CHECK(strstr(td_last_error(), "404: no such object") &&
              strstr(td_last_error(), "GET http://") && !strstr(td_last_error(), "secret"),
          "%s", td_last_error());
    CHECK_STATUS(td__remote_list(r->remote, http_server_url(r->server, ""), NULL, NULL, soon()),
                 TD_ENOTSUP);
    td__text_fini(&t);
    tear_down(r);
}

TEST(refusals_are_repeated_if_it_is_worth_it)
{
    rig *r = set_up(&(td__http_opts){.attempts = 3});
    td__text t = {0};
    int before = http_server_requests(r->server);

    http_server_misbehave(r->server, &(http_faults){.refuse = 1, .drop = 1});
    CHECK_OK(td__remote_put(r->remote, http_server_url(r->server, "b"), "1", 1, soon()));
    CHECK_EQ_INT(http_server_requests(r->server) - before, 3);
    before = http_server_requests(r->server);
    http_server_misbehave(r->server, &(http_faults){.refuse = 99, .said = "too busy\nreally"});
    CHECK_STATUS(td__remote_put(r->remote, http_server_url(r->server, "b"), "1", 1, soon()),
                 TD_EPEER);
    CHECK(strstr(td_last_error(), "status 503: too busy"), "%s", td_last_error());
    CHECK_EQ_INT(http_server_requests(r->server) - before, 3);
    before = http_server_requests(r->server);
    http_server_misbehave(r->server, &(http_faults){.refuse = 99,
                                                    .status = 403,
                                                    .said = "<Error><Code>AccessDenied</Code>"
                                                            "<Message>no</Message></Error>"});
    CHECK_STATUS(td__remote_get(r->remote, http_server_url(r->server, "b"), 9, &t, soon()),
                 TD_EINVAL);
    CHECK(strstr(td_last_error(), "status 403: AccessDenied: no"), "%s", td_last_error());
    CHECK_EQ_INT(http_server_requests(r->server) - before, 1);
    td__text_fini(&t);
    tear_down(r);
}

TEST(downloads_go_on_where_they_were_cut)
{
    rig *r = set_up(&(td__http_opts){0});
    const char *path = check_path("got");
    int before = http_server_requests(r->server);

    http_server_misbehave(r->server, &(http_faults){.cut = 2, .cut_after = 100000});
    CHECK_OK(td__remote_get_file(r->remote, http_server_url(r->server, "big"), path, NULL, soon()));
    CHECK(file_is(path, r->big, BIG), "wrong bytes");
    CHECK_EQ_INT(http_server_requests(r->server) - before, 3);
    CHECK(strstr(http_server_last(r->server), "Range: bytes=200000-") &&
              strstr(http_server_last(r->server), "If-Range: \"tag-300000\""),
          "%s", http_server_last(r->server));
    /* A server that knows no ranges sends all again, and nothing is there twice. */
    http_server_misbehave(r->server,
                          &(http_faults){.cut = 1, .cut_after = 100000, .no_ranges = true});
    CHECK_OK(td__remote_get_file(r->remote, http_server_url(r->server, "big"), path, NULL, soon()));
    CHECK(file_is(path, r->big, BIG), "wrong bytes without ranges");
    http_server_misbehave(r->server, &(http_faults){.chunked = true});
    CHECK_OK(
        td__remote_get_file(r->remote, http_server_url(r->server, "big"), path, r->sha256, soon()));
    CHECK(file_is(path, r->big, BIG), "wrong bytes in chunks");
    tear_down(r);
}

TEST(downloads_of_an_earlier_process_go_on)
{
    rig *r = set_up(&(td__http_opts){0});
    char part[512];
    const char *path = check_path("got");

    snprintf(part, sizeof part, "%s.part", path);
    FILE *f = fopen(part, "wb");
    fwrite(r->big, 1, 250000, f);
    fclose(f);
    CHECK_OK(
        td__remote_get_file(r->remote, http_server_url(r->server, "big"), path, r->sha256, soon()));
    CHECK(file_is(path, r->big, BIG), "wrong bytes");
    CHECK(strstr(http_server_last(r->server), "Range: bytes=250000-"), "all was sent again");
    /* What was there is of something else: fetched from the beginning. */
    f = fopen(part, "wb");
    fwrite(r->big + 1, 1, 250000, f);
    fclose(f);
    CHECK_OK(
        td__remote_get_file(r->remote, http_server_url(r->server, "big"), path, r->sha256, soon()));
    CHECK(file_is(path, r->big, BIG), "wrong bytes after a wrong part");
    tear_down(r);
}

TEST(files_are_whole_or_absent)
{
    rig *r = set_up(&(td__http_opts){.attempts = 2});
    const char *path = check_path("got"), *part = check_path("got.part");
    char wrong[TD_SHA256_HEX];

    memcpy(wrong, r->sha256, sizeof wrong);
    wrong[0] = wrong[0] == '0' ? '1' : '0';
    CHECK_STATUS(
        td__remote_get_file(r->remote, http_server_url(r->server, "big"), path, wrong, soon()),
        TD_EPROTO);
    CHECK(strstr(td_last_error(), "sha256"), "%s", td_last_error());
    CHECK(access(path, F_OK) != 0 && access(part, F_OK) != 0, "something is left");
    CHECK_STATUS(
        td__remote_get_file(r->remote, http_server_url(r->server, "nosuch"), path, NULL, soon()),
        TD_EINVAL);
    CHECK(td__remote_absent(r->remote), "not absent");
    CHECK(access(path, F_OK) != 0 && access(part, F_OK) != 0, "something is left");
    tear_down(r);
}

TEST(nothing_waits_for_ever)
{
    rig *r = set_up(&(td__http_opts){.idle_ms = 100, .attempts = 1});
    const char *path = check_path("got");
    td__text t = {0};
    uint64_t start = td__clock_ns();

    http_server_misbehave(r->server, &(http_faults){.stall = 1});
    CHECK_STATUS(td__remote_get(r->remote, http_server_url(r->server, "big"), BIG, &t, soon()),
                 TD_ETIMEDOUT);
    CHECK(strstr(td_last_error(), "says nothing"), "%s", td_last_error());
    http_server_misbehave(r->server, &(http_faults){.stall = 99});
    CHECK_STATUS(td__remote_get_file(r->remote, http_server_url(r->server, "big"), path, NULL,
                                     td__deadline_in_ms(300)),
                 TD_ETIMEDOUT);
    CHECK(td__clock_ns() - start < 10ull * 1000000000u, "took %.1f s",
          (double)(td__clock_ns() - start) * 1e-9);
    td__text_fini(&t);
    tear_down(r);
}

static void *stop_soon(void *arg)
{
    rig *r = arg;
    while (http_server_requests(r->server) == 0)
        sched_yield();
    td__remote_stop(r->remote);
    return NULL;
}

TEST(calls_can_be_stopped)
{
    rig *r = set_up(&(td__http_opts){0});
    td__text t = {0};
    pthread_t thread;

    http_server_misbehave(r->server, &(http_faults){.stall = 1});
    CHECK(pthread_create(&thread, NULL, stop_soon, r) == 0, "thread");
    CHECK_STATUS(td__remote_get(r->remote, http_server_url(r->server, "big"), BIG, &t, soon()),
                 TD_EABORTED);
    pthread_join(thread, NULL);
    CHECK_STATUS(td__remote_get(r->remote, http_server_url(r->server, "big"), BIG, &t, soon()),
                 TD_EABORTED);
    td__text_fini(&t);
    tear_down(r);
}

TEST(unix_sockets)
{
    check_tmpdir();
    const char *path = check_path("socket");
    http_server *s = http_server_start(path);
    td__http *h;
    td__http_response a;

    http_server_set(s, "v1.41/info", "{}", 2);
    CHECK_OK(td__http_create(&(td__http_opts){.unix_socket = path, .attempts = 1}, &h));
    CHECK_OK(td__http_call(
        h, &(td__http_request){.url = "http://docker/v1.41/info", .until = soon()}, &a));
    assert_string_equal(a.body.data, "{}");
    td__http_response_fini(&a);
    td__http_destroy(h);
    http_server_stop(s);
    CHECK_OK(td__http_create(&(td__http_opts){.unix_socket = path, .attempts = 1}, &h));
    CHECK_STATUS(
        td__http_call(h, &(td__http_request){.url = "http://docker/v1.41/info", .until = soon()},
                      &a),
        TD_EPEER);
    td__http_response_fini(&a);
    td__http_destroy(h);
    check_tmpdir_remove();
}

static bool count(void *user, const char *name, uint64_t nbytes)
{
    char *all = user;
    snprintf(all + strlen(all), 256 - strlen(all), "%s:%d ", name, (int)nbytes);
    return true;
}

TEST(folders)
{
    rig *r = set_up(&(td__http_opts){0});
    char url[512], copy[512], all[256] = "", hash[TD_SHA256_HEX];
    td__text t = {0};

    snprintf(url, sizeof url, "file:%s", check_path("store/x/a"));
    snprintf(copy, sizeof copy, "%s", check_path("copy"));
    CHECK_OK(td__remote_put(r->remote, url, "abc", 3, soon()));
    CHECK_OK(td__remote_get(r->remote, url, 10, &t, soon()));
    assert_string_equal(t.data, "abc");
    CHECK_OK(td__remote_get_file(r->remote, url, copy, NULL, soon()));
    CHECK_STATUS(td__remote_get_file(r->remote, url, check_path("not"), r->sha256, soon()),
                 TD_EPROTO);
    CHECK_OK(td__remote_put_file(r->remote, check_path("store/b"), copy, hash, soon()));
    assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK_OK(td__remote_list(r->remote, check_path("store"), count, all, soon()));
    CHECK(strstr(all, "x/a:3 ") && strstr(all, "b:3 ") && strlen(all) == 10, "'%s'", all);
    CHECK_OK(td__remote_delete(r->remote, url, soon()));
    CHECK_OK(td__remote_delete(r->remote, url, soon()));
    CHECK(td__remote_get(r->remote, url, 10, &t, soon()) != TD_OK && td__remote_absent(r->remote),
          "still there");
    td__text_fini(&t);
    tear_down(r);
}

typedef struct cutter {
    int fd;
    atomic_bool over;
} cutter;

static void *cut_and_restore(void *user)
{
    cutter *c = user;
    while (!atomic_load(&c->over))
        if (ftruncate(c->fd, 4096) || ftruncate(c->fd, LONG_FILE))
            abort();
    return NULL;
}

/* A map of such a file would end this process by a signal. */
TEST(files_are_cut_while_they_are_sent)
{
    rig *r = set_up(&(td__http_opts){.attempts = 1});
    char url[512], path[512], hash[TD_SHA256_HEX];
    cutter c = {0};
    pthread_t thread;
    int cut = 0;

    snprintf(path, sizeof path, "%s", check_path("long"));
    c.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(c.fd >= 0 && ftruncate(c.fd, LONG_FILE) == 0);
    assert_int_equal(pthread_create(&thread, NULL, cut_and_restore, &c), 0);
    for (int i = 0; i < 40; i++) {
        snprintf(url, sizeof url, "%s",
                 i % 4 ? check_path("to") : http_server_url(r->server, "cut"));
        td_status st = td__remote_put_file(r->remote, url, path, hash, soon());
        CHECK(st == TD_OK || st == TD_EIO, "%d: %s", i, td_last_error());
        cut += st == TD_EIO;
    }
    atomic_store(&c.over, true);
    pthread_join(thread, NULL);
    close(c.fd);
    CHECK(cut > 0, "it was never cut in between");
    tear_down(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(secrets_are_not_shown),
        cmocka_unit_test(signatures_are_those_of_the_documentation),
        cmocka_unit_test(answers_of_s3),
        cmocka_unit_test(objects_over_http),
        cmocka_unit_test(refusals_are_repeated_if_it_is_worth_it),
        cmocka_unit_test(downloads_go_on_where_they_were_cut),
        cmocka_unit_test(downloads_of_an_earlier_process_go_on),
        cmocka_unit_test(files_are_whole_or_absent),
        cmocka_unit_test(nothing_waits_for_ever),
        cmocka_unit_test(calls_can_be_stopped),
        cmocka_unit_test(unix_sockets),
        cmocka_unit_test(folders),
        cmocka_unit_test(files_are_cut_while_they_are_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
