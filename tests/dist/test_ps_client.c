/* Push and pull with handles: sums are those of all pushes, in any transport, for ranges that lie
 * anywhere in the block and across servers; calls of one client are carried out in their order,
 * however many are under way; a client that dies is forgotten, a server that dies is an error. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <unistd.h>

#include "ps/client.h"
#include "support/check.h"
#include "support/ranks.h"

static const char *const TRANSPORTS[] = {"inproc", "shm", "tcp"};
enum { FLOATS = 700001, KEY = 1000, ROUNDS = 5, N = 3, CALLS = 600 };

typedef struct plan {
    int servers;
} plan;

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Every third key, so that some follow one another not at all, and then all of them. */
static size_t keys_of(int round, td__ps_range *keys)
{
    size_t n = 0;
    for (size_t at = 0; at < FLOATS; at += KEY)
        if (round % 2 == 0 || (at / KEY) % 3 == 0)
            keys[n++] = (td__ps_range){at, FLOATS - at < KEY ? FLOATS - at : KEY};
    return n;
}

static float value_of(size_t i)
{
    return (float)(i % 13);
}

static void serve(ranks_ctx *r)
{
    const plan *p = r->arg;
    td__ps_host *h;
    RANK_OK(r, td__ps_host_open(r->comm, p->servers, FLOATS, NULL, &h));
    RANK_OK(r, td__ps_host_close(h));
}

typedef struct space {
    td__ps_range keys[FLOATS / KEY + 1];
    float values[FLOATS], got[FLOATS];
} space;

static void sums(ranks_ctx *r, td_comm *clients, space *room)
{
    const plan *p = r->arg;
    td__ps_range *keys = room->keys, all = {0, FLOATS};
    float *values = room->values, *got = room->got;
    td__ps_ticket last;
    td__ps_client *c;
    RANK_OK(r, td__ps_client_open(r->comm, p->servers, FLOATS, &c));
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = keys_of(round, keys), at = 0;
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < keys[k].count; i++)
                values[at++] = value_of(keys[k].begin + i);
        if (round > 2) {
            RANK_OK(r, td__ps_push_pull(c, keys, n, values, got, &last));
        } else {
            RANK_OK(r, td__ps_push(c, keys, n, values, &last));
            RANK_OK(r, td__ps_pull(c, keys, n, got, &last));
        }
        RANK_OK(r, td__ps_wait(c, last));
        at = 0;
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < keys[k].count; i++, at++) /* at least its own pushes */
                RANK_CHECK(r, got[at] >= value_of(keys[k].begin + i), "%g at %zu", (double)got[at],
                           keys[k].begin + i);
    }
    /* Everybody's, when everybody has pushed. */
    RANK_OK(r, td_barrier(clients, NULL));
    RANK_OK(r, td__ps_pull(c, &all, 1, got, &last));
    RANK_OK(r, td__ps_wait(c, last));
    for (size_t i = 0; i < FLOATS; i++) {
        int times = (ROUNDS + 1) / 2 + ((i / KEY) % 3 == 0 ? ROUNDS / 2 : 0);
        float want = value_of(i) * (float)(times * (r->size - p->servers));
        RANK_CHECK(r, got[i] == want, "%g at %zu, not %g", (double)got[i], i, (double)want);
    }
    RANK_OK(r, td__ps_client_close(c));
}

static void sum_body(ranks_ctx *r)
{
    const plan *p = r->arg;
    td_comm *alike;
    RANK_OK(r, td_comm_split(r->comm, r->rank < p->servers, r->rank, &alike));
    space *room = calloc(1, sizeof *room);
    if (r->rank < p->servers)
        serve(r);
    else if (room)
        sums(r, alike, room);
    free(room);
    td_comm_destroy(alike);
}

TEST(sums_are_those_of_all_pushes)
{
    for (int t = 0; t < 3; t++)
        for (int servers = 1; servers <= 2; servers++)
            for (int clients = 1; clients <= 2; clients++) {
                plan p = {servers};
                ranks_run(servers + clients, &(ranks_opts){.transport = TRANSPORTS[t]}, sum_body,
                          &p);
            }
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Hundreds of pushes and pulls of one key, none waited for: pull k sees k pushes. */
static void order_body(ranks_ctx *r)
{
    td__ps_range key = {5, N};
    static float one[N] = {1, 2, 3};
    if (r->rank == 0) {
        static const float BEGIN[16] = {[5] = 10, [6] = 10, [7] = 10};
        td__ps_host *h;
        RANK_OK(r, td__ps_host_open(r->comm, 1, 16, &(td__ps_host_opts){.values = BEGIN}, &h));
        RANK_OK(r, td__ps_host_close(h));
        return;
    }
    td__ps_client *c;
    td__ps_ticket t, first = 0;
    float got[CALLS][N];
    RANK_OK(r, td__ps_client_open(r->comm, 1, 16, &c));
    for (int k = 0; k < CALLS; k++) {
        RANK_OK(r, td__ps_push(c, &key, 1, one, &t));
        RANK_OK(r, td__ps_pull(c, &key, 1, got[k], &t));
        first = first ? first : t;
    }
    RANK_OK(r, td__ps_wait(c, first));
    RANK_CHECK(r, got[0][2] == 13, "%g", (double)got[0][2]);
    RANK_OK(r, td__ps_wait(c, t));
    for (int k = 0; k < CALLS; k++)
        for (int i = 0; i < N; i++)
            RANK_CHECK(r, got[k][i] == 10 + one[i] * (float)(k + 1), "pull %d: %g", k,
                       (double)got[k][i]);
    RANK_STATUS(r, td__ps_pull(c, &(td__ps_range){10, 7}, 1, NULL, &t), TD_EINVAL);
    RANK_OK(r, td__ps_client_close(c));
}

TEST(calls_are_carried_out_in_order)
{
    for (int t = 0; t < 3; t++)
        ranks_run(2, &(ranks_opts){.transport = TRANSPORTS[t]}, order_body, NULL);
}

/* ---- In place -------------------------------------------------------------------------------- */

static void twice(void *user, float *block, const float *pushed, size_t begin, size_t count)
{
    (void)begin;
    for (size_t i = 0; i < count; i++)
        block[i] = *(const float *)user * pushed[i];
}

/* Values are written where the server reads them, and read where it has them. */
static void place_body(ranks_ctx *r)
{
    enum { ALL = 5000 };
    static float factor = 2;
    if (r->rank < 2) {
        td__ps_host *h;
        RANK_OK(r, td__ps_host_open(r->comm, 2, ALL,
                                    &(td__ps_host_opts){.apply = twice, .user = &factor}, &h));
        RANK_OK(r, td__ps_host_close(h));
        return;
    }
    td__ps_client *c;
    td__ps_ticket t;
    td__ps_range all = {0, ALL};
    RANK_OK(r, td__ps_client_open(r->comm, 2, ALL, &c));
    for (size_t at = 0, n; at < ALL; at += n) {
        float *area = td__ps_client_area(c, at, &n);
        for (size_t i = 0; i < n; i++)
            area[i] = (float)(at + i);
    }
    RANK_OK(r, td__ps_push(c, &all, 1, NULL, &t));
    RANK_OK(r, td__ps_pull(c, &all, 1, NULL, &t));
    RANK_OK(r, td__ps_wait(c, t));
    for (size_t at = 0, n; at < ALL; at += n) {
        const float *view = td__ps_client_view(c, at, &n);
        for (size_t i = 0; i < n; i++)
            RANK_CHECK(r, view[i] == 2 * (float)(at + i), "%g at %zu", (double)view[i], at + i);
    }
    size_t none;
    RANK_CHECK(r, !td__ps_client_area(c, ALL, &none) && none == 0, "%zu past the end", none);
    RANK_OK(r, td__ps_client_close(c));
}

TEST(values_stay_where_they_are)
{
    for (int t = 0; t < 3; t++)
        ranks_run(3, &(ranks_opts){.transport = TRANSPORTS[t]}, place_body, NULL);
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Client 1 is aborted in the middle; the other one and the server end well. */
static void client_dies(ranks_ctx *r)
{
    td__ps_range key = {0, 8};
    float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, got[8];
    if (r->rank == 0) {
        td__ps_host *h;
        RANK_OK(r, td__ps_host_open(r->comm, 1, 8, NULL, &h));
        RANK_OK(r, td__ps_host_close(h));
        return;
    }
    td__ps_client *c;
    td__ps_ticket t;
    RANK_OK(r, td__ps_client_open(r->comm, 1, 8, &c));
    RANK_OK(r, td__ps_push(c, &key, 1, ones, &t));
    RANK_OK(r, td__ps_wait(c, t));
    if (r->rank == 1)
        _exit(0); /* a process of its own; its push is applied */
    do {
        RANK_OK(r, td__ps_pull(c, &key, 1, got, &t));
        RANK_OK(r, td__ps_wait(c, t));
    } while (got[7] < 2);
    RANK_OK(r, td__ps_client_close(c));
}

static void server_dies(ranks_ctx *r)
{
    td__ps_range key = {0, 8};
    float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (r->rank == 0) {
        td__ps_host *h;
        RANK_OK(r, td__ps_host_open(r->comm, 1, 8, NULL, &h));
        char byte;
        RANK_OK(r, td_recv(r->comm, &byte, 1, TD_U8, 1, NULL));
        _exit(0);
    }
    td__ps_client *c;
    td__ps_ticket t;
    td_status st = TD_OK;
    RANK_OK(r, td__ps_client_open(r->comm, 1, 8, &c));
    RANK_OK(r, td__ps_push(c, &key, 1, ones, &t));
    RANK_OK(r, td__ps_wait(c, t));
    RANK_OK(r, td_send(r->comm, "", 1, TD_U8, 0, NULL));
    while (!st) {
        st = td__ps_push(c, &key, 1, ones, &t);
        st = st ? st : td__ps_wait(c, t);
    }
    RANK_CHECK(r, st == TD_EPEER, "%s: %s", td_status_name(st), td_last_error());
    RANK_STATUS(r, td__ps_client_close(c), TD_EPEER);
}

TEST(who_dies_is_noticed)
{
    for (int t = 1; t < 3; t++) {
        ranks_opts o = {.transport = TRANSPORTS[t], .processes = true};
        ranks_run(3, &o, client_dies, NULL);
        ranks_run(2, &o, server_dies, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_all_pushes),
        cmocka_unit_test(calls_are_carried_out_in_order),
        cmocka_unit_test(values_stay_where_they_are),
        cmocka_unit_test(who_dies_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
