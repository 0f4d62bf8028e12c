/* Collectives over shared memory between processes, against closed forms: registered and private
 * buffers, mixed over ranks, in place and not, from one element to several chunks, with more ranks
 * than cores; the bits are those of one process adding in the rank tree; and what a rank's death, a
 * stopped rank and a disagreement do in the middle of calls.
 *
 * Values are small integers that differ for every (rank, index), so that sums are exact in f32 and
 * a swapped or doubled piece shows. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "coll/comm_impl.h"
#include "net/mesh_shm.h"
#include "support/check.h"
#include "support/procs.h"
#include "support/ranks.h"

enum { SOON_MS = 100000, VICTIM = 1 };

typedef enum memory { PRIVATE, REGISTERED, MIXED, MEMORY_COUNT } memory;

typedef struct scene {
    memory mem;
    size_t count;
    /* Of failures: */
    int kind;               /* which call */
    int signal, timeout_ms; /* of rank 0 in the call that the victim does not come to */
    td_status want;
    td__shm_door door;
} scene;

static const td_coll_opts SHM = {.algo = "shm"};

static float value(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 3) % 1000);
}

static float sum_value(int size, size_t i)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += value(r, i);
    return sum;
}

static bool is_registered(const ranks_ctx *r, const scene *s)
{
    return s->mem == REGISTERED || (s->mem == MIXED && r->rank % 2 == 0);
}

/* n floats in the scene's kind of memory, set to -1. All ranks allocate registered memory, also
 * those that then use private one. */
static float *buffer(ranks_ctx *r, const scene *s, size_t n)
{
    void *p = NULL;
    if (s->mem != PRIVATE && td_comm_alloc(r->comm, (n + 1) * sizeof(float), &p)) {
        ranks_fail(r, __FILE__, __LINE__, "td_comm_alloc", "%s", td_last_error());
        return NULL;
    }
    float *f = is_registered(r, s) ? p : check_alloc_guarded((n + 1) * sizeof(float));
    for (size_t i = 0; i <= n; i++)
        f[i] = -1;
    return f;
}

static void done_with(const ranks_ctx *r, const scene *s, float *f)
{
    if (!is_registered(r, s))
        check_free_guarded(f); /* registered memory goes with the comm */
}

/* f[0..n) must be what `want` says; f[n] untouched. */
#define EXPECT(r, f, n, want)                                                                   \
    do {                                                                                        \
        for (size_t i = 0; i < (n); i++)                                                        \
            RANK_CHECK((r), (f)[i] == (want), "index %zu of %zu is %g, not %g", i, (size_t)(n), \
                       (double)(f)[i], (double)(want));                                         \
        RANK_CHECK((r), (f)[n] == -1, "written past the end");                                  \
    } while (0)

static void body_reduce(ranks_ctx *r)
{
    const scene *s = r->arg;
    size_t n = s->count, all = n * (size_t)r->size;
    float *a = buffer(r, s, n), *b = buffer(r, s, n), *big = buffer(r, s, all);
    if (!a || !b || !big)
        return;
    for (int in_place = 0; in_place < 2; in_place++) {
        float *out = in_place ? a : b;
        for (size_t i = 0; i < n; i++)
            a[i] = value(r->rank, i);
        RANK_OK(r, td_allreduce(r->comm, a, out, n, TD_F32, TD_REDUCE_SUM, &SHM));
        EXPECT(r, out, n, sum_value(r->size, i));
    }
    for (int root = 0; root < r->size; root++) {
        for (size_t i = 0; i < n; i++)
            a[i] = value(r->rank, i);
        RANK_OK(r, td_reduce(r->comm, a, r->rank == root ? b : NULL, n, TD_F32, TD_REDUCE_MAX, root,
                             &SHM));
        if (r->rank != root)
            continue;
        for (size_t i = 0; i < n; i++) {
            float want = 0;
            for (int k = 0; k < r->size; k++)
                want = fmaxf(want, value(k, i));
            RANK_CHECK(r, b[i] == want, "max %zu is %g, not %g", i, (double)b[i], (double)want);
        }
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        float *out = in_place ? big : b;
        for (size_t i = 0; i < all; i++)
            big[i] = value(r->rank, i);
        RANK_OK(r, td_reduce_scatter(r->comm, big, out, n, TD_F32, TD_REDUCE_SUM, &SHM));
        size_t at = n * (size_t)r->rank;
        for (size_t i = 0; i < n; i++)
            RANK_CHECK(r, out[i] == sum_value(r->size, at + i), "index %zu is %g", i,
                       (double)out[i]);
    }
    RANK_OK(r, td_barrier(r->comm, &SHM));
    done_with(r, s, a);
    done_with(r, s, b);
    done_with(r, s, big);
}

static void body_move(ranks_ctx *r)
{
    const scene *s = r->arg;
    size_t n = s->count, size = (size_t)r->size, all = n * size, me = (size_t)r->rank;
    float *a = buffer(r, s, all), *b = buffer(r, s, all);
    if (!a || !b)
        return;
    for (int root = 0; root<r->size; root += r->size> 1 ? r->size - 1 : 1) {
        for (size_t i = 0; i < n; i++)
            a[i] = value(r->rank, i);
        RANK_OK(r, td_broadcast(r->comm, a, n, TD_F32, root, &SHM));
        for (size_t i = 0; i < n; i++)
            RANK_CHECK(r, a[i] == value(root, i), "broadcast %zu is %g", i, (double)a[i]);
        for (size_t i = 0; i < all; i++)
            a[i] = value(r->rank, i);
        RANK_OK(r, td_coll_gather(r->comm, a, r->rank == root ? b : NULL, n, TD_F32, root, &SHM));
        for (size_t i = 0; r->rank == root && i < all; i++)
            RANK_CHECK(r, b[i] == value((int)(i / n), i % n), "gather %zu is %g", i, (double)b[i]);
        RANK_OK(r, td_coll_scatter(r->comm, r->rank == root ? a : NULL, b, n, TD_F32, root, &SHM));
        for (size_t i = 0; i < n; i++)
            RANK_CHECK(r, b[i] == value(root, me * n + i), "scatter %zu is %g", i, (double)b[i]);
    }
    for (int where = 0; where < 3; where++) { /* apart, in its place, at the beginning */
        float *in = where == 0 ? a : where == 1 ? b + me * n : b;
        for (size_t i = 0; i < n; i++)
            in[i] = value(r->rank, i);
        RANK_OK(r, td_all_gather(r->comm, in, b, n, TD_F32, &SHM));
        EXPECT(r, b, all, value((int)(i / n), i % n));
    }
    for (size_t i = 0; i < all; i++)
        a[i] = value(r->rank, i);
    RANK_OK(r, td_all_to_all(r->comm, a, b, n, TD_F32, &SHM));
    EXPECT(r, b, all, value((int)(i / n), me * n + i % n));
    RANK_OK(r, td_barrier(r->comm, &SHM));
    done_with(r, s, a);
    done_with(r, s, b);
}

static void run_all(ranks_body body)
{
    static const int SIZES[] = {2, 5};
    /* Around the inline, slot and stage sizes. */
    static const size_t COUNTS[] = {1, 6, 7, 256, 257, 4097, 300007};
    ranks_opts o = {.transport = "shm", .processes = true};
    for (int k = 0; k < TD_LEN(SIZES); k++)
        for (int mem = 0; mem < MEMORY_COUNT; mem++)
            for (int i = 0; i < TD_LEN(COUNTS); i++)
                ranks_run(SIZES[k], &o, body, &(scene){.mem = (memory)mem, .count = COUNTS[i]});
}

TEST(reductions_have_closed_forms)
{
    run_all(body_reduce);
}

TEST(moves_have_closed_forms)
{
    run_all(body_move);
}

/* ---- bits ---- */

/* One process, in the rank tree: halves of n, the left one the largest power of two. */
static float tree(const float *v, int n)
{
    int half = 1;
    if (n == 1)
        return v[0];
    while (2 * half < n)
        half *= 2;
    return tree(v, half) + tree(v + half, n - half);
}

static float rough(int rank, size_t i)
{
    return sinf((float)i * 0.37f + (float)rank) * powf(10, (float)((rank + (int)i) % 7 - 3));
}

static void body_bits(ranks_ctx *r)
{
    const scene *s = r->arg;
    float *a = buffer(r, s, s->count), v[PROCS_MOST];
    if (!a)
        return;
    for (size_t i = 0; i < s->count; i++)
        a[i] = rough(r->rank, i);
    RANK_OK(r, td_allreduce(r->comm, a, a, s->count, TD_F32, TD_REDUCE_SUM, &SHM));
    for (size_t i = 0; i < s->count; i++) {
        for (int k = 0; k < r->size; k++)
            v[k] = rough(k, i);
        RANK_CHECK(r, a[i] == tree(v, r->size), "bits of element %zu", i);
    }
    RANK_OK(r, td_barrier(r->comm, &SHM));
    done_with(r, s, a);
}

TEST(bits_are_those_of_the_rank_tree)
{
    static const size_t COUNTS[] = {5, 999, 40000};
    ranks_opts o = {.transport = "shm", .processes = true};
    for (int size = 2; size <= 7; size++)
        for (int mem = 0; mem < 2; mem++)
            for (int i = 0; i < TD_LEN(COUNTS); i++)
                ranks_run(size, &o, body_bits, &(scene){.mem = (memory)mem, .count = COUNTS[i]});
}

/* Ranks as threads do the same: what the thread sanitizer sees. */
TEST(threads_can_share_memory_too)
{
    ranks_opts o = {.transport = "shm"};
    for (int mem = 0; mem < MEMORY_COUNT; mem++) {
        ranks_run(3, &o, body_reduce, &(scene){.mem = (memory)mem, .count = 30000});
        ranks_run(3, &o, body_move, &(scene){.mem = (memory)mem, .count = 30000});
    }
}

/* ---- failures ---- */

/* One call of a kind; `odd` makes it differ from the others'. */
static td_status some_call(td_comm *c, const scene *s, float *a, int odd, int timeout_ms)
{
    td_coll_opts o = {.algo = "shm", .timeout_ms = (uint32_t)timeout_ms};
    size_t n = s->count, block = n / (size_t)td_comm_size(c);
    switch (s->kind) {
    case 0: return td_allreduce(c, a, a, n - (size_t)odd, TD_F32, TD_REDUCE_SUM, &o);
    case 1: return td_allreduce(c, a, a, n, TD_F32, odd ? TD_REDUCE_MAX : TD_REDUCE_SUM, &o);
    case 2: return td_broadcast(c, a, n, odd ? TD_I32 : TD_F32, 0, &o);
    case 3: return td_all_gather(c, a + (size_t)td_comm_rank(c) * block, a, block, TD_F32, &o);
    default: return odd ? td_broadcast(c, a, n, TD_F32, 0, &o) : td_barrier(c, &o);
    }
}

/* Calls until one fails; the victim ends itself, stops, or makes another call. */
static int body_failure(int rank, int size, void *arg)
{
    const scene *s = arg;
    td__comm_parts parts = {.rank = rank, .size = size, .gamma = 1e-10};
    td_comm *c;
    void *p;
    if (rank > 0)
        close(s->door.listener);
    if (td__mesh_shm_join(&s->door, rank, size, td__deadline_in_ms(SOON_MS), &parts.mesh) ||
        td__comm_assemble(&parts, NULL, &c) || td_comm_alloc(c, s->count * sizeof(float), &p)) {
        fprintf(stderr, "rank %d: %s\n", rank, td_last_error());
        return 2;
    }
    float *a = s->mem == REGISTERED ? p : calloc(s->count, sizeof(float));
    td_status st = TD_OK;
    for (int round = 0; !st; round++) {
        bool last = round == 30;
        if (last && rank == VICTIM && s->signal)
            kill(getpid(), s->signal);
        st = some_call(c, s, a, last && rank == VICTIM, last && rank == 0 ? s->timeout_ms : 0);
    }
    const char *error = td_last_error();
    /* Who loses patience takes the others with it. */
    bool as_wanted = st == (s->want == TD_ETIMEDOUT && rank ? TD_EPEER : s->want);
    bool good = as_wanted && strstr(error, "rank 1") && some_call(c, s, a, 0, 0) == st;
    if (!good)
        fprintf(stderr, "rank %d, kind %d: %s: %s\n", rank, s->kind, td_status_name(st), error);
    if (s->mem != REGISTERED)
        free(a);
    td_comm_destroy(c);
    return good ? 0 : 1;
}

static void survive(scene s)
{
    enum { SIZE = 4 };
    procs p;
    CHECK_OK(td__shm_door_open(&s.door));
    procs_start(&p, SIZE, body_failure, &s);
    close(s.door.listener);
    for (int r = 0; r < SIZE; r++)
        if (r != VICTIM || !s.signal)
            CHECK_EQ_INT(procs_wait(&p, r, SOON_MS), 0);
    if (s.signal == SIGSTOP)
        procs_signal(&p, VICTIM, SIGKILL);
    if (s.signal)
        CHECK_EQ_INT(procs_wait(&p, VICTIM, SOON_MS), 128 + SIGKILL);
}

static const size_t FAILURE_COUNTS[] = {100, 100000};

TEST(a_killed_rank_is_named)
{
    for (int kind = 0; kind < 5; kind++)
        for (int i = 0; i < TD_LEN(FAILURE_COUNTS); i++)
            for (int mem = 0; mem < 2; mem++)
                survive((scene){.kind = kind,
                                .mem = (memory)mem,
                                .count = FAILURE_COUNTS[i],
                                .signal = SIGKILL,
                                .want = TD_EPEER});
}

TEST(a_stopped_rank_is_named_when_time_is_up)
{
    for (int i = 0; i < TD_LEN(FAILURE_COUNTS); i++)
        survive((scene){.count = FAILURE_COUNTS[i],
                        .timeout_ms = 2000,
                        .signal = SIGSTOP,
                        .want = TD_ETIMEDOUT});
}

TEST(a_disagreement_names_both_sides)
{
    static const int KINDS[] = {0, 1, 2, 4};
    for (int k = 0; k < TD_LEN(KINDS); k++)
        for (int i = 0; i < TD_LEN(FAILURE_COUNTS); i++)
            for (int mem = 0; mem < 2; mem++)
                survive((scene){.kind = KINDS[k],
                                .mem = (memory)mem,
                                .count = FAILURE_COUNTS[i],
                                .want = TD_EMISMATCH});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_have_closed_forms),
        cmocka_unit_test(moves_have_closed_forms),
        cmocka_unit_test(bits_are_those_of_the_rank_tree),
        cmocka_unit_test(threads_can_share_memory_too),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_stopped_rank_is_named_when_time_is_up),
        cmocka_unit_test(a_disagreement_names_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
