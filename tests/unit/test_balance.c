/* Shares of slow and fast ranks: who gets how many micro-batches, when, and that noise changes
 * nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "support/check.h"
#include "train/balance.h"

enum { MOST = 8, STEPS = 400 };

/* Steps with these seconds a micro-batch until the deal changes; 0: it never did. */
static int steps_until(td__balance *b, const double *speed, int micro_batches, int ranks, int every)
{
    for (int s = 1; s <= STEPS; s++) {
        const int *bounds = td__balance_bounds(b);
        double seconds[MOST];
        for (int r = 0; r < ranks; r++) {
            int even = micro_batches * (r + 1) / ranks - micro_batches * r / ranks;
            seconds[r] = speed[r] * (bounds ? bounds[r + 1] - bounds[r] : even) *
                         (every && s % every == r ? 3 : 1);
        }
        int before[MOST + 1];
        if (bounds)
            memcpy(before, bounds, ((size_t)ranks + 1) * sizeof *before);
        if (!td__balance_add(b, seconds))
            continue;
        /* Who reads ahead looks at any time: what it sees must be what it has room for. */
        CHECK(td__balance_bounds(b) == bounds, "other bounds before the change");
        for (int r = 0; bounds && r <= ranks; r++)
            CHECK(bounds[r] == before[r], "bound %d is %d before the change", r, bounds[r]);
        td__balance_change(b);
        return s;
    }
    return 0;
}

TEST(slow_ranks_get_fewer)
{
    static const struct {
        int micro_batches, ranks, most;
        double speed[MOST];
        int want[MOST + 1];
    } CASES[] = {
        {16, 2, 16, {1, 3}, {0, 12, 16}},   {16, 4, 16, {1, 1, 1, 4}, {0, 5, 10, 15, 16}},
        {8, 2, 8, {1, 100}, {0, 8, 8}},     {12, 3, 12, {2, 1, 1}, {0, 2, 7, 12}},
        {24, 2, 16, {1, 100}, {0, 16, 24}}, {24, 3, 10, {50, 1, 1}, {0, 4, 14, 24}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__balance *b;
        int n = CASES[i].ranks;
        CHECK_OK(td__balance_create(CASES[i].micro_batches, n, CASES[i].most, &b));
        int s = steps_until(b, CASES[i].speed, CASES[i].micro_batches, n, 0);
        CHECK(s > 8 && s < 50, "case %d: changed at %d", (int)i, s);
        for (int r = 0; r <= n; r++)
            CHECK(td__balance_bounds(b)[r] == CASES[i].want[r], "case %d: bound %d is %d", (int)i,
                  r, td__balance_bounds(b)[r]);
        CHECK_EQ_INT(steps_until(b, CASES[i].speed, CASES[i].micro_batches, n, 0), 0);
        td__balance_destroy(b);
    }
}

TEST(equal_ranks_and_noise_change_nothing)
{
    static const double EQUAL[MOST] = {1, 1, 1, 1, 1, 1, 1, 1}, NEAR[MOST] = {1, 1.2, 0.9, 1.1};
    for (int n = 1; n <= MOST; n++)
        for (int micro_batches = 1; micro_batches <= 64; micro_batches *= 4) {
            td__balance *b;
            CHECK_OK(td__balance_create(micro_batches, n, micro_batches, &b));
            CHECK_EQ_INT(steps_until(b, EQUAL, micro_batches, n, 0), 0);
            CHECK_EQ_INT(steps_until(b, EQUAL, micro_batches, n, 40), 0);
            if (n <= 4)
                CHECK_EQ_INT(steps_until(b, NEAR, micro_batches, n, 0), 0);
            td__balance_destroy(b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_ranks_get_fewer),
        cmocka_unit_test(equal_ranks_and_noise_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
