/* Every transport behind net/mesh.h when something goes wrong: mismatches, deadlines, interrupts,
 * bad links, and peers that are killed. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "net/socket.h"
#include "support/check.h"
#include "support/meshes.h"

static td_status disagree(td__mesh *m, uint32_t tag, size_t nbytes)
{
    char data[16] = {0};
    td__xfer x;
    td_status st = TD_OK;

    if (m->rank == 0)
        st = td__mesh_send(m, &x, 1, 5, data, 8);
    else
        st = td__mesh_recv(m, &x, 0, tag, data, nbytes);
    st = st ? st : mesh_wait_one(m, &x);
    if (m->rank == 0 && st == TD_OK) { /* what was sent early is answered at the next wait */
        st = td__mesh_recv(m, &x, 1, 5, data, 8);
        st = st ? st : mesh_wait_one(m, &x);
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
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        for (int k = 0; k < 2; k++) {
            meshes_run(t, 2, k ? disagree_size : disagree_tag, r);
            for (int i = 0; i < 2; i++) {
                CHECK(r[i].st == TD_EMISMATCH, "%s: %s", mesh_transport_name(t), r[i].text);
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
    return st ? st : mesh_wait_one(m, &x);
}

TEST(deadlines_name_who_is_missing)
{
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        meshes_run(t, 2, wait_in_vain, r);
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
    st = st ? st : mesh_wait_one(m, &x);
    if (m->rank == 2)
        pthread_join(thread, NULL);
    return st;
}

TEST(an_interrupt_wakes_all)
{
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        meshes_run(t, 3, interrupted, r);
        CHECK_EQ_INT(r[2].st, TD_EABORTED);
        assert_string_equal(r[2].text, "told to stop");
        CHECK_EQ_INT(r[0].st, TD_EPEER);
        CHECK_EQ_INT(r[1].st, TD_EPEER);
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
            data[b] = mesh_pattern(m->rank, i, b);
        st = td__mesh_send(m, &x[0], peer, (uint32_t)i, data, BYTES);
        st = st ? st : td__mesh_recv(m, &x[1], peer, (uint32_t)i, data + BYTES, BYTES);
        st = st ? st : td__mesh_wait(m, p, 2, td__deadline_in_ms(ms));
        for (size_t b = 0; !st && b < BYTES; b++)
            st = data[BYTES + b] == mesh_pattern(peer, i, b) ? TD_OK : TD_EIO; /* wrong data */
    }
    free(data);
    return st;
}

static td_status exchange_all(td__mesh *m)
{
    return many_exchanges(m, MESH_SOON_MS);
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
        td__mesh *mesh[MESH_MOST];
        mesh_rank r[MESH_MOST];
        CHECK_OK(td__fault_parse(CASES[i].schedule, &plan));
        meshes_create_tcp(2, &(td__mesh_tcp_opts){.faults = &plan}, mesh);
        meshes_run_on(mesh, 2, CASES[i].harmless ? exchange_all : exchange_some, r);
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
        mesh_tcp_rank a = {.store = address, .rank = 1, .size = 2};
        if (n == (ssize_t)sizeof address)
            mesh_tcp_main(&a);
        while (a.mesh) /* and now do nothing until it ends */
            pause();
        _exit(1);
    }
    char address[TD_ADDRESS_BYTES] = {0};
    CHECK_OK(td__store_server_create(&MESH_SECRET, NULL, &server));
    snprintf(address, sizeof address, "%s", td__store_server_address(server));
    assert_int_equal(write(ready[1], address, sizeof address), sizeof address);
    mesh_tcp_rank a = {.store = address, .rank = 0, .size = 2};
    mesh_tcp_main(&a);
    CHECK(a.st == TD_OK, "%s", a.text);
    td__xfer x;
    CHECK_OK(td__mesh_recv(a.mesh, &x, 1, 1, &byte, 1));
    kill(pid, SIGKILL);
    CHECK_STATUS(mesh_wait_one(a.mesh, &x), TD_EPEER);
    CHECK(strstr(td_last_error(), "rank 1") != NULL, "%s", td_last_error());
    td__mesh_destroy(a.mesh);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    td__store_server_destroy(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_noticed), /* first: it forks */
        cmocka_unit_test(a_mismatch_names_both_sides),
        cmocka_unit_test(deadlines_name_who_is_missing),
        cmocka_unit_test(an_interrupt_wakes_all),
        cmocka_unit_test(faults_end_as_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
