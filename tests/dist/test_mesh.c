/* Every transport behind net/mesh.h: order, sizes from nothing to big, many transfers at once,
 * mismatches, deadlines, interrupts, and peers that leave or die.
 *
 * Ranks are threads here, whatever the transport; a transport is a row of TRANSPORTS. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "net/mesh_inproc.h"
#include "net/mesh_tcp.h"
#include "net/socket.h"
#include "net/tls.h"
#include "net/mesh_shm.h"
#include "support/check.h"

enum { MOST = 5, SOON_MS = 100000 };

typedef td_status body(td__mesh *m);

typedef struct rank_arg {
    td__mesh *mesh;
    body *run;
    td_status st;
    char text[400];
} rank_arg;

static void *rank_main(void *p)
{
    rank_arg *a = p;

    a->st = a->run(a->mesh);
    snprintf(a->text, sizeof a->text, "%s", a->st ? td_last_error() : "");
    td__mesh_destroy(a->mesh);
    return NULL;
}

static td_status create_inproc(int size, td__mesh **out)
{
    return td__mesh_inproc_create(size, out);
}

typedef struct join_arg {
    td__shm_door door;
    int rank, size;
    td__mesh *mesh;
    td_status st;
} join_arg;

static void *join_main(void *p)
{
    join_arg *a = p;

    a->st = td__mesh_shm_join(&a->door, a->rank, a->size, td__deadline_in_ms(SOON_MS), &a->mesh);
    return NULL;
}

static td_status create_shm(int size, td__mesh **out)
{
    join_arg a[MOST] = {0};
    pthread_t thread[MOST];
    td_status st = td__shm_door_open(&a[0].door);

    if (st)
        return st;
    for (int i = 0; i < size; i++) {
        a[i].door = a[0].door;
        a[i].rank = i;
        a[i].size = size;
        assert_int_equal(pthread_create(&thread[i], NULL, join_main, &a[i]), 0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(thread[i], NULL);
        out[i] = a[i].mesh;
        st = st ? st : a[i].st;
    }
    return st;
}

/* Ranks of a tcp mesh must be created at the same time. */
typedef struct tcp_arg {
    const char *store;
    int rank, size;
    td__mesh_tcp_opts opts;
    td__mesh *mesh;
    td_status st;
    char text[400];
    pthread_t thread;
} tcp_arg;

static const td__secret SECRET = {{7, 7, 7}};

static void *tcp_main(void *p)
{
    tcp_arg *a = p;
    td__store *store;
    td__deadline until = td__deadline_in_ms(SOON_MS);

    a->st = td__store_connect(a->store, &SECRET, NULL, until, &store);
    if (!a->st)
        a->st = td__mesh_tcp_create(store, "test", a->rank, a->size, &SECRET, &a->opts, until,
                                    &a->mesh);
    snprintf(a->text, sizeof a->text, "%s", a->st ? td_last_error() : "");
    td__store_close(store);
    return NULL;
}

static td_status create_tcp_with(int size, const td__mesh_tcp_opts *o, td__mesh **out)
{
    td__store_server *server;
    tcp_arg a[MOST];

    CHECK_OK(td__store_server_create(&SECRET, NULL, &server));
    for (int r = 0; r < size; r++) {
        a[r] = (tcp_arg){
            .store = td__store_server_address(server), .rank = r, .size = size, .opts = *o};
        assert_int_equal(pthread_create(&a[r].thread, NULL, tcp_main, &a[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(a[r].thread, NULL);
        CHECK(a[r].st == TD_OK, "rank %d: %s", r, a[r].text);
        out[r] = a[r].mesh;
    }
    td__store_server_destroy(server);
    return TD_OK;
}

static td_status create_tcp(int size, td__mesh **out)
{
    return create_tcp_with(size, &(td__mesh_tcp_opts){0}, out);
}

static td_status create_tcp_streams(int size, td__mesh **out)
{
    return create_tcp_with(size, &(td__mesh_tcp_opts){.streams = 3, .checksum = true}, out);
}

static td_status create_tls(int size, td__mesh **out)
{
    td__mesh_tcp_opts o = {.streams = 2, .tls_dir = check_tmpdir()};
    td_status st = td__tls_make(o.tls_dir);

    st = st ? st : create_tcp_with(size, &o, out);
    check_tmpdir_remove();
    return st;
}

static const struct {
    const char *name;
    td_status (*create)(int size, td__mesh **out); /* all ranks */
} TRANSPORTS[] = {
    {"inproc", create_inproc}, {"shm", create_shm},
    {"tcp", create_tcp},       {"tcp, 3 streams, checksum", create_tcp_streams},
    {"tls", create_tls},
};

/* Run `run` on all ranks; results in r[0..size). */
static void run_on(td__mesh *const *mesh, int size, body *run, rank_arg *r)
{
    pthread_t thread[MOST];

    for (int i = 0; i < size; i++) {
        r[i] = (rank_arg){.mesh = mesh[i], .run = run};
        assert_int_equal(pthread_create(&thread[i], NULL, rank_main, &r[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(thread[i], NULL);
}

static void run_ranks(int transport, int size, body *run, rank_arg *r)
{
    td__mesh *mesh[MOST];

    CHECK_OK(TRANSPORTS[transport].create(size, mesh));
    run_on(mesh, size, run, r);
}

static void expect_ok(const rank_arg *r, int size, int transport)
{
    for (int i = 0; i < size; i++)
        CHECK(r[i].st == TD_OK, "%s: rank %d of %d: %s", TRANSPORTS[transport].name, i, size,
              r[i].text);
}

static td_status wait_one(td__mesh *m, td__xfer *x)
{
    return td__mesh_wait(m, &x, 1, td__deadline_in_ms(SOON_MS));
}

static unsigned char pattern(int from, int to, size_t i)
{
    return (unsigned char)((size_t)from * 31 + (size_t)to * 7 + i * 13 + (i >> 8));
}

static const size_t SIZES[] = {0, 1, 3, 4096, 65537, 3000001};

/* Everybody exchanges all sizes with everybody, all at once, in order. */
static td_status exchange(td__mesh *m)
{
    enum { KINDS = sizeof SIZES / sizeof *SIZES };
    td__xfer x[2][MOST][KINDS], *all[2 * MOST * KINDS];
    unsigned char *data[2][MOST][KINDS];
    int n = 0;
    td_status st = TD_OK;

    memset(data, 0, sizeof data);
    for (int k = 0; k < KINDS; k++) {
        for (int p = 0; p < m->size; p++) {
            if (p == m->rank)
                continue;
            for (int way = 0; way < 2; way++)
                data[way][p][k] = malloc(SIZES[k] + 1);
            for (size_t i = 0; i < SIZES[k]; i++)
                data[0][p][k][i] = pattern(m->rank, p, i);
            data[1][p][k][SIZES[k]] = 0xa5;
            uint32_t tag = (uint32_t)k;
            st = st ? st : td__mesh_send(m, &x[0][p][k], p, tag, data[0][p][k], SIZES[k]);
            st = st ? st : td__mesh_recv(m, &x[1][p][k], p, tag, data[1][p][k], SIZES[k]);
            all[n++] = &x[0][p][k];
            all[n++] = &x[1][p][k];
        }
    }
    st = st ? st : td__mesh_wait(m, all, n, td__deadline_in_ms(SOON_MS));
    for (int k = 0; k < KINDS; k++) {
        for (int p = 0; p < m->size; p++) {
            for (size_t i = 0; !st && p != m->rank && i < SIZES[k]; i++)
                if (data[1][p][k][i] != pattern(p, m->rank, i))
                    st = TD_EIO;
            if (p != m->rank && data[1][p][k][SIZES[k]] != 0xa5)
                st = TD_EIO;
            free(data[0][p][k]);
            free(data[1][p][k]);
        }
    }
    return st;
}

TEST(all_sizes_arrive_in_order)
{
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        for (int size = 1; size <= MOST; size++) {
            run_ranks(t, size, exchange, r);
            expect_ok(r, size, t);
        }
    }
}

static td_status ping_pong(td__mesh *m)
{
    td__xfer x;
    int token = 0;

    for (int i = 0; i < 1000; i++) {
        for (int half = 0; half < 2; half++) {
            td_status st;
            st = half == m->rank ? td__mesh_send(m, &x, 1 - m->rank, 9, &token, sizeof token)
                                 : td__mesh_recv(m, &x, 1 - m->rank, 9, &token, sizeof token);
            st = st ? st : wait_one(m, &x);
            if (st)
                return st;
            token++;
        }
    }
    return token == 2000 && td__mesh_measure(m, td__deadline_in_ms(SOON_MS)) == TD_OK &&
                   m->alpha > 0 && m->beta > 0
               ? TD_OK
               : TD_EIO;
}

TEST(ping_pong_and_measure)
{
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        run_ranks(t, 2, ping_pong, r);
        expect_ok(r, 2, t);
    }
}

static td_status disagree(td__mesh *m, uint32_t tag, size_t nbytes)
{
    char data[16] = {0};
    td__xfer x;
    td_status st = TD_OK;

    if (m->rank == 0)
        st = td__mesh_send(m, &x, 1, 5, data, 8);
    else
        st = td__mesh_recv(m, &x, 0, tag, data, nbytes);
    st = st ? st : wait_one(m, &x);
    if (m->rank == 0 && st == TD_OK) { /* what was sent early is answered at the next wait */
        st = td__mesh_recv(m, &x, 1, 5, data, 8);
        st = st ? st : wait_one(m, &x);
    }
    return st;
}

static td_status disagree_tag(td__mesh *m)
{
    return disagree(m, 6, 8);
}

static td_status disagree_size(td__mesh *m)
{
    return disagree(m, 5, 16);
}

TEST(a_mismatch_names_both_sides)
{
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        for (int k = 0; k < 2; k++) {
            run_ranks(t, 2, k ? disagree_size : disagree_tag, r);
            for (int i = 0; i < 2; i++) {
                CHECK(r[i].st == TD_EMISMATCH, "%s: %s", TRANSPORTS[t].name, r[i].text);
                CHECK(strstr(r[i].text, "rank 0") && strstr(r[i].text, "rank 1"), "%s", r[i].text);
                CHECK(strstr(r[i].text, k ? "16 bytes" : "tag 6") != NULL, "%s", r[i].text);
            }
        }
    }
}

static td_status wait_in_vain(td__mesh *m)
{
    char data[16];
    td__xfer x, *p = &x;
    td_status st = TD_OK;

    if (m->rank == 0) {
        st = td__mesh_recv(m, &x, 1, 1, data, sizeof data);
        st = st ? st : td__mesh_wait(m, &p, 1, td__deadline_in_ms(30));
        td_status again = td__mesh_recv(m, &x, 1, 1, data, sizeof data);
        return again == st ? st : TD_EIO;
    }
    st = td__mesh_recv(m, &x, 0, 1, data, sizeof data);
    return st ? st : wait_one(m, &x);
}

TEST(deadlines_name_who_is_missing)
{
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        run_ranks(t, 2, wait_in_vain, r);
        CHECK_EQ_INT(r[0].st, TD_ETIMEDOUT);
        CHECK_EQ_INT(r[1].st, TD_EPEER); /* rank 0 gave up */
        CHECK(strstr(r[0].text, "rank 1") != NULL, "%s", r[0].text);
        CHECK(strstr(r[1].text, "rank 0") != NULL, "%s", r[1].text);
    }
}

static void *interrupt_soon(void *p)
{
    td__mesh *m = p;
    m->ops->interrupt(m, TD_EABORTED, "told to stop");
    return NULL;
}

static td_status interrupted(td__mesh *m)
{
    char data[16];
    td__xfer x;
    pthread_t thread;
    td_status st = td__mesh_recv(m, &x, (m->rank + 1) % m->size, 1, data, sizeof data);

    if (m->rank == 2) {
        if (pthread_create(&thread, NULL, interrupt_soon, m))
            return TD_EIO;
    }
    st = st ? st : wait_one(m, &x);
    if (m->rank == 2)
        pthread_join(thread, NULL);
    return st;
}

TEST(an_interrupt_wakes_all)
{
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        run_ranks(t, 3, interrupted, r);
        CHECK_EQ_INT(r[2].st, TD_EABORTED);
        assert_string_equal(r[2].text, "told to stop");
        CHECK_EQ_INT(r[0].st, TD_EPEER);
        CHECK_EQ_INT(r[1].st, TD_EPEER);
    }
}

/* Rank 0 leaves at once; rank 1 and 2 have business with each other only, then with rank 0. */
static td_status leave_early(td__mesh *m)
{
    char out[16] = {0}, in[16]; /* both are under way at once */
    td__xfer x[2], *p[2] = {&x[0], &x[1]};
    td_status st;

    if (m->rank == 0)
        return TD_OK;
    for (int i = 0; i < 100; i++) {
        st = td__mesh_send(m, &x[0], 3 - m->rank, 1, out, sizeof out);
        st = st ? st : td__mesh_recv(m, &x[1], 3 - m->rank, 1, in, sizeof in);
        st = st ? st : td__mesh_wait(m, p, 2, td__deadline_in_ms(SOON_MS));
        if (st) /* the last round may be cut short by who is ahead */
            return i == 99 ? st : TD_EIO;
    }
    st = td__mesh_recv(m, &x[0], 0, 1, in, sizeof in);
    return st ? st : wait_one(m, &x[0]);
}

TEST(who_has_left_is_missed_only_when_needed)
{
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        run_ranks(t, 3, leave_early, r);
        CHECK_EQ_INT(r[0].st, TD_OK);
        CHECK_EQ_INT(r[1].st, TD_EPEER);
        CHECK_EQ_INT(r[2].st, TD_EPEER);
    }
}

/* Rank 0 sends as many messages as there is room for, to the last byte, and leaves: rank 1, which
 * has all of them before it still, gets them, and hears no word of a lost peer. How many that are
 * shows when rank 0 goes on until there is no room: of long ones first, then of short ones. */
enum { FULL_MOST = 1 << 14, FULL_LONG = 1000, FULL_SPARE = 20 };
static struct {
    int n_long, most; /* short ones follow the long ones */
    atomic_int sent;  /* 0: not yet */
} full;

static td_status leave_in_full(td__mesh *m)
{
    static td__xfer x[FULL_MOST];
    static char data[2][FULL_LONG];
    td_status st = TD_OK;
    int n = 0;

    if (m->rank == 0) {
        do
            st = td__mesh_send(m, &x[n], 1, 1, data[0], n < full.n_long ? FULL_LONG : 1);
        while (!st && x[n++].done && n < full.most);
        atomic_store(&full.sent, n);
        return st ? st : wait_one(m, &x[n - 1]);
    }
    while (!atomic_load(&full.sent))
        sched_yield();
    for (; !st && n < atomic_load(&full.sent); n++) {
        td__xfer one;
        st = td__mesh_recv(m, &one, 0, 1, data[1], n < full.n_long ? FULL_LONG : 1);
        st = st ? st : wait_one(m, &one);
    }
    return st;
}

TEST(what_was_sent_before_leaving_arrives)
{
    enum { ROUNDS = 6 };
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        full.n_long = full.most = FULL_MOST;
        for (int i = 0; i < ROUNDS; i++) {
            atomic_store(&full.sent, 0);
            run_ranks(t, 2, leave_in_full, r);
            expect_ok(r, 2, t);
            if (i == 0)
                full.n_long = full.sent > FULL_SPARE ? full.sent - FULL_SPARE : 0;
            else if (full.sent > 1)
                full.most = full.sent - 1;
        }
    }
}

/* ---- faults: slow links only slow down, all else is an error that names the peer ---- */

static td_status many_exchanges(td__mesh *m, unsigned ms)
{
    enum { BYTES = 20000, ROUNDS = 60 };
    static const td__xfer NONE;
    unsigned char *data = calloc(2, BYTES);
    td__xfer x[2] = {NONE, NONE}, *p[2] = {&x[0], &x[1]};
    int peer = 1 - m->rank;
    td_status st = TD_OK;

    for (int i = 0; !st && i < ROUNDS; i++) {
        for (size_t b = 0; b < BYTES; b++)
            data[b] = pattern(m->rank, i, b);
        st = td__mesh_send(m, &x[0], peer, (uint32_t)i, data, BYTES);
        st = st ? st : td__mesh_recv(m, &x[1], peer, (uint32_t)i, data + BYTES, BYTES);
        st = st ? st : td__mesh_wait(m, p, 2, td__deadline_in_ms(ms));
        for (size_t b = 0; !st && b < BYTES; b++)
            st = data[BYTES + b] == pattern(peer, i, b) ? TD_OK : TD_EIO; /* wrong data */
    }
    free(data);
    return st;
}

static td_status exchange_all(td__mesh *m)
{
    return many_exchanges(m, SOON_MS);
}

/* What is dropped never comes. */
static td_status exchange_some(td__mesh *m)
{
    return many_exchanges(m, 4000);
}

TEST(faults_end_as_errors)
{
    static const struct {
        const char *schedule;
        bool harmless;
    } CASES[] = {
        {"seed=1,delay=2ms@0.2", true}, {"seed=2,rate=100MB/s", true},  {"seed=3,drop=0.1", false},
        {"seed=4,cut=0.1", false},      {"seed=5,truncate=0.1", false}, {"seed=6,flip=0.1", false},
        {"seed=7,stop=0.1", false},
    };

    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__fault_plan plan;
        td__mesh *mesh[MOST];
        rank_arg r[MOST];
        CHECK_OK(td__fault_parse(CASES[i].schedule, &plan));
        create_tcp_with(2, &(td__mesh_tcp_opts){.faults = &plan}, mesh);
        run_on(mesh, 2, CASES[i].harmless ? exchange_all : exchange_some, r);
        for (int k = 0; k < 2; k++) {
            CHECK(r[k].st != TD_EIO, "%s: wrong data", CASES[i].schedule);
            CHECK((r[k].st == TD_OK) == CASES[i].harmless, "%s: rank %d: %s %s", CASES[i].schedule,
                  k, td_status_name(r[k].st), r[k].text);
            CHECK(CASES[i].harmless || strstr(r[k].text, k ? "rank 0" : "rank 1"), "%s", r[k].text);
        }
    }
}

/* A rank in a process of its own that is killed in the middle: the other has TD_EPEER at once. */
TEST(a_killed_rank_is_noticed)
{
    td__store_server *server;
    int ready[2];
    char byte = 0;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork(); /* before this process has threads */
    if (pid == 0) {
        char address[TD_ADDRESS_BYTES];
        ssize_t n = read(ready[0], address, sizeof address);
        tcp_arg a = {.store = address, .rank = 1, .size = 2};
        if (n == (ssize_t)sizeof address)
            tcp_main(&a);
        while (a.mesh) /* and now do nothing until it ends */
            pause();
        _exit(1);
    }
    char address[TD_ADDRESS_BYTES] = {0};
    CHECK_OK(td__store_server_create(&SECRET, NULL, &server));
    snprintf(address, sizeof address, "%s", td__store_server_address(server));
    assert_int_equal(write(ready[1], address, sizeof address), sizeof address);
    tcp_arg a = {.store = address, .rank = 0, .size = 2};
    tcp_main(&a);
    CHECK(a.st == TD_OK, "%s", a.text);
    td__xfer x;
    CHECK_OK(td__mesh_recv(a.mesh, &x, 1, 1, &byte, 1));
    kill(pid, SIGKILL);
    CHECK_STATUS(wait_one(a.mesh, &x), TD_EPEER);
    CHECK(strstr(td_last_error(), "rank 1") != NULL, "%s", td_last_error());
    td__mesh_destroy(a.mesh);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    td__store_server_destroy(server);
}

static td_status share_and_meet(td__mesh *m)
{
    void *base[MOST];
    uint64_t id[2];
    td__deadline soon = td__deadline_in_ms(SOON_MS);

    if (!m->ops->share)
        return TD_OK;
    for (int k = 0; k < 2; k++) {
        td_status st = m->ops->share(m, 1000, soon, base, &id[k]);
        if (st)
            return st;
        for (int round = 0; round < 50; round++) {
            ((int *)base[m->rank])[3] = round;
            st = m->ops->meet(m, soon);
            for (int r = 0; !st && r < m->size; r++)
                if (((int *)base[r])[3] != round)
                    return TD_EIO;
            st = st ? st : m->ops->meet(m, soon);
            if (st)
                return st;
        }
    }
    m->ops->unshare(m, id[0]); /* the other goes with the mesh */
    return TD_OK;
}

TEST(shared_memory_is_shared)
{
    rank_arg r[MOST];

    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        run_ranks(t, 3, share_and_meet, r);
        expect_ok(r, 3, t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_noticed), /* first: it forks */
        cmocka_unit_test(all_sizes_arrive_in_order),
        cmocka_unit_test(ping_pong_and_measure),
        cmocka_unit_test(a_mismatch_names_both_sides),
        cmocka_unit_test(deadlines_name_who_is_missing),
        cmocka_unit_test(an_interrupt_wakes_all),
        cmocka_unit_test(who_has_left_is_missed_only_when_needed),
        cmocka_unit_test(what_was_sent_before_leaving_arrives),
        cmocka_unit_test(faults_end_as_errors),
        cmocka_unit_test(shared_memory_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
