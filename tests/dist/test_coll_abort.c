/* Calls that end early: an abort wakes all ranks, a deadline names who is missing, buffers are the
 * caller's again, late ranks are blamed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "coll/comm_impl.h"
#include "support/check.h"
#include "support/ranks.h"

static void aborted(ranks_ctx *r)
{
    td_status want = r->rank == 1 ? TD_EABORTED : TD_EPEER;

    td_status st = td_barrier(r->comm, NULL);
    if (r->rank == 1)
        td_comm_abort(r->comm, "enough");
    if (!st)
        st = td_barrier(r->comm, NULL);
    RANK_CHECK(r, st == want, "%s: %s", td_status_name(st), td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), "rank 1 aborted: enough"), "%s", td_last_error());
}

TEST(abort_wakes_all)
{
    ranks_run(5, NULL, aborted, NULL);
    ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, aborted, NULL);
    ranks_run(3, &(ranks_opts){.transport = "tcp", .processes = true}, aborted, NULL);
}

/* Ranks that give up at the same call at the same moment: none of them, nor who is left, may take
 * it for done. */
typedef struct quitter {
    td__points points; /* first */
    atomic_int *here;  /* of all who give up */
    int all;
} quitter;

static td_status quit(td__points *p, td__point_kind kind, const char *op)
{
    quitter *q = (quitter *)p;
    (void)kind;
    atomic_fetch_add(q->here, 1);
    while (atomic_load(q->here) < q->all)
        sched_yield();
    return TD_FAIL(TD_EABORTED, "no %s today", op);
}

static void quits(ranks_ctx *r)
{
    quitter q = {{quit}, r->arg, r->size - 1};
    if (r->rank)
        td__comm_points(r->comm, &q.points);
    td_status st = td_barrier(r->comm, NULL);
    RANK_CHECK(r, st == TD_EABORTED || st == TD_EPEER, "%s: %s", td_status_name(st),
               td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), "no barrier today"), "%s", td_last_error());
}

TEST(ranks_that_give_up_together)
{
    for (int i = 0; i < 300; i++) {
        atomic_int here = 0;
        ranks_run(2 + i % 4, NULL, quits, &here);
    }
}

/* For how many ranks does this one, a thread of this process, wait in a call? *first: one of them,
 * if there are any. */
static int waits(_Atomic(td_comm *) *comms, int rank, int *first)
{
    td_comm *c = atomic_load(&comms[rank]);
    td__comm_activity a = {0};
    if (c)
        td__comm_activity_get(c, &a);
    *first = a.waiting[0];
    return a.in_call ? a.n_waiting : 0;
}

/* The last rank stays away; all others name it. Rank 0 comes when the others wait already. */
static void missing(ranks_ctx *r)
{
    _Atomic(td_comm *) *comms = r->arg; /* (size) */
    float x[4] = {1, 2, 3, 4};
    td_coll_opts o = {.timeout_ms = r->rank ? 0 : 500, .algo = "direct"};
    td__deadline until = td__deadline_in_ms(100000);
    int who;

    atomic_store(&comms[r->rank], r->comm);
    if (r->rank == r->size - 1) {
        (void)td__comm_await_poison(r->comm, 100000);
        RANK_STATUS(r, td_barrier(r->comm, NULL), TD_ETIMEDOUT);
        return;
    }
    for (int i = 1; r->rank == 0 && i < r->size - 1; i += waits(comms, i, &who) != 0) {
        RANK_CHECK(r, !td__deadline_passed(until), "rank %d does not wait", i);
        sched_yield();
    }
    td_status st = td_allreduce(r->comm, x, x, 4, TD_F32, TD_REDUCE_SUM, &o);
    RANK_CHECK(r, st == TD_ETIMEDOUT, "%s: %s", td_status_name(st), td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), "for rank 2"), "%s", td_last_error());
}

TEST(deadline_names_the_missing)
{
    static const char *const TRANSPORTS[] = {"inproc", "tcp"};
    for (int i = 0; i < TD_LEN(TRANSPORTS); i++) {
        _Atomic(td_comm *) comms[3] = {NULL};
        ranks_run(3, &(ranks_opts){.transport = TRANSPORTS[i]}, missing, comms);
    }
}

/* A message comes as the deadline passes. Whoever gave up has its buffer back: what is written
 * there from then on is its own, also if the sender is in the middle of copying. */
enum { LATE_BYTES = 32 << 20, LATE_MS = 20, LATE_ROUNDS = 16 };
typedef struct latecomer {
    _Atomic uint64_t began_ns;
    uint64_t ahead_ns; /* of the deadline */
    uint8_t *from, *to;
} latecomer;

static void comes_late(ranks_ctx *r)
{
    latecomer *l = r->arg;
    td_coll_opts o = {.timeout_ms = LATE_MS};
    if (r->rank) {
        uint64_t began, at = LATE_MS * 1000000u - l->ahead_ns;
        while (!(began = atomic_load(&l->began_ns)) || td__clock_ns() < began + at)
            sched_yield();
        td_status st = td_send(r->comm, l->from, LATE_BYTES, TD_U8, 0, NULL);
        RANK_CHECK(r, !st || st == TD_ETIMEDOUT, "%s: %s", td_status_name(st), td_last_error());
        return;
    }
    atomic_store(&l->began_ns, td__clock_ns());
    td_status st = td_recv(r->comm, l->to, LATE_BYTES, TD_U8, 1, &o);
    RANK_CHECK(r, !st || st == TD_ETIMEDOUT, "%s: %s", td_status_name(st), td_last_error());
    memset(l->to, st ? 2 : 1, LATE_BYTES);
}

TEST(a_call_that_failed_leaves_buffers_alone)
{
    latecomer l = {.from = malloc(LATE_BYTES), .to = malloc(LATE_BYTES)};
    CHECK(l.from && l.to, "no memory");
    memset(l.from, 1, LATE_BYTES);
    memset(l.to, 0, LATE_BYTES);
    for (int i = 0; i < LATE_ROUNDS; i++) {
        l.began_ns = 0;
        l.ahead_ns = (uint64_t)(i % 8) * 1500000u;
        ranks_run(2, NULL, comes_late, &l);
        for (size_t k = 1; k < LATE_BYTES; k++)
            CHECK(l.to[k] == l.to[0], "round %d: byte %zu was written after the call", i, k);
    }
    free(l.from);
    free(l.to);
}

/* Rank 2 comes when each of the others has seen that it alone is missing: who finds two messages at
 * one look cannot tell which of them came last. */
static void late(ranks_ctx *r)
{
    _Atomic(td_comm *) *comms = r->arg; /* (size) */
    double blame[3];
    td__deadline until = td__deadline_in_ms(100000);

    atomic_store(&comms[r->rank], r->comm);
    for (int i = 0, who; r->rank == 2 && i < 2; i += waits(comms, i, &who) == 1 && who == 2) {
        RANK_CHECK(r, !td__deadline_passed(until), "rank %d does not wait for rank 2", i);
        sched_yield();
    }
    RANK_OK(r, td_allreduce(r->comm, &(float){1}, &(float){0}, 1, TD_F32, TD_REDUCE_SUM, NULL));
    td_comm_blame(r->comm, blame);
    if (r->rank != 2)
        RANK_CHECK(r, blame[2] > 0.02 && blame[2] > blame[1 - r->rank], "%g %g %g", blame[0],
                   blame[1], blame[2]);
}

TEST(late_ranks_are_blamed)
{
    _Atomic(td_comm *) comms[3] = {NULL};
    ranks_run(3, NULL, late, comms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_wakes_all),
        cmocka_unit_test(ranks_that_give_up_together),
        cmocka_unit_test(deadline_names_the_missing),
        cmocka_unit_test(a_call_that_failed_leaves_buffers_alone),
        cmocka_unit_test(late_ranks_are_blamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
