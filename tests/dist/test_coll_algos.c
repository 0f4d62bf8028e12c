/* Every row of algos.def over every transport against closed forms: 1..9 and 16 ranks, counts
 * around the rank count, all types and operations, in place and not, tiny segments, guard bytes.
 *
 * Inputs are small integers that look random in (rank, index), so a swapped, dropped or doubled
 * piece changes the answer, and all results are exact in every type. The order-safe rows must also
 * give, for random floats, the bits of one process that adds in the tree over ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coll/comm_impl.h"
#include "support/check.h"
#include "support/element.h"
#include "support/ranks.h"

static const int SIZES[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};

/* One call of one row. */
typedef struct scene {
    const td__algo *algo;
    size_t count, segment;
    td_dtype dtype;
    td_reduce_op op;
    int root;
    bool in_place;
} scene;

static unsigned noise(int rank, size_t i)
{
    unsigned h = ((unsigned)i * 2654435761u) ^ ((unsigned)rank * 40503u + 977u);
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}

/* Element i of rank's input. Products of 16 ranks stay below 256. */
static double value(const scene *s, int rank, size_t i)
{
    if (s->op == TD_REDUCE_PROD)
        return (noise(0, i) + (unsigned)rank) % 5 == 0 ? 2 : 1;
    return noise(rank, i) % 7 + 1;
}

static double reduced(const scene *s, int size, size_t i)
{
    double v = value(s, 0, i);

    for (int r = 1; r < size; r++) {
        double w = value(s, r, i);
        switch (s->op) {
        case TD_REDUCE_PROD: v *= w; break;
        case TD_REDUCE_MIN: v = w < v ? w : v; break;
        case TD_REDUCE_MAX: v = w > v ? w : v; break;
        default: v += w; break;
        }
    }
    if (s->op == TD_REDUCE_AVG) {
        v /= size;
        if (s->dtype == TD_F32 || s->dtype == TD_BF16 || s->dtype == TD_F16)
            v = (double)(float)v;
    }
    return v;
}

/* Elements of in and of out on this rank. */
static size_t in_count(const scene *s, int size)
{
    td__coll k = s->algo->kind;
    bool many = k == TD_COLL_REDUCE_SCATTER || k == TD_COLL_ALL_TO_ALL || k == TD_COLL_SCATTER;
    return many ? s->count * (size_t)size : s->count;
}

static size_t out_count(const scene *s, int size)
{
    td__coll k = s->algo->kind;
    bool many = k == TD_COLL_ALL_GATHER || k == TD_COLL_ALL_TO_ALL || k == TD_COLL_GATHER;
    return many ? s->count * (size_t)size : s->count;
}

static bool has_out(const scene *s, int rank)
{
    td__coll k = s->algo->kind;
    return k == TD_COLL_REDUCE || k == TD_COLL_GATHER ? rank == s->root : k != TD_COLL_BARRIER;
}

static double expected(const scene *s, int rank, int size, size_t i)
{
    size_t block = s->count ? i / s->count : 0, at = s->count ? i % s->count : 0;

    switch (s->algo->kind) {
    case TD_COLL_REDUCE_SCATTER: return reduced(s, size, s->count * (size_t)rank + i);
    case TD_COLL_ALL_GATHER:
    case TD_COLL_GATHER: return value(s, (int)block, at);
    case TD_COLL_ALL_TO_ALL: return value(s, (int)block, s->count * (size_t)rank + at);
    case TD_COLL_BROADCAST: return value(s, s->root, i);
    case TD_COLL_SCATTER: return value(s, s->root, s->count * (size_t)rank + i);
    default: return reduced(s, size, i);
    }
}

static td_status call(const scene *s, td_comm *c, const void *in, void *out)
{
    td_coll_opts o = {.algo = s->algo->name, .segment = s->segment};

    switch (s->algo->kind) {
    case TD_COLL_ALLREDUCE: return td_allreduce(c, in, out, s->count, s->dtype, s->op, &o);
    case TD_COLL_REDUCE: return td_reduce(c, in, out, s->count, s->dtype, s->op, s->root, &o);
    case TD_COLL_BROADCAST: return td_broadcast(c, out, s->count, s->dtype, s->root, &o);
    case TD_COLL_REDUCE_SCATTER:
        return td_reduce_scatter(c, in, out, s->count, s->dtype, s->op, &o);
    case TD_COLL_ALL_GATHER: return td_all_gather(c, in, out, s->count, s->dtype, &o);
    case TD_COLL_ALL_TO_ALL: return td_all_to_all(c, in, out, s->count, s->dtype, &o);
    case TD_COLL_GATHER: return td_coll_gather(c, in, out, s->count, s->dtype, s->root, &o);
    case TD_COLL_SCATTER: return td_coll_scatter(c, in, out, s->count, s->dtype, s->root, &o);
    default: return td_barrier(c, &o);
    }
}

static const char *scene_text(const scene *s, char buf[200])
{
    snprintf(buf, 200, "%s %s of %zu %s %s, root %d, segments of %zu bytes%s",
             td__coll_name(s->algo->kind), s->algo->name, s->count, td_dtype_name(s->dtype),
             td_reduce_name(s->op), s->root, s->segment, s->in_place ? ", in place" : "");
    return buf;
}

static bool usable(const ranks_ctx *r, const td__algo *a, size_t count)
{
    td__coll_call probe = {.kind = a->kind, .count = count, .dtype = TD_F32};
    return r->size == 1 || a->can(&r->comm->ctx, &probe);
}

/* In place: in and out begin together, but a gathered block lies in its place. */
static void play(ranks_ctx *r, const scene *s)
{
    size_t each = td_dtype_size(s->dtype), n_in = in_count(s, r->size), n = out_count(s, r->size);
    bool together = s->in_place || s->algo->kind == TD_COLL_BROADCAST;
    bool all_gather = s->algo->kind == TD_COLL_ALL_GATHER;
    char *out = check_alloc_guarded((n > n_in ? n : n_in) * each);
    char *in = together ? out : check_alloc_guarded(n_in * each);
    char text[200];

    if (together && all_gather)
        in = out + s->count * (size_t)r->rank * each;
    for (size_t i = 0; i < n_in; i++)
        element_set(s->dtype, in, (int64_t)i, value(s, r->rank, i));
    td_status st = call(s, r->comm, in, out);
    RANK_CHECK(r, st == TD_OK, "%s: %s", scene_text(s, text), td_last_error());
    for (size_t i = 0; i < n && has_out(s, r->rank); i++) {
        double want, got = element_get(s->dtype, out, (int64_t)i);
        char rounded[8];
        element_set(s->dtype, rounded, 0, expected(s, r->rank, r->size, i));
        want = element_get(s->dtype, rounded, 0);
        RANK_CHECK(r, got == want, "%s: element %zu is %g, not %g", scene_text(s, text), i, got,
                   want);
    }
    for (size_t i = 0; i < n_in && !together; i++)
        RANK_CHECK(r, element_get(s->dtype, in, (int64_t)i) == value(s, r->rank, i),
                   "%s: input %zu changed", scene_text(s, text), i);
    if (!together)
        check_free_guarded(in);
    check_free_guarded(out);
}

static void all_counts(ranks_ctx *r, const td__algo *a)
{
    size_t n = (size_t)r->size;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 2 * n + 1, 1000, n > 4 ? 4001 : 20011};

    for (int k = 0; k < TD_LEN(counts); k++) {
        for (int way = 0; way < 4; way++) {
            bool tiny = way / 2, in_place = way % 2;
            if ((in_place && a->kind == TD_COLL_ALL_TO_ALL) || (k == 7 && tiny && n > 4) ||
                !usable(r, a, counts[k]))
                continue;
            scene s = {
                .algo = a,
                .count = counts[k],
                .segment = !tiny              ? 0
                           : counts[k] > 1000 ? 2000
                                              : 64,
                .dtype = TD_F32,
                .root = k % r->size,
                .in_place = in_place,
            };
            play(r, &s);
            if (r->text[0])
                return;
        }
    }
}

static void all_types(ranks_ctx *r, const td__algo *a)
{
    static const td_dtype TYPES[] = {TD_F32, TD_F64, TD_BF16, TD_F16, TD_I32, TD_I64, TD_U8};
    bool reduces = a->kind == TD_COLL_ALLREDUCE || a->kind == TD_COLL_REDUCE ||
                   a->kind == TD_COLL_REDUCE_SCATTER;

    for (int t = 0; t < TD_LEN(TYPES); t++)
        for (int op = 0; op < (reduces ? TD_REDUCE_COUNT : 1); op++) {
            scene s = {
                .algo = a,
                .count = op % 2 ? 67 : 531,
                .segment = op % 2 ? 32 : 0,
                .dtype = TYPES[t],
                .op = (td_reduce_op)op,
                .root = r->size - 1,
                .in_place = a->kind != TD_COLL_ALL_TO_ALL && (op + t) % 2,
            };
            play(r, &s);
            if (r->text[0])
                return;
        }
}

static void closed_forms(ranks_ctx *r)
{
    const td__algo *a;

    for (int i = 0; (a = td__algo_at(i)) && !r->text[0]; i++) {
        if (a->kind >= TD_COLL_SEND || !usable(r, a, 1))
            continue;
        all_counts(r, a);
        if (!r->text[0])
            all_types(r, a);
    }
}

/* The sum that one process makes, in the tree as docs/algorithms.md draws it. */
static void tree_sum(int size, size_t count, td_dtype t, td_reduce_op op,
                     void (*fill)(void *, int, size_t, td_dtype), void *out)
{
    size_t nbytes = count * td_dtype_size(t);
    char *all = malloc(nbytes * (size_t)size);

    for (int r = 0; r < size; r++)
        fill(all + nbytes * (size_t)r, r, count, t);
    for (int d = 1; d < size; d *= 2)
        for (int r = 0; r + d < size; r += 2 * d) {
            char *a = all + nbytes * (size_t)r, *b = all + nbytes * (size_t)(r + d);
            for (size_t i = 0; i < count; i++) {
                double x = element_get(t, a, (int64_t)i), y = element_get(t, b, (int64_t)i);
                double v = t == TD_F64 ? x + y : (double)((float)x + (float)y);
                element_set(t, a, (int64_t)i, v);
            }
        }
    for (size_t i = 0; i < count && op == TD_REDUCE_AVG; i++) {
        double x = element_get(t, all, (int64_t)i);
        element_set(t, all, (int64_t)i, t == TD_F64 ? x / size : (double)((float)x / (float)size));
    }
    memcpy(out, all, nbytes);
    free(all);
}

/* Numbers of very different size: another order of additions gives other bits. */
static void fill_random(void *p, int rank, size_t count, td_dtype t)
{
    for (size_t i = 0; i < count; i++) {
        unsigned h = noise(rank, i);
        double v = ((double)(h % 2000003) - 1000001) / 1000003;
        element_set(t, p, (int64_t)i, h >> 28 ? v : v * 1000);
    }
}

static void same_bits(ranks_ctx *r)
{
    enum { COUNT = 1237 };
    static const td_dtype TYPES[] = {TD_F32, TD_F64, TD_BF16, TD_F16};
    static const size_t SEGMENTS[] = {0, 256};
    double in[COUNT], out[COUNT], want[COUNT]; /* room for any type */
    const td__algo *a;

    for (int t = 0; t < TD_LEN(TYPES); t++) {
        td_reduce_op op = t % 2 ? TD_REDUCE_AVG : TD_REDUCE_SUM;
        fill_random(in, r->rank, COUNT, TYPES[t]);
        tree_sum(r->size, COUNT, TYPES[t], op, fill_random, want);
        for (int i = 0; (a = td__algo_at(i)); i++) {
            if (a->kind != TD_COLL_ALLREDUCE || !a->order_safe || !usable(r, a, COUNT))
                continue;
            td_coll_opts o = {.algo = a->name, .segment = SEGMENTS[(t / 2 + i) % 2]};
            RANK_OK(r, td_allreduce(r->comm, in, out, COUNT, TYPES[t], op, &o));
            RANK_CHECK(r, memcmp(out, want, COUNT * td_dtype_size(TYPES[t])) == 0,
                       "%s of %s: other bits than in the tree", a->name, td_dtype_name(TYPES[t]));
        }
    }
}

static void on_sizes(const ranks_opts *o, ranks_body body)
{
    for (int i = 0; i < TD_LEN(SIZES); i++)
        ranks_run(SIZES[i], o, body, NULL);
}

TEST(threads_closed_forms)
{
    on_sizes(NULL, closed_forms);
}

TEST(threads_same_bits)
{
    on_sizes(NULL, same_bits);
}

/* Hosts of 2, 3 and 4 ranks, the last one not full: aligned and not aligned to the tree. */
TEST(hosts)
{
    for (int per_host = 2; per_host <= 4; per_host++) {
        ranks_opts o = {.per_host = per_host};
        for (int size = per_host + 1; size <= 9; size++)
            ranks_run(size, &o, same_bits, NULL);
        ranks_run(16, &o, same_bits, NULL);
        ranks_run(7, &o, closed_forms, NULL);
    }
}

TEST(shm_threads)
{
    ranks_opts o = {.transport = "shm"};
    on_sizes(&o, same_bits);
    ranks_run(3, &o, closed_forms, NULL);
    ranks_run(5, &o, closed_forms, NULL);
}

TEST(shm_processes)
{
    ranks_opts o = {.transport = "shm", .processes = true};
    ranks_run(5, &o, same_bits, NULL);
    ranks_run(2, &o, closed_forms, NULL);
    ranks_run(4, &o, closed_forms, NULL);
}

/* A long array: the default segments, and the default choice. */
static void long_array(ranks_ctx *r)
{
    const td__algo *a;
    size_t count = 100003;

    for (int i = 0; (a = td__algo_at(i)); i++) {
        if (a->kind >= TD_COLL_BARRIER || !usable(r, a, count))
            continue;
        scene s = {.algo = a, .count = count, .dtype = TD_I32, .in_place = i % 2};
        if (a->kind == TD_COLL_ALL_TO_ALL)
            s.in_place = false;
        play(r, &s);
        if (r->text[0])
            return;
    }
}

TEST(tcp)
{
    ranks_opts threads = {.transport = "tcp"}, processes = {.transport = "tcp", .processes = true};
    for (int size = 2; size <= 6; size++)
        ranks_run(size, &threads, same_bits, NULL);
    ranks_run(3, &threads, closed_forms, NULL);
    ranks_run(4, &processes, closed_forms, NULL);
}

/* Shared memory inside the hosts, tcp between them. */
TEST(hosts_processes)
{
    ranks_opts o = {.transport = "tcp", .processes = true, .per_host = 2};
    ranks_run(4, &o, same_bits, NULL);
    ranks_run(5, &o, same_bits, NULL);
    ranks_run(4, &o, long_array, NULL);
}

TEST(long_arrays)
{
    ranks_run(3, NULL, long_array, NULL);
    ranks_run(4, NULL, long_array, NULL);
    ranks_run(7, NULL, long_array, NULL);
    ranks_run(6, &(ranks_opts){.per_host = 3}, long_array, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_closed_forms),
        cmocka_unit_test(threads_same_bits),
        cmocka_unit_test(hosts),
        cmocka_unit_test(shm_threads),
        cmocka_unit_test(shm_processes),
        cmocka_unit_test(long_arrays),
        cmocka_unit_test(tcp),
        cmocka_unit_test(hosts_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
