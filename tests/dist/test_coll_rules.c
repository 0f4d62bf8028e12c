/* The rules of communicators: disagreements name both sides on every rank, abort wakes all,
 * deadlines name who is missing, asynchronous calls keep their order, groups split, algorithms are
 * chosen by name, late ranks are blamed. Over threads, and over processes where the side channel
 * is another. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "coll/comm_impl.h"
#include "net/tls.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/alloc.h"

enum { COUNT = 1000, BIG = 1 << 20 }; /* BIG: more than sockets and rings hold */

static float *buffer(int rank)
{
    float *p = check_alloc_guarded(COUNT * sizeof *p * 8);
    for (int i = 0; i < COUNT * 8; i++)
        p[i] = (float)(rank + 1);
    return p;
}

/* ---- disagreements ---- */

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
    float *p = buffer(r->rank);
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
    float *p = buffer(r->rank);
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
    float *p = buffer(r->rank);
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

/* ---- abort and deadlines ---- */

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

/* ---- asynchronous calls ---- */

static void asynchronous(ranks_ctx *r)
{
    enum { CALLS = 8 };
    float *p = buffer(r->rank), sum = 0;
    td_work *work[CALLS];
    int64_t token = r->rank;

    for (int i = 0; i < r->size; i++)
        sum += (float)(i + 1);
    /* Each call takes the result of the one before: out of order would show. */
    for (int i = 0; i < CALLS; i++) {
        td_coll_opts o = {.work = &work[i]};
        td_reduce_op op = i % 2 ? TD_REDUCE_AVG : TD_REDUCE_SUM;
        RANK_OK(r, td_allreduce(r->comm, p, p, COUNT, TD_F32, op, &o));
    }
    RANK_OK(r, td_allreduce(r->comm, &token, &token, 1, TD_I64, TD_REDUCE_MAX, NULL));
    RANK_CHECK(r, token == r->size - 1, "%lld", (long long)token);
    for (int i = CALLS - 1; i >= 0; i--) {
        RANK_CHECK(r, td_work_done(work[i]), "a blocking call overtook call %d", i);
        RANK_OK(r, td_work_wait(work[i]));
    }
    float want = sum;
    for (int i = 2; i < CALLS; i += 2)
        want *= (float)r->size;
    for (int i = 0; i < COUNT; i++)
        RANK_CHECK(r, p[i] == want, "%d: %g, not %g", i, (double)p[i], (double)want);
    check_free_guarded(p);
}

/* The caller goes on while calls are under way: work is done only when the other rank comes. */
static void overlap(ranks_ctx *r)
{
    float x = (float)r->rank;
    int8_t token = 0;
    td_work *work;

    if (r->rank == 0) {
        RANK_OK(r, td_allreduce(r->comm, &x, &x, 1, TD_F32, TD_REDUCE_SUM,
                                &(td_coll_opts){.work = &work}));
        RANK_CHECK(r, !td_work_done(work), "done without rank 1");
        atomic_store((atomic_int *)r->arg, 1);
        RANK_OK(r, td_work_wait(work));
    } else {
        td__deadline until = td__deadline_in_ms(100000);
        for (; !atomic_load((atomic_int *)r->arg); sched_yield())
            RANK_CHECK(r, !td__deadline_passed(until), "rank 0 does not come");
        RANK_OK(r, td_allreduce(r->comm, &x, &x, 1, TD_F32, TD_REDUCE_SUM, NULL));
    }
    RANK_CHECK(r, x == 1, "%g", (double)x);
    RANK_OK(r, td_broadcast(r->comm, &token, 1, TD_U8, 0, NULL));
}

/* Work that fails says why to whom waits for it; a comm may be destroyed first. */
static void failing_work(ranks_ctx *r)
{
    float x = 1;
    td_work *work;

    RANK_OK(
        r, td_allreduce(r->comm, &x, &x, 1, TD_F32, TD_REDUCE_SUM, &(td_coll_opts){.work = &work}));
    if (r->rank == 0)
        td_comm_abort(r->comm, "changed my mind");
    td_status st = td_work_wait(work);
    RANK_CHECK(r, st == TD_OK || strstr(td_last_error(), "changed my mind"), "%s", td_last_error());
    st = td_barrier(r->comm, NULL);
    RANK_CHECK(r, st != TD_OK, "the comm goes on");
}

TEST(asynchronous_calls)
{
    atomic_int turn = 0;

    ranks_run(1, NULL, asynchronous, NULL);
    ranks_run(4, NULL, asynchronous, NULL);
    ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, asynchronous, NULL);
    ranks_run(2, NULL, overlap, &turn);
    ranks_run(3, NULL, failing_work, NULL);
}

/* ---- groups ---- */

static void split(ranks_ctx *r)
{
    td_comm *even, *none, *again;
    int32_t x = 1 << r->rank;

    /* Backwards within each color. */
    RANK_OK(r, td_comm_split(r->comm, r->rank % 2, -r->rank, &even));
    int n = (r->size + 1 - r->rank % 2) / 2;
    RANK_CHECK(r, td_comm_size(even) == n, "%d ranks, not %d", td_comm_size(even), n);
    RANK_CHECK(r, td_comm_rank(even) == n - 1 - r->rank / 2, "rank %d", td_comm_rank(even));
    RANK_OK(r, td_allreduce(even, &x, &x, 1, TD_I32, TD_REDUCE_SUM, NULL));
    int32_t want = 0;
    for (int i = r->rank % 2; i < r->size; i += 2)
        want += 1 << i;
    RANK_CHECK(r, x == want, "%d, not %d", x, want);
    RANK_OK(r, td_comm_split(r->comm, r->rank ? 3 : -1, 0, &none));
    RANK_CHECK(r, (none == NULL) == (r->rank == 0), "color -1 joins none");
    if (none) {
        RANK_OK(r, td_barrier(none, NULL));
        RANK_OK(r, td_comm_split(none, 0, 0, &again));
        RANK_CHECK(r, td_comm_size(again) == r->size - 1, "%d", td_comm_size(again));
        RANK_OK(r, td_barrier(again, NULL));
        td_comm_destroy(again);
    }
    td_comm_destroy(none);
    RANK_OK(r, td_barrier(r->comm, NULL));
    td_comm_destroy(even);
}

TEST(groups)
{
    for (int n = 2; n <= 5; n++)
        ranks_run(n, NULL, split, NULL);
    ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, split, NULL);
    ranks_run(3, &(ranks_opts){.transport = "tcp"}, split, NULL);
}

/* ---- names of algorithms ---- */

static void names(ranks_ctx *r)
{
    float x[2] = {1, 2};
    td__comm_activity a;
    td_coll_opts star = {.algo = "star"};

    /* The comm says allreduce=ring,broadcast=chain. */
    RANK_OK(r, td_allreduce(r->comm, x, x, 2, TD_F32, TD_REDUCE_SUM, NULL));
    td__comm_activity_get(r->comm, &a);
    RANK_CHECK(r, strcmp(a.algo, "ring") == 0 && !a.in_call, "%s", a.algo);
    RANK_OK(r, td_allreduce(r->comm, x, x, 2, TD_F32, TD_REDUCE_SUM, &star));
    td__comm_activity_get(r->comm, &a);
    RANK_CHECK(r, strcmp(a.algo, "star") == 0, "%s", a.algo);
    RANK_OK(r, td_broadcast(r->comm, x, 2, TD_F32, 0, NULL));
    td__comm_activity_get(r->comm, &a);
    RANK_CHECK(r, strcmp(a.algo, "chain") == 0, "%s", a.algo);
    RANK_STATUS(
        r, td_allreduce(r->comm, x, x, 2, TD_F32, TD_REDUCE_SUM, &(td_coll_opts){.algo = "rnig"}),
        TD_EINVAL);
    RANK_CHECK(r, strstr(td_last_error(), "butterfly") && strstr(td_last_error(), "rnig"), "%s",
               td_last_error());
}

TEST(algorithms_by_name)
{
    td_comm *c[2];

    ranks_run(3, &(ranks_opts){.comm = {.algo = "allreduce=ring,broadcast=chain"}}, names, NULL);
    CHECK_STATUS(td_comm_threads(2, &(td_comm_opts){.algo = "allreduce=chain"}, c), TD_EINVAL);
    CHECK_STATUS(td_comm_threads(2, &(td_comm_opts){.algo = "fast"}, c), TD_EINVAL);
    CHECK(strstr(td_last_error(), "direct") && strstr(td_last_error(), "ring"), "%s",
          td_last_error());
    CHECK_STATUS(td_comm_threads(2, &(td_comm_opts){.algo = "sum=ring"}, c), TD_EINVAL);
}

/* ---- arguments, registered memory, blame ---- */

static void refused(ranks_ctx *r)
{
    float x[8] = {0};

    RANK_STATUS(r, td_broadcast(r->comm, x, 1, TD_F32, 7, NULL), TD_EINVAL);
    RANK_STATUS(r, td_broadcast(r->comm, x, 1, (td_dtype)99, 0, NULL), TD_EINVAL);
    RANK_STATUS(r, td_allreduce(r->comm, x, x, 1, TD_F32, (td_reduce_op)9, NULL), TD_EINVAL);
    RANK_STATUS(r, td_allreduce(r->comm, x, x, 1, TD_BOOL, TD_REDUCE_MAX, NULL), TD_ENOTSUP);
    RANK_STATUS(r, td_allreduce(r->comm, x, NULL, 1, TD_F32, TD_REDUCE_SUM, NULL), TD_EINVAL);
    RANK_STATUS(r, td_allreduce(r->comm, x, x, SIZE_MAX / 2, TD_F32, TD_REDUCE_SUM, NULL),
                TD_EINVAL);
    RANK_STATUS(r, td_all_to_all(r->comm, x, x, 1, TD_F32, NULL), TD_EINVAL);
    RANK_STATUS(r, td_send(r->comm, x, 1, TD_F32, r->rank, NULL), TD_EINVAL);
    RANK_OK(r, td_barrier(r->comm, NULL)); /* none of it did harm */
}

static void registered(ranks_ctx *r)
{
    void *p, *q;

    RANK_OK(r, td_comm_alloc(r->comm, COUNT * sizeof(float), &p));
    RANK_OK(r, td_comm_alloc(r->comm, 3, &q));
    RANK_CHECK(r, (uintptr_t)p % 4096 == 0 && (uintptr_t)q % 4096 == 0, "not aligned");
    float *x = p;
    for (int i = 0; i < COUNT; i++) {
        RANK_CHECK(r, x[i] == 0, "not zero-filled");
        x[i] = (float)(i + r->rank);
    }
    RANK_OK(r, td_allreduce(r->comm, x, x, COUNT, TD_F32, TD_REDUCE_SUM, NULL));
    for (int i = 0; i < COUNT; i++)
        RANK_CHECK(r, x[i] == (float)(r->size * i + r->size * (r->size - 1) / 2), "%d: %g", i,
                   (double)x[i]);
    td_comm_free(r->comm, p);
    RANK_OK(r, td_barrier(r->comm, NULL));
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

TEST(arguments_memory_blame)
{
    for (int n = 1; n <= 3; n++) {
        ranks_run(n, NULL, refused, NULL);
        ranks_run(n, NULL, registered, NULL);
    }
    ranks_run(3, &(ranks_opts){.transport = "tcp"}, registered, NULL);
    _Atomic(td_comm *) comms[3] = {NULL};
    ranks_run(3, NULL, late, comms);
}

/* A step makes no memory: neither calls nor asynchronous ones. */
static void steady(ranks_ctx *r)
{
    float *p = buffer(r->rank);
    td_work *work;
    uint64_t *before = r->arg;

    for (int i = 0; i < 6; i++) {
        if (i == 3) {
            RANK_OK(r, td_barrier(r->comm, NULL));
            before[r->rank] = td_alloc_get_stats().calls;
        }
        RANK_OK(r, td_allreduce(r->comm, p, p, COUNT, TD_F32, TD_REDUCE_AVG, NULL));
        RANK_OK(r, td_allreduce(r->comm, p, p, COUNT, TD_F32, TD_REDUCE_AVG,
                                &(td_coll_opts){.work = &work}));
        RANK_OK(r, td_work_wait(work));
    }
    RANK_CHECK(r, td_alloc_get_stats().calls == before[r->rank], "a call allocates memory");
    check_free_guarded(p);
}

TEST(steps_allocate_nothing)
{
    uint64_t before[4];
    ranks_run(4, NULL, steady, before);
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
        cmocka_unit_test(abort_wakes_all),
        cmocka_unit_test(ranks_that_give_up_together),
        cmocka_unit_test(deadline_names_the_missing),
        cmocka_unit_test(a_call_that_failed_leaves_buffers_alone),
        cmocka_unit_test(half_a_call_is_not_compared),
        cmocka_unit_test(asynchronous_calls),
        cmocka_unit_test(groups),
        cmocka_unit_test(algorithms_by_name),
        cmocka_unit_test(arguments_memory_blame),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
