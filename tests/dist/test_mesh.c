/* Every transport behind net/mesh.h: order, sizes from nothing to big, many transfers at once,
 * shared memory, and peers that leave. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/meshes.h"

static const size_t SIZES[] = {0, 1, 3, 4096, 65537, 3000001};

/* Everybody exchanges all sizes with everybody, all at once, in order. */
static td_status exchange(td__mesh *m)
{
    enum { KINDS = sizeof SIZES / sizeof *SIZES };
    td__xfer x[2][MESH_MOST][KINDS], *all[2 * MESH_MOST * KINDS];
    unsigned char *data[2][MESH_MOST][KINDS];
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
                data[0][p][k][i] = mesh_pattern(m->rank, p, i);
            data[1][p][k][SIZES[k]] = 0xa5;
            uint32_t tag = (uint32_t)k;
            st = st ? st : td__mesh_send(m, &x[0][p][k], p, tag, data[0][p][k], SIZES[k]);
            st = st ? st : td__mesh_recv(m, &x[1][p][k], p, tag, data[1][p][k], SIZES[k]);
            all[n++] = &x[0][p][k];
            all[n++] = &x[1][p][k];
        }
    }
    st = st ? st : td__mesh_wait(m, all, n, td__deadline_in_ms(MESH_SOON_MS));
    for (int k = 0; k < KINDS; k++) {
        for (int p = 0; p < m->size; p++) {
            for (size_t i = 0; !st && p != m->rank && i < SIZES[k]; i++)
                if (data[1][p][k][i] != mesh_pattern(p, m->rank, i))
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
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        for (int size = 1; size <= MESH_MOST; size++) {
            meshes_run(t, size, exchange, r);
            meshes_expect_ok(r, size, t);
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
            st = st ? st : mesh_wait_one(m, &x);
            if (st)
                return st;
            token++;
        }
    }
    return token == 2000 && td__mesh_measure(m, td__deadline_in_ms(MESH_SOON_MS)) == TD_OK &&
                   m->alpha > 0 && m->beta > 0
               ? TD_OK
               : TD_EIO;
}

TEST(ping_pong_and_measure)
{
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        meshes_run(t, 2, ping_pong, r);
        meshes_expect_ok(r, 2, t);
    }
}

/* A few bytes are taken without their receiver: both ranks send before they receive, and are some
 * messages ahead. */
static td_status send_first(td__mesh *m)
{
    enum { AHEAD = 5, ROUNDS = 50 };
    char out[8], in[8];
    td__xfer x;

    for (int i = 0; i < ROUNDS + AHEAD; i++) {
        td_status st = TD_OK;
        int taken = i - AHEAD;
        memset(out, i, sizeof out);
        if (i < ROUNDS) {
            st = td__mesh_send(m, &x, 1 - m->rank, (uint32_t)i, out, (size_t)(i % 9));
            st = st ? st : mesh_wait_one(m, &x);
        }
        if (!st && taken >= 0) {
            st = td__mesh_recv(m, &x, 1 - m->rank, (uint32_t)taken, in, (size_t)(taken % 9));
            st = st ? st : mesh_wait_one(m, &x);
        }
        for (int k = 0; !st && taken >= 0 && k < taken % 9; k++)
            st = in[k] == taken ? TD_OK : TD_EMISMATCH;
        if (st)
            return st;
    }
    return TD_OK;
}

TEST(a_few_bytes_do_not_wait_for_their_receiver)
{
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        meshes_run(t, 2, send_first, r);
        meshes_expect_ok(r, 2, t);
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
        st = st ? st : td__mesh_wait(m, p, 2, td__deadline_in_ms(MESH_SOON_MS));
        if (st) /* the last round may be cut short by who is ahead */
            return i == 99 ? st : TD_EIO;
    }
    st = td__mesh_recv(m, &x[0], 0, 1, in, sizeof in);
    return st ? st : mesh_wait_one(m, &x[0]);
}

TEST(who_has_left_is_missed_only_when_needed)
{
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        meshes_run(t, 3, leave_early, r);
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
        return st ? st : mesh_wait_one(m, &x[n - 1]);
    }
    while (!atomic_load(&full.sent))
        sched_yield();
    for (; !st && n < atomic_load(&full.sent); n++) {
        td__xfer one;
        st = td__mesh_recv(m, &one, 0, 1, data[1], n < full.n_long ? FULL_LONG : 1);
        st = st ? st : mesh_wait_one(m, &one);
    }
    return st;
}

TEST(what_was_sent_before_leaving_arrives)
{
    enum { ROUNDS = 6 };
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        full.n_long = full.most = FULL_MOST;
        for (int i = 0; i < ROUNDS; i++) {
            atomic_store(&full.sent, 0);
            meshes_run(t, 2, leave_in_full, r);
            meshes_expect_ok(r, 2, t);
            if (i == 0)
                full.n_long = full.sent > FULL_SPARE ? full.sent - FULL_SPARE : 0;
            else if (full.sent > 1)
                full.most = full.sent - 1;
        }
    }
}

static td_status share_and_meet(td__mesh *m)
{
    void *base[MESH_MOST];
    uint64_t id[2];
    td__deadline soon = td__deadline_in_ms(MESH_SOON_MS);

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
    mesh_rank r[MESH_MOST];

    for (int t = 0; t < mesh_n_transports; t++) {
        meshes_run(t, 3, share_and_meet, r);
        meshes_expect_ok(r, 3, t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes_arrive_in_order),
        cmocka_unit_test(ping_pong_and_measure),
        cmocka_unit_test(a_few_bytes_do_not_wait_for_their_receiver),
        cmocka_unit_test(who_has_left_is_missed_only_when_needed),
        cmocka_unit_test(what_was_sent_before_leaving_arrives),
        cmocka_unit_test(shared_memory_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
