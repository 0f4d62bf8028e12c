/* What the butterfly is predicted to cost: with n ranks, n no power of two, a short last block
 * serves the full one beside it, and the busiest rank's messages are what a round costs. Counted
 * here from who needs whose sum, and for a few n written out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "coll/algo.h"
#include "support/check.h"

static const td__algo *butterfly(void)
{
    for (int i = 0; td__algo_at(i); i++)
        if (td__algo_at(i)->kind == TD_COLL_ALLREDUCE &&
            strcmp(td__algo_at(i)->name, "butterfly") == 0)
            return td__algo_at(i);
    return NULL;
}

static td__coll_call call_of(size_t count)
{
    return (td__coll_call){.kind = TD_COLL_ALLREDUCE, .count = count, .dtype = TD_F32};
}

/* In seconds: of messages, each by itself, or of bytes moved and added. */
static double cost_of(int n, size_t count, double alpha, double beta, double gamma)
{
    td__mesh mesh = {.size = n, .alpha = alpha, .beta = beta};
    td__coll_ctx x = {.mesh = &mesh, .gamma = gamma};
    td__coll_call c = call_of(count);
    return butterfly()->cost(&x, &c);
}

/* Every rank of the block beside wants this block's sum, from one rank of it, in turn. */
static int busiest(int n, int distance)
{
    int most = 0, sent[64] = {0};

    for (int r = 0; r < n; r++) {
        int base = r / distance * distance, beside = base ^ distance, ours = n - beside;
        ours = ours < distance ? ours : distance;
        if (ours <= 0)
            continue; /* no block is beside: the sum is passed up as it is */
        int from = beside + (r - base) % ours;
        most = ++sent[from] > most ? sent[from] : most;
    }
    return most;
}

static void as_many_bytes_as_the_busiest_rank_sends(void **state)
{
    enum { COUNT = 1000, NBYTES = 4 * COUNT };

    (void)state;
    for (int n = 2; n <= 33; n++) {
        double bytes = 0, rounds = 0, latency = 0;
        for (int distance = 1; distance < n; distance *= 2) {
            int f = busiest(n, distance);
            rounds++;
            bytes += f * (double)NBYTES;
            latency += 1 + 0.2 * (f - 1);
        }
        assert_true(fabs(cost_of(n, COUNT, 0, 1, 0) - bytes) < 1e-6);
        assert_true(fabs(cost_of(n, COUNT, 0, 0, 1) - rounds * NBYTES) < 1e-6);
        assert_true(fabs(cost_of(n, COUNT, 1, 0, 0) - latency) < 1e-9);
    }
}

static void off_powers_of_two(void **state)
{
    static const struct {
        int n;
        double messages, rounds; /* of the busiest rank */
    } CASES[] = {{2, 1, 1},         {3, 1 + 2, 2},     {4, 2, 2}, {5, 1 + 1 + 4, 3},
                 {6, 1 + 1 + 2, 3}, {7, 1 + 2 + 2, 3}, {8, 3, 3}, {9, 1 + 1 + 1 + 8, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        double got = cost_of(CASES[i].n, 1, 0, 1, 0), added = cost_of(CASES[i].n, 1, 0, 0, 1);
        assert_true(fabs(got - 4 * CASES[i].messages) < 1e-9);
        assert_true(fabs(added - 4 * CASES[i].rounds) < 1e-9);
    }
    /* One rank more than a power of two costs more than the next such power; long arrays too, which
     * those halve. */
    assert_true(cost_of(5, 1000, 1e-5, 1e-9, 1e-10) > cost_of(8, 1000, 1e-5, 1e-9, 1e-10));
    assert_true(cost_of(5, 1000000, 1e-5, 1e-9, 1e-10) > cost_of(8, 1000000, 1e-5, 1e-9, 1e-10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_bytes_as_the_busiest_rank_sends),
        cmocka_unit_test(off_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
