/* The rules of communicators: asynchronous calls keep their order, groups split, algorithms are
 * chosen by name, wrong arguments are refused, steps allocate nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <string.h>

#include "base/deadline.h"
#include "coll/comm_impl.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/alloc.h"

enum { COUNT = 1000 };

/* ---- asynchronous calls ---- */

static void asynchronous(ranks_ctx *r)
{
    enum { CALLS = 8 };
    float *p = ranks_floats(r, 8 * COUNT), sum = 0;
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

/* ---- arguments, memory ---- */

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

TEST(arguments_and_memory)
{
    for (int n = 1; n <= 3; n++) {
        ranks_run(n, NULL, refused, NULL);
        ranks_run(n, NULL, registered, NULL);
    }
    ranks_run(3, &(ranks_opts){.transport = "tcp"}, registered, NULL);
}

/* A step makes no memory: neither calls nor asynchronous ones. */
static void steady(ranks_ctx *r)
{
    float *p = ranks_floats(r, 8 * COUNT);
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
        cmocka_unit_test(asynchronous_calls),     cmocka_unit_test(groups),
        cmocka_unit_test(algorithms_by_name),     cmocka_unit_test(arguments_and_memory),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
