/* Communicators used wrongly, and used up: bad arguments are refused before they do harm, an abort
 * from another thread ends every call, and whatever was made is given back. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/deadline.h"
#include "coll/comm_impl.h"
#include "support/check.h"
#include "support/procs.h"
#include "support/ranks.h"
#include "support/sanitized.h"
#include "tandem/alloc.h"

enum { SLOWER = SANITIZED ? 10 : 1 };
enum { GROWTH_KB = SANITIZED ? 1 << 20 : 2048 }; /* their own memory grows */
enum { COUNT = 300, SOON_MS = 100000 };

/* ---- every call, by number ---- */

typedef struct args {
    const void *in;
    void *out;
    size_t count;
    td_dtype dtype;
    td_reduce_op op;
    int root; /* or peer */
} args;

typedef enum use { REDUCES = 1, ROOTED = 2, DATA = 4 } use;

static td_status allreduce(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_allreduce(c, a->in, a->out, a->count, a->dtype, a->op, o);
}
static td_status reduce(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_reduce(c, a->in, a->out, a->count, a->dtype, a->op, a->root, o);
}
static td_status broadcast(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_broadcast(c, a->out, a->count, a->dtype, a->root, o);
}
static td_status reduce_scatter(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_reduce_scatter(c, a->in, a->out, a->count, a->dtype, a->op, o);
}
static td_status all_gather(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_all_gather(c, a->in, a->out, a->count, a->dtype, o);
}
static td_status all_to_all(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_all_to_all(c, a->in, a->out, a->count, a->dtype, o);
}
static td_status gather(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_coll_gather(c, a->in, a->out, a->count, a->dtype, a->root, o);
}
static td_status scatter(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_coll_scatter(c, a->in, a->out, a->count, a->dtype, a->root, o);
}
static td_status barrier(td_comm *c, const args *a, const td_coll_opts *o)
{
    (void)a;
    return td_barrier(c, o);
}
static td_status send_one(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_send(c, a->in, a->count, a->dtype, a->root, o);
}
static td_status recv_one(td_comm *c, const args *a, const td_coll_opts *o)
{
    return td_recv(c, a->out, a->count, a->dtype, a->root, o);
}

static const struct {
    const char *name;
    td_status (*call)(td_comm *c, const args *a, const td_coll_opts *o);
    int uses;
} CALLS[] = {
    {"allreduce", allreduce, REDUCES | DATA},
    {"reduce", reduce, REDUCES | ROOTED | DATA},
    {"broadcast", broadcast, ROOTED | DATA},
    {"reduce_scatter", reduce_scatter, REDUCES | DATA},
    {"all_gather", all_gather, DATA},
    {"all_to_all", all_to_all, DATA},
    {"gather", gather, ROOTED | DATA},
    {"scatter", scatter, ROOTED | DATA},
    {"barrier", barrier, 0},
    {"send", send_one, ROOTED | DATA},
    {"recv", recv_one, ROOTED | DATA},
};

static const float INPUT[4 * COUNT];

/* ---- arguments ---- */

#define REFUSED(r, k, c, a, what)                                                            \
    do {                                                                                     \
        td_status st_ = CALLS[k].call((c), &(a), NULL);                                      \
        RANK_CHECK((r), st_ == TD_EINVAL && td_last_error()[0], "%s, %s: %s", CALLS[k].name, \
                   (what), td_status_name(st_));                                             \
    } while (0)

static void refused(ranks_ctx *r)
{
    static const int NOBODY[] = {-1, -7, 3, 1 << 30, INT32_MIN};
    float out[4 * COUNT];

    for (int k = 0; k < TD_LEN(CALLS); k++) {
        /* The root is this rank where there is one, so that both buffers are needed. */
        bool p2p = CALLS[k].call == send_one || CALLS[k].call == recv_one;
        int peer = p2p ? (r->rank + 1) % r->size : r->rank;
        const args good = {INPUT, out, 1, TD_F32, TD_REDUCE_SUM, peer};
        args a = good;
        REFUSED(r, k, NULL, a, "NULL comm");
        if (!(CALLS[k].uses & DATA))
            continue;
        a.in = a.out = NULL;
        REFUSED(r, k, r->comm, a, "NULL buffers");
        a = good;
        for (size_t n = SIZE_MAX; n > (size_t)1 << 60; n /= 3) {
            a.count = n;
            REFUSED(r, k, r->comm, a, "a count that overflows");
        }
        a = good;
        a.dtype = (td_dtype)-1;
        REFUSED(r, k, r->comm, a, "dtype -1");
        a.dtype = TD_DTYPE_COUNT;
        REFUSED(r, k, r->comm, a, "dtype past the last");
        a = good;
        for (int i = 0; CALLS[k].uses & ROOTED && i < TD_LEN(NOBODY); i++) {
            a.root = NOBODY[i];
            REFUSED(r, k, r->comm, a, "a rank that is none");
        }
        a = good;
        if (CALLS[k].uses & REDUCES) {
            a.op = (td_reduce_op)-1;
            REFUSED(r, k, r->comm, a, "operation -1");
            a.op = TD_REDUCE_COUNT;
            REFUSED(r, k, r->comm, a, "operation past the last");
        }
    }
    td_comm *none = NULL;
    void *p = NULL;
    RANK_STATUS(r, td_comm_split(NULL, 0, 0, &none), TD_EINVAL);
    RANK_STATUS(r, td_comm_split(r->comm, 0, 0, NULL), TD_EINVAL);
    RANK_STATUS(r, td_comm_alloc(NULL, 1, &p), TD_EINVAL);
    RANK_STATUS(r, td_comm_alloc(r->comm, 1, NULL), TD_EINVAL);
    RANK_STATUS(r, td_work_wait(NULL), TD_EINVAL);
    td_comm_free(NULL, NULL);
    td_comm_free(r->comm, NULL);
    td_comm_free(r->comm, out); /* was never registered */
    td_comm_abort(NULL, "nothing");
    td_comm_destroy(NULL);
    /* None of it did harm, nor counted as a call. */
    float one = 1;
    RANK_OK(r, td_allreduce(r->comm, &one, &one, 1, TD_F32, TD_REDUCE_SUM, NULL));
    RANK_CHECK(r, one == (float)r->size, "%g", (double)one);
}

TEST(bad_arguments_are_refused)
{
    td_comm *c[3];

    ranks_run(3, NULL, refused, NULL);
    ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, refused, NULL);
    ranks_run(3, &(ranks_opts){.transport = "tcp", .processes = true}, refused, NULL);
    CHECK_STATUS(td_comm_threads(0, NULL, c), TD_EINVAL);
    CHECK_STATUS(td_comm_threads(-3, NULL, c), TD_EINVAL);
    CHECK_STATUS(td_comm_threads(1 << 30, NULL, c), TD_EINVAL);
    CHECK_STATUS(td_comm_threads(3, NULL, NULL), TD_EINVAL);
    CHECK_STATUS(td_comm_world(NULL, NULL), TD_EINVAL);
}

/* ---- after a failure ---- */

/* All ranks have made their comm. False: one of them has got here and failed already. */
static bool all_here(td_comm *c)
{
    return td_barrier(c, NULL) == TD_OK;
}

/* Every later call says what the first one said, at once, asynchronous ones too. */
static void poisoned(ranks_ctx *r)
{
    float out[4 * COUNT];
    char first[400];
    td_work *work;
    void *p;
    td_comm *sub;

    (void)all_here(r->comm);
    if (r->rank == 0)
        td_comm_abort(r->comm, "the first cause");
    RANK_CHECK(r, td__comm_await_poison(r->comm, SOON_MS), "not told");
    td_comm_abort(r->comm, "a later one");
    td_status want = r->rank == 0 ? TD_EABORTED : TD_EPEER;
    RANK_STATUS(r, td_barrier(r->comm, NULL), want);
    snprintf(first, sizeof first, "%s", td_last_error());
    RANK_CHECK(r, strstr(first, "rank 0 aborted: the first cause"), "%s", first);
    for (int k = 0; k < TD_LEN(CALLS); k++) {
        args a = {INPUT, out, COUNT, TD_F32, TD_REDUCE_MAX, (r->rank + 1) % r->size};
        RANK_STATUS(r, CALLS[k].call(r->comm, &a, NULL), want);
        RANK_CHECK(r, strcmp(first, td_last_error()) == 0, "%s: %s", CALLS[k].name,
                   td_last_error());
        RANK_OK(r, CALLS[k].call(r->comm, &a, &(td_coll_opts){.work = &work}));
        RANK_STATUS(r, td_work_wait(work), want);
        RANK_CHECK(r, strcmp(first, td_last_error()) == 0, "%s: %s", CALLS[k].name,
                   td_last_error());
    }
    RANK_STATUS(r, td_comm_alloc(r->comm, 100, &p), want);
    RANK_STATUS(r, td_comm_split(r->comm, 0, 0, &sub), want);
}

TEST(the_first_cause_stays)
{
    ranks_run(3, NULL, poisoned, NULL);
    ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, poisoned, NULL);
    ranks_run(3, &(ranks_opts){.transport = "tcp", .processes = true}, poisoned, NULL);
}

/* ---- abort from another thread ---- */

/* Abort as soon as the rank waits in a call. */
static void *abort_soon(void *arg)
{
    td_comm *c = arg;
    td__comm_activity a;
    td__deadline until = td__deadline_in_ms(SOON_MS);

    do {
        sched_yield();
        td__comm_activity_get(c, &a);
    } while (!(a.in_call && a.n_waiting > 0) && !td__deadline_passed(until));
    td_comm_abort(c, "from another thread");
    return NULL;
}

/* Rank 0 is in the call alone, the others stay away: all learn. Rank 0's part is chosen such that
 * it has to wait for them. */
static void aborted(ranks_ctx *r)
{
    int k = *(const int *)r->arg;
    static float out[2][8 << 20]; /* in one message: more than sockets take without a receiver */
    args a = {out[0], out[1], 1 << 20, TD_F32, TD_REDUCE_SUM, 1};
    pthread_t thread;

    if (CALLS[k].call == gather || CALLS[k].call == reduce)
        a.root = 0;
    if (CALLS[k].call == send_one)
        a.count = 8 << 20;
    (void)all_here(r->comm);
    if (r->rank == 0) {
        RANK_CHECK(r, pthread_create(&thread, NULL, abort_soon, r->comm) == 0, "no thread");
        td_status st = CALLS[k].call(r->comm, &a, NULL);
        char text[400];
        snprintf(text, sizeof text, "%s", td_last_error());
        pthread_join(thread, NULL);
        RANK_CHECK(r, st == TD_EABORTED, "%s over %s: %s: %s", CALLS[k].name,
                   td_comm_transport(r->comm), td_status_name(st), text);
        RANK_CHECK(r, strstr(text, "from another thread"), "%s: %s", CALLS[k].name, text);
    } else {
        RANK_CHECK(r, td__comm_await_poison(r->comm, SOON_MS), "%s: not told", CALLS[k].name);
        RANK_STATUS(r, td_barrier(r->comm, NULL), TD_EPEER);
        RANK_CHECK(r, strstr(td_last_error(), "rank 0 aborted: from another thread"), "%s",
                   td_last_error());
    }
}

TEST(abort_from_another_thread_ends_every_call)
{
    for (int k = 0; k < TD_LEN(CALLS); k++) {
        ranks_run(3, NULL, aborted, &k);
        ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, aborted, &k);
        ranks_opts tcp = {.transport = "tcp", .processes = true, .comm = {.streams = 1}};
        ranks_run(3, &tcp, aborted, &k);
    }
}

/* ---- what was made is given back ---- */

static int count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    CHECK(d, "no /proc/self/task");
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

typedef struct holdings {
    int fds, threads, maps;
    uint64_t live;
} holdings;

static holdings held(void)
{
    return (holdings){procs_count_fds(), count_threads(), procs_count_maps("memfd"),
                      td_alloc_get_stats().live};
}

/* A joined thread may still be in the kernel for a moment. */
static void expect_held(holdings want, const char *after)
{
    td__deadline until = td__deadline_in_ms(SOON_MS);
    holdings h = held();

    while (h.threads > want.threads && !td__deadline_passed(until)) {
        sched_yield();
        h = held();
    }
    CHECK(h.fds == want.fds && h.threads == want.threads && h.maps == want.maps &&
              h.live == want.live,
          "after %s: %d fds, %d threads, %d maps, %llu blocks instead of %d, %d, %d, %llu", after,
          h.fds, h.threads, h.maps, (unsigned long long)h.live, want.fds, want.threads, want.maps,
          (unsigned long long)want.live);
}

/* Left with calls under way that can never end: waiting for one of them comes after the comm. */
static void left_in_flight(ranks_ctx *r)
{
    enum { N = 4 };
    static float x[3][N][COUNT];
    td_work *work[N];

    if (!all_here(r->comm))
        return;
    if (r->rank == 2) { /* never comes */
        RANK_CHECK(r, td__comm_await_poison(r->comm, SOON_MS), "not told");
        return;
    }
    for (int i = 0; i < N; i++)
        RANK_OK(r, td_allreduce(r->comm, x[r->rank][i], x[r->rank][i], COUNT, TD_F32, TD_REDUCE_SUM,
                                &(td_coll_opts){.work = &work[i]}));
    td_comm *c = r->comm;
    r->comm = NULL;
    td_comm_destroy(c);
    for (int i = 0; i < N; i++) {
        RANK_CHECK(r, td_work_done(work[i]), "call %d goes on without its comm", i);
        td_status st = td_work_wait(work[i]);
        RANK_CHECK(r, st == TD_EABORTED || st == TD_EPEER, "%s: %s", td_status_name(st),
                   td_last_error());
    }
}

TEST(destroyed_with_calls_in_flight)
{
    ranks_run(3, NULL, left_in_flight, NULL); /* what is made once is made now */
    holdings before = held();
    for (int i = 0; i < 20; i++)
        ranks_run(3, NULL, left_in_flight, NULL);
    expect_held(before, "20 comms with calls in flight");
    ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, left_in_flight, NULL);
    ranks_run(3, &(ranks_opts){.transport = "tcp", .processes = true}, left_in_flight, NULL);
    expect_held(before, "processes");
}

static void a_little(ranks_ctx *r)
{
    float x = 1;
    td_work *work;
    void *p;

    RANK_OK(
        r, td_allreduce(r->comm, &x, &x, 1, TD_F32, TD_REDUCE_SUM, &(td_coll_opts){.work = &work}));
    RANK_OK(r, td_work_wait(work));
    RANK_CHECK(r, x == (float)r->size, "%g", (double)x);
    RANK_OK(r, td_comm_alloc(r->comm, 5000, &p)); /* freed with the comm */
    RANK_OK(r, td_barrier(r->comm, NULL));
}

TEST(threads_worlds_give_everything_back)
{
    ranks_run(3, NULL, a_little, NULL);
    holdings before = held();
    for (int i = 0; i < 300 / SLOWER; i++)
        ranks_run(3, NULL, a_little, NULL);
    expect_held(before, "300 worlds of threads");
}

/* In one process, so that what a world of processes leaves behind would stay. */
static void worlds_give_everything_back(const char *transport, int times)
{
    ranks_opts o = {.transport = transport};

    ranks_run(3, &o, a_little, NULL);
    holdings before = held();
    for (int i = 0; i < times; i++)
        ranks_run(3, &o, a_little, NULL);
    expect_held(before, transport);
}

TEST(other_worlds_give_everything_back)
{
    worlds_give_everything_back("shm", 100 / SLOWER);
    worlds_give_everything_back("tcp", 100 / SLOWER);
}

/* The processes of a launch, each of which makes its world again and again, and leaves it. */
TEST(forked_worlds_give_everything_back)
{
    holdings before = held();

    for (int i = 0; i < 150 / SLOWER; i++) {
        ranks_run(3, &(ranks_opts){.transport = "shm", .processes = true}, a_little, NULL);
        ranks_run(3, &(ranks_opts){.transport = "tcp", .processes = true}, a_little, NULL);
    }
    expect_held(before, "300 forked worlds");
}

/* 20,000 calls: the memory of the process does not grow. */
static void many(ranks_ctx *r)
{
    enum { MANY = 20000 / SLOWER };
    float x[8] = {0};
    td_work *work;
    td_alloc_stats *at = r->arg;
    long *kb = (long *)(at + 1);

    for (int i = 0; i < MANY; i++) {
        if (i == MANY / 10) {
            RANK_OK(r, td_barrier(r->comm, NULL));
            if (r->rank == 0) {
                struct rusage u;
                getrusage(RUSAGE_SELF, &u);
                *at = td_alloc_get_stats();
                *kb = u.ru_maxrss;
            }
            RANK_OK(r, td_barrier(r->comm, NULL));
        }
        td_coll_opts o = {.work = i % 8 ? NULL : &work};
        RANK_OK(r, td_allreduce(r->comm, x, x, 8, TD_F32, TD_REDUCE_SUM, &o));
        if (o.work)
            RANK_OK(r, td_work_wait(work));
    }
    RANK_OK(r, td_barrier(r->comm, NULL));
    if (r->rank == 0) {
        struct rusage u;
        getrusage(RUSAGE_SELF, &u);
        td_alloc_stats now = td_alloc_get_stats();
        RANK_CHECK(r, now.live == at->live && now.calls == at->calls, "%llu blocks, %llu calls",
                   (unsigned long long)(now.live - at->live),
                   (unsigned long long)(now.calls - at->calls));
        RANK_CHECK(r, u.ru_maxrss - *kb < GROWTH_KB, "%ld KB more", u.ru_maxrss - *kb);
    }
    RANK_OK(r, td_barrier(r->comm, NULL));
}

TEST(many_calls_do_not_grow)
{
    static const char *const TRANSPORTS[] = {"inproc", "shm", "tcp"};
    struct {
        td_alloc_stats stats;
        long kb;
    } at;

    for (int i = 0; i < TD_LEN(TRANSPORTS); i++)
        ranks_run(2, &(ranks_opts){.transport = TRANSPORTS[i]}, many, &at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(the_first_cause_stays),
        cmocka_unit_test(abort_from_another_thread_ends_every_call),
        cmocka_unit_test(destroyed_with_calls_in_flight),
        cmocka_unit_test(threads_worlds_give_everything_back),
        cmocka_unit_test(other_worlds_give_everything_back),
        cmocka_unit_test(forked_worlds_give_everything_back),
        cmocka_unit_test(many_calls_do_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
