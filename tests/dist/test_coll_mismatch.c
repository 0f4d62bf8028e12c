/* Ranks that make different calls: the error names both sides on every rank, and stays. Over
 * threads, and over processes where the side channel is another. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/deadline.h"
#include "coll/comm_impl.h"
#include "net/tls.h"
#include "support/check.h"
#include "support/ranks.h"

enum { COUNT = 1000, BIG = 1 << 20 }; /* BIG: more than sockets and rings hold */

/* What the odd one (the last rank) calls instead of an allreduce of 1000 f32. */
typedef enum odd { COUNTS, EMPTY, TYPE, OPERATION, KIND, ALGORITHM, EXTRA, ODD_COUNT } odd;

static td_status call_odd(td_comm *c, odd what, float *p)
{
    switch (what) {
    case COUNTS: return td_allreduce(c, p, p, COUNT / 2, TD_F32, TD_REDUCE_SUM, NULL);
    case EMPTY: return td_allreduce(c, p, p, 0, TD_F32, TD_REDUCE_SUM, NULL);
    case TYPE: return td_allreduce(c, p, p, COUNT, TD_I32, TD_REDUCE_SUM, NULL);
    case OPERATION: return td_allreduce(c, p, p, COUNT, TD_F32, TD_REDUCE_MAX, NULL);
    case KIND: return td_broadcast(c, p, COUNT, TD_F32, 0, NULL);
    case ALGORITHM:
        return td_allreduce(c, p, p, COUNT, TD_F32, TD_REDUCE_SUM, &(td_coll_opts){.algo = "ring"});
    default: return td_barrier(c, NULL);
    }
}

static void mismatch(ranks_ctx *r)
{
    const odd *what = r->arg;
    bool is_odd = r->rank == r->size - 1;
    float *p = ranks_floats(r, 8 * COUNT);
    char last[24], first[400];

    /* A slow rank may still be here when the others find out. */
    td_status st = td_barrier(r->comm, NULL);
    if (!st)
        st = is_odd ? call_odd(r->comm, *what, p)
                    : td_allreduce(r->comm, p, p, COUNT, TD_F32, TD_REDUCE_SUM, NULL);
    /* A rank that had nothing to wait for learns with its next call. */
    if (!st)
        st = td_barrier(r->comm, NULL);
    RANK_CHECK(r, st == TD_EMISMATCH, "%s: %s", td_status_name(st), td_last_error());
    snprintf(first, sizeof first, "%s", td_last_error());
    snprintf(last, sizeof last, "rank %d calls ", r->size - 1);
    RANK_CHECK(r, strstr(first, last), "not named in: %s", first);
    RANK_CHECK(r, strstr(first, "allreduce #2 (1000 f32 sum"), "not named in: %s", first);
    /* It stays so, at once, with the first cause. */
    RANK_STATUS(r, td_barrier(r->comm, NULL), TD_EMISMATCH);
    RANK_CHECK(r, strcmp(first, td_last_error()) == 0, "%s became %s", first, td_last_error());
    check_free_guarded(p);
}

static void all_mismatches(const ranks_opts *o, int size)
{
    for (odd what = 0; what < ODD_COUNT; what++)
        ranks_run(size, o, mismatch, &what);
}

TEST(disagreements_threads)
{
    ranks_opts o = {.comm = {.stall_ms = 100}};
    all_mismatches(&o, 2);
    all_mismatches(&o, 4);
    all_mismatches(&o, 5);
}

TEST(disagreements_processes)
{
    ranks_opts shm = {.transport = "shm", .processes = true, .comm = {.stall_ms = 100}};
    ranks_opts tcp = {.transport = "tcp", .processes = true, .comm = {.stall_ms = 100}};
    ranks_opts tls = tcp;
    all_mismatches(&shm, 3);
    all_mismatches(&tcp, 3);
    tls.tls_dir = check_tmpdir();
    CHECK_OK(td__tls_make(tls.tls_dir));
    all_mismatches(&tls, 3);
    check_tmpdir_remove();
}

/* One rank has nothing to exchange, and makes no further call: found by asking. */
static void empty_call(ranks_ctx *r)
{
    float *p = ranks_floats(r, 8 * COUNT);
    size_t count = r->rank == r->size - 1 ? 0 : COUNT;
    td_status st;

    switch (*(const int *)r->arg) {
    case 0: st = td_allreduce(r->comm, p, p, count, TD_F32, TD_REDUCE_SUM, NULL); break;
    case 1: st = td_all_gather(r->comm, p, p + COUNT, count, TD_F32, NULL); break;
    case 2: st = td_broadcast(r->comm, p, count, TD_F32, r->size - 1, NULL); break;
    default: st = td_all_to_all(r->comm, p, p + 4 * COUNT, count, TD_F32, NULL); break;
    }
    if (!st) {
        RANK_CHECK(r, td__comm_await_poison(r->comm, 100000), "nobody noticed");
        st = td_barrier(r->comm, NULL);
    }
    RANK_CHECK(r, st == TD_EMISMATCH, "%s: %s", td_status_name(st), td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), "(0 f32") && strstr(td_last_error(), "(1000 f32"), "%s",
               td_last_error());
    check_free_guarded(p);
}

TEST(empty_calls_that_differ)
{
    for (int k = 0; k < 4; k++) {
        ranks_run(3, &(ranks_opts){.comm = {.stall_ms = 50}}, empty_call, &k);
        ranks_run(3, &(ranks_opts){.transport = "shm", .comm = {.stall_ms = 50}}, empty_call, &k);
        ranks_run(3, &(ranks_opts){.transport = "tcp", .comm = {.stall_ms = 50}}, empty_call, &k);
    }
}

/* Nobody sends anything: found by asking. */
static void two_roots(ranks_ctx *r)
{
    float *p = ranks_floats(r, 8 * COUNT);
    td_coll_opts o = {.algo = "direct"};

    td_status st = td_coll_gather(r->comm, p, p + COUNT, 1, TD_F32, r->rank, &o);
    if (!st)
        st = td_barrier(r->comm, NULL);
    RANK_CHECK(r, st == TD_EMISMATCH, "%s: %s", td_status_name(st), td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), "root 0") && strstr(td_last_error(), "root 1"), "%s",
               td_last_error());
    check_free_guarded(p);
}

TEST(roots_that_differ)
{
    ranks_run(2, &(ranks_opts){.comm = {.stall_ms = 50}}, two_roots, NULL);
    ranks_run(2, &(ranks_opts){.transport = "tcp", .comm = {.stall_ms = 50}}, two_roots, NULL);
}

static void send_and_collective(ranks_ctx *r)
{
    const size_t *n = r->arg; /* of rank 0, which sends, and rank 1 */
    char mine[2][32];
    float *p = check_alloc_guarded((BIG + 1) * sizeof *p);
    td_status st = r->rank == 0 ? td_send(r->comm, p, n[0], TD_F32, 1, NULL)
                                : td_recv(r->comm, p, n[1], TD_F32, 0, NULL);
    if (!st)
        st = td_barrier(r->comm, NULL);
    RANK_CHECK(r, st == TD_EMISMATCH, "%s: %s", td_status_name(st), td_last_error());
    for (int i = 0; i < 2; i++) {
        snprintf(mine[i], sizeof mine[i], "(%zu f32", n[i]);
        RANK_CHECK(r, strstr(td_last_error(), mine[i]), "no %s: %s", mine[i], td_last_error());
    }
    check_free_guarded(p);
}

TEST(messages_that_differ)
{
    static const struct {
        size_t sent, received;
    } COUNTS_OF[] = {{5, 6}, {6, 5}, {BIG, BIG + 1}, {BIG + 1, BIG}, {0, 5}, {5, 0}};

    for (int i = 0; i < TD_LEN(COUNTS_OF); i++) {
        size_t n[2] = {COUNTS_OF[i].sent, COUNTS_OF[i].received};
        ranks_opts o = {.comm = {.stall_ms = 50}};
        ranks_run(2, &o, send_and_collective, n);
        o.processes = true;
        o.transport = "shm";
        ranks_run(2, &o, send_and_collective, n);
        o.transport = "tcp";
        ranks_run(2, &o, send_and_collective, n);
        o.tls_dir = check_tmpdir();
        CHECK_OK(td__tls_make(o.tls_dir));
        ranks_run(2, &o, send_and_collective, n);
        check_tmpdir_remove();
    }
}

/* Rank 1 is told of a barrier, which it will come to, before it takes the message. */
static void late_message(ranks_ctx *r)
{
    td__deadline until = td__deadline_in_ms(100000);
    float x = 1;

    if (r->rank == 0)
        RANK_OK(r, td_send(r->comm, &x, 1, TD_F32, 1, NULL));
    for (; r->rank == 1 && !atomic_load(&r->comm->told); sched_yield())
        RANK_CHECK(r, !td__deadline_passed(until), "nobody asked");
    if (r->rank == 1)
        RANK_OK(r, td_recv(r->comm, &x, 1, TD_F32, 0, NULL));
    RANK_OK(r, td_barrier(r->comm, NULL));
}

TEST(a_message_is_not_taken_for_a_collective)
{
    ranks_run(2, &(ranks_opts){.transport = "shm", .comm = {.stall_ms = 50}}, late_message, NULL);
    ranks_run(2, &(ranks_opts){.transport = "tcp", .comm = {.stall_ms = 50}}, late_message, NULL);
}

/* A rank is asked about a call while it writes down that it has begun it, and has just lost its
 * core: what is written by then is no disagreement. */
TEST(half_a_call_is_not_compared)
{
    static const char SAME[] = "ask 17 12345 -1 barrier #17 ()", OTHER[] = "ask 17 54321 -1 x";
    td_comm *c[2];
    CHECK_OK(td_comm_threads(2, NULL, c));
    td__comm_slot *s = &c[0]->slots[1];
    atomic_store(&s->kind, TD_COLL_BARRIER);
    atomic_fetch_add(&s->version, 1);
    atomic_store(&s->sequence, 17);
    td__comm_told(c[0], 1, SAME);
    CHECK_OK(td__poison_check(&c[0]->poison));
    atomic_store(&s->digest, 12345);
    atomic_fetch_add(&s->version, 1);
    td__comm_told(c[0], 1, SAME);
    CHECK_OK(td__poison_check(&c[0]->poison));
    td__comm_told(c[0], 1, OTHER);
    CHECK_EQ_INT(td__poison_check(&c[0]->poison), TD_EMISMATCH);
    for (int r = 0; r < 2; r++)
        td_comm_destroy(c[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disagreements_threads),
        cmocka_unit_test(disagreements_processes),
        cmocka_unit_test(empty_calls_that_differ),
        cmocka_unit_test(roots_that_differ),
        cmocka_unit_test(messages_that_differ),
        cmocka_unit_test(a_message_is_not_taken_for_a_collective),
        cmocka_unit_test(half_a_call_is_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
