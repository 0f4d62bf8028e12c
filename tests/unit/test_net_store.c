/* The rendezvous store: keys, waits, counters, limits; members and their deaths; stores in a tree;
 * with TLS; and how fast a world of 200 meets. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "net/greet.h"
#include "net/store.h"
#include "net/store_wire.h"
#include "net/tls.h"
#include "support/check.h"

enum { SOON_MS = 100000 };

static const td__secret SECRET = {{1, 2, 3}};

static td__deadline soon(void)
{
    return td__deadline_in_ms(SOON_MS);
}

static td__store_server *serve(const td__store_opts *o)
{
    td__store_server *s;
    CHECK_OK(td__store_server_create(&SECRET, o, &s));
    return s;
}

static td__store *client_of(const td__store_server *s, const td__store_opts *o)
{
    td__store *c;
    CHECK_OK(td__store_connect(td__store_server_address(s), &SECRET, o, soon(), &c));
    return c;
}

static void expect_key(td__store *c, const char *key, const char *want)
{
    void *value;
    size_t nbytes;

    CHECK_OK(td__store_get(c, key, soon(), &value, &nbytes));
    if (want) {
        CHECK_EQ_INT(nbytes, strlen(want));
        assert_memory_equal(value, want, nbytes);
    } else {
        assert_null(value);
    }
    td__free(value);
}

static void exercise(td__store *c, td__store *d)
{
    void *value;
    size_t nbytes;
    int64_t number;
    bool swapped;

    expect_key(c, "a", NULL);
    CHECK_OK(td__store_set(c, "a", "one", 3, soon()));
    expect_key(d, "a", "one");
    CHECK_OK(td__store_set(d, "a", "", 0, soon()));
    expect_key(c, "a", "");
    CHECK_OK(td__store_wait(c, "a", soon(), &value, &nbytes));
    CHECK_EQ_INT(nbytes, 0);
    td__free(value);
    CHECK_OK(td__store_delete(d, "a", soon()));
    expect_key(c, "a", NULL);
    CHECK_STATUS(td__store_wait(c, "a", td__deadline_in_ms(20), &value, &nbytes), TD_ETIMEDOUT);
    CHECK(strstr(td_last_error(), "waiting for key a") != NULL, "%s", td_last_error());

    CHECK_OK(td__store_add(c, "n", 5, soon(), &number));
    CHECK_OK(td__store_add(d, "n", -7, soon(), &number));
    CHECK_EQ_INT(number, -2);
    expect_key(c, "n", "-2");
    CHECK_OK(td__store_set(c, "text", "x1", 2, soon()));
    CHECK_STATUS(td__store_add(c, "text", 1, soon(), &number), TD_EINVAL);

    CHECK_OK(td__store_compare_set(c, "lock", NULL, 0, "c", 1, soon(), &swapped));
    assert_true(swapped);
    CHECK_OK(td__store_compare_set(d, "lock", NULL, 0, "d", 1, soon(), &swapped));
    assert_false(swapped);
    CHECK_OK(td__store_compare_set(d, "lock", "c", 1, "d", 1, soon(), &swapped));
    assert_true(swapped);
    expect_key(c, "lock", "d");
}

TEST(keys)
{
    td__store_server *s = serve(NULL);
    td__store *c = client_of(s, NULL), *d = client_of(s, NULL);

    exercise(c, d);
    td__store_close(c);
    td__store_close(d);
    td__store_server_destroy(s);
}

TEST(limits)
{
    td__store_server *s = serve(NULL);
    td__store *c = client_of(s, NULL);
    enum { MOST = 1 << 20 };
    char *big = td__calloc(1, MOST + 1);
    char key[300];
    void *value;
    size_t nbytes;

    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    CHECK_STATUS(td__store_set(c, key, "x", 1, soon()), TD_EINVAL);
    key[255] = 0;
    CHECK_OK(td__store_set(c, key, "x", 1, soon()));
    CHECK_STATUS(td__store_set(c, "big", big, MOST + 1, soon()), TD_EINVAL);
    CHECK_OK(td__store_set(c, "big", big, MOST, soon()));
    CHECK_OK(td__store_wait(c, "big", soon(), &value, &nbytes));
    CHECK_EQ_INT(nbytes, MOST);
    td__free(value);
    CHECK_STATUS(td__store_wait_all(c, key, 3, soon(), &value, &nbytes), TD_EINVAL);
    CHECK_OK(td__store_wait_all(c, "none", 0, soon(), &value, &nbytes));
    CHECK_EQ_INT(nbytes, 0);
    td__free(value);
    td__free(big);
    td__store_close(c);
    td__store_server_destroy(s);
}

typedef struct late {
    td__store *store;
    td_status st;
} late;

static void *wait_for_three(void *p)
{
    late *l = p;
    void *value;
    size_t nbytes;

    l->st = td__store_wait_all(l->store, "k", 3, soon(), &value, &nbytes);
    if (!l->st && nbytes != 3 * 4 + 3)
        l->st = TD_EIO;
    td__free(value);
    return NULL;
}

TEST(a_key_deleted_during_a_wait_for_all_is_waited_for_again)
{
    td__store_server *s = serve(NULL);
    td__store *c = client_of(s, NULL);
    late l = {.store = client_of(s, NULL)};
    pthread_t thread;
    void *value;
    size_t nbytes;

    CHECK_OK(td__store_set(c, "k0", "a", 1, soon()));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_three, &l), 0);
    CHECK_OK(td__store_set(c, "k1", "b", 1, soon()));
    CHECK_OK(td__store_delete(c, "k0", soon()));
    CHECK_OK(td__store_set(c, "k2", "c", 1, soon()));
    CHECK_STATUS(td__store_wait_all(c, "k", 3, td__deadline_in_ms(20), &value, &nbytes),
                 TD_ETIMEDOUT);
    CHECK_OK(td__store_set(c, "k0", "d", 1, soon()));
    pthread_join(thread, NULL);
    CHECK_EQ_INT(l.st, TD_OK);
    td__store_close(l.store);
    td__store_close(c);
    td__store_server_destroy(s);
}

TEST(a_wrong_secret_is_refused)
{
    static const td__secret WRONG = {{9}};
    td__store_server *s = serve(NULL);
    td__store *c;
    td_status st = td__store_connect(td__store_server_address(s), &WRONG, NULL, soon(), &c);

    CHECK(st == TD_EPROTO || st == TD_EPEER, "%s", td_status_name(st));
    assert_null(c);
    td__store_close(client_of(s, NULL));
    td__store_server_destroy(s);
}

/* ---- a world meets ---- */

typedef struct joiner {
    const td__store_server *server;
    int rank, size;
    td_status st;
    pthread_t thread;
} joiner;

static td_status meet(joiner *j)
{
    td__store *c = NULL;
    char key[32], own[16];
    void *all = NULL;
    size_t nbytes = 0, at = 0;
    td_status st =
        td__store_connect(td__store_server_address(j->server), &SECRET, NULL, soon(), &c);

    snprintf(key, sizeof key, "world/%d", j->rank);
    int n = snprintf(own, sizeof own, "rank %d", j->rank);
    st = st ? st : td__store_set(c, key, own, (size_t)n, soon());
    st = st ? st : td__store_wait_all(c, "world/", j->size, soon(), &all, &nbytes);
    for (int r = 0; !st && r < j->size; r++) {
        uint32_t len;
        n = snprintf(own, sizeof own, "rank %d", r);
        memcpy(&len, (char *)all + at, sizeof len);
        if (len != (uint32_t)n || memcmp((char *)all + at + 4, own, len) != 0)
            st = TD_EIO;
        at += 4 + len;
    }
    if (!st && at != nbytes)
        st = TD_EIO;
    td__free(all);
    td__store_close(c);
    return st;
}

static void *meet_main(void *p)
{
    joiner *j = p;
    j->st = meet(j);
    return NULL;
}

static void meet_all(td__store_server *const *servers, int n_servers, int size)
{
    static joiner j[200];

    for (int i = 0; i < size; i++) {
        j[i] = (joiner){.server = servers[i % n_servers], .rank = i, .size = size};
        assert_int_equal(pthread_create(&j[i].thread, NULL, meet_main, &j[i]), 0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(j[i].thread, NULL);
        CHECK_EQ_INT(j[i].st, TD_OK);
    }
}

TEST(two_hundred_meet)
{
    td__store_server *s = serve(NULL);
    uint64_t t = td__clock_ns();

    meet_all(&s, 1, 200);
    t = td__clock_ns() - t;
    print_message("200 clients met in %.3f s\n", 1e-9 * (double)t);
    td__store_server_destroy(s);
}

/* ---- members ---- */

typedef struct heard {
    pthread_mutex_t lock;
    pthread_cond_t more;
    char text[1000];
} heard;

static void hear(void *user, const char *group, int rank, const char *what)
{
    heard *h = user;
    size_t used;

    pthread_mutex_lock(&h->lock);
    used = strlen(h->text);
    snprintf(h->text + used, sizeof h->text - used, "%s %d %s;", group, rank, what);
    pthread_cond_broadcast(&h->more);
    pthread_mutex_unlock(&h->lock);
}

static void expect_heard(heard *h, const char *what)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SOON_MS / 1000;
    pthread_mutex_lock(&h->lock);
    while (!strstr(h->text, what))
        if (pthread_cond_timedwait(&h->more, &h->lock, &end))
            break;
    CHECK(strstr(h->text, what) != NULL, "heard \"%s\", not \"%s\"", h->text, what);
    pthread_mutex_unlock(&h->lock);
}

static heard heard_new(void)
{
    return (heard){.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};
}

/* A member whose connection ends as the kernel ends that of a killed process: without a word. */
static void die_as_member(const td__store_server *s, int rank)
{
    td__conn conn;
    td__store_request r = {.key_nbytes = 1, .number = rank};
    td__frame f = {.kind = TD_STORE_JOIN, .tag = 1, .length = sizeof r + 1, .total = sizeof r + 1};
    struct iovec iov[] = {{.iov_base = &f, .iov_len = sizeof f},
                          {.iov_base = &r, .iov_len = sizeof r},
                          {.iov_base = (char[]){'g'}, .iov_len = 1}};
    uint8_t reply[TD_FRAME_BYTES + sizeof(td__store_reply)];

    td__frame_seal(&f);
    CHECK_OK(
        td__greet_connect(td__store_server_address(s), TD_HS_STORE, &SECRET, NULL, soon(), &conn));
    CHECK_OK(td__conn_send_all(&conn, iov, 3, soon(), "the store"));
    CHECK_OK(td__conn_recv_all(&conn, reply, sizeof reply, soon(), "the store"));
    td__conn_close(&conn);
}

static void members(const td__store_server *sa, const td__store_server *sb)
{
    heard ha = heard_new(), hb = heard_new(), hc = heard_new();
    td__store *a = client_of(sa, NULL), *b = client_of(sb, NULL);

    CHECK_OK(td__store_join(a, "g", 0, hear, &ha, soon()));
    CHECK_OK(td__store_join(b, "g", 1, hear, &hb, soon()));
    CHECK_STATUS(td__store_join(b, "g", 1, hear, &hb, soon()), TD_EINVAL);
    td__store_tell(a, "g", 0, "stalled in allreduce");
    expect_heard(&hb, "g 0 stalled in allreduce;");
    td__store_tell(b, "g", 1, "so am I");
    expect_heard(&ha, "g 1 so am I;");
    die_as_member(sb, 7);
    expect_heard(&ha, "g 7 dead;");
    expect_heard(&hb, "g 7 dead;");
    td__store *c = client_of(sb, NULL); /* who comes later hears of it too */
    CHECK_OK(td__store_join(c, "g", 2, hear, &hc, soon()));
    expect_heard(&hc, "g 7 dead;");
    td__store_close(c);
    expect_heard(&ha, "g 2 left;");
    td__store_close(b);
    expect_heard(&ha, "g 1 left;");
    td__store_close(a);
}

TEST(members_hear_of_each_other)
{
    td__store_server *s = serve(NULL);

    members(s, s);
    td__store_server_destroy(s);
}

TEST(stores_in_a_tree)
{
    td__store_server *root = serve(NULL);
    td__store_opts o = {.parent = td__store_server_address(root)};
    char name[64];

    snprintf(name, sizeof name, "unix:@td-test-store-%d", (int)getpid());
    o.listen = name;
    td__store_server *mid = serve(&o);
    o = (td__store_opts){.parent = td__store_server_address(mid)};
    td__store_server *leaf = serve(&o);
    td__store_server *all[] = {root, mid, leaf};
    td__store *c = client_of(leaf, NULL), *d = client_of(leaf, NULL);

    exercise(c, d);
    meet_all(all, 3, 30);
    members(leaf, root);
    members(leaf, leaf);
    td__store_server_destroy(mid); /* takes those below with it */
    void *value;
    size_t nbytes;
    CHECK_STATUS(td__store_wait(c, "nothing", soon(), &value, &nbytes), TD_EPEER);
    td__store_close(c);
    td__store_close(d);
    td__store_server_destroy(leaf);
    td__store_server_destroy(root);
}

/* News that are on their way when a client asks have come when it has its answers, also to a server
 * that is busy with that client. */
TEST(what_was_told_before_is_known_when_all_is_settled)
{
    enum { ROUNDS = 3000 };
    td__store_server *s = serve(NULL);
    td__store *a = client_of(s, NULL), *b = client_of(s, NULL);
    heard hb = heard_new();
    char text[16], want[32];

    CHECK_OK(td__store_join(a, "g", 0, hear, &hb, soon()));
    CHECK_OK(td__store_join(b, "g", 1, hear, &hb, soon()));
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&hb.lock);
        hb.text[0] = 0;
        pthread_mutex_unlock(&hb.lock);
        snprintf(text, sizeof text, "news %d", i);
        snprintf(want, sizeof want, "g 0 %s;", text);
        expect_key(b, "nothing", NULL);
        td__store_tell(a, "g", 0, text);
        td__store_settle(b, "nothing", soon());
        pthread_mutex_lock(&hb.lock);
        bool known = strcmp(hb.text, want) == 0;
        pthread_mutex_unlock(&hb.lock);
        CHECK(known, "round %d: \"%s\" is not known", i, text);
    }
    td__store_close(a);
    td__store_close(b);
    td__store_server_destroy(s);
}

static bool still_reads(td__store *c, const char *key, const char *old)
{
    void *value;
    size_t n;
    td_status st = td__store_wait(c, key, td__deadline_in_ms(50), &value, &n);
    bool same = !st && n == strlen(old) && memcmp(value, old, n) == 0;
    td__free(value);
    return same;
}

static void expect_forgotten(td__store *c, const char *key, const char *old)
{
    td__deadline until = soon();
    while (still_reads(c, key, old))
        CHECK(!td__deadline_passed(until), "%s is still %s in a store below", key, old);
}

/* Changes made in one branch of the tree reach the copies in another. */
TEST(copies_in_a_tree_do_not_grow_old)
{
    td__store_server *root = serve(NULL);
    td__store_opts below = {.parent = td__store_server_address(root)};
    td__store_server *mid = serve(&below), *other = serve(&below);
    below = (td__store_opts){.parent = td__store_server_address(mid)};
    td__store_server *leaf = serve(&below);
    td__store *reader = client_of(leaf, NULL), *writer = client_of(other, NULL);
    void *all;
    size_t n;
    int64_t sum;
    bool swapped;

    CHECK_OK(td__store_set(writer, "k0", "old", 3, soon()));
    expect_key(reader, "k0", "old");
    CHECK_OK(td__store_wait_all(reader, "k", 1, soon(), &all, &n));
    td__free(all);
    CHECK_OK(td__store_set(writer, "k0", "new", 3, soon()));
    expect_forgotten(reader, "k0", "old");
    expect_key(reader, "k0", "new");
    CHECK_OK(td__store_wait_all(reader, "k", 1, soon(), &all, &n));
    CHECK(n == 7 && memcmp((char *)all + 4, "new", 3) == 0, "wait_all has an old copy");
    td__free(all);
    CHECK_OK(td__store_compare_set(writer, "k0", "new", 3, "7", 1, soon(), &swapped));
    expect_forgotten(reader, "k0", "new");
    expect_key(reader, "k0", "7");
    CHECK_OK(td__store_add(writer, "k0", 1, soon(), &sum));
    expect_forgotten(reader, "k0", "7");
    expect_key(reader, "k0", "8");
    CHECK_OK(td__store_delete(writer, "k0", soon()));
    expect_forgotten(reader, "k0", "8");
    CHECK_STATUS(td__store_wait(reader, "k0", td__deadline_in_ms(50), &all, &n), TD_ETIMEDOUT);
    td__store_close(reader);
    td__store_close(writer);
    td__store_server_destroy(leaf);
    td__store_server_destroy(other);
    td__store_server_destroy(mid);
    td__store_server_destroy(root);
}

TEST(with_tls)
{
    const char *dir = check_tmpdir();
    td__store_opts o = {.tls_dir = dir};
    td__store *c;

    CHECK_OK(td__tls_make(dir));
    td__store_server *s = serve(&o);
    td__store *a = client_of(s, &o), *b = client_of(s, &o);
    exercise(a, b);
    td_status st = td__store_connect(td__store_server_address(s), &SECRET, NULL,
                                     td__deadline_in_ms(SOON_MS), &c); /* without */
    CHECK(st == TD_EPROTO || st == TD_EPEER, "%s", td_status_name(st));
    td__store_close(a);
    td__store_close(b);
    td__store_server_destroy(s);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(limits),
        cmocka_unit_test(a_key_deleted_during_a_wait_for_all_is_waited_for_again),
        cmocka_unit_test(a_wrong_secret_is_refused),
        cmocka_unit_test(two_hundred_meet),
        cmocka_unit_test(members_hear_of_each_other),
        cmocka_unit_test(what_was_told_before_is_known_when_all_is_settled),
        cmocka_unit_test(stores_in_a_tree),
        cmocka_unit_test(copies_in_a_tree_do_not_grow_old),
        cmocka_unit_test(with_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
