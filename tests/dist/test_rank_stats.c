/* test_rank_stats.c -- times of all ranks: everybody has everybody's, at the same steps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/check.h"
#include "support/check.h"
#include "support/ranks.h"
#include "run/rank_stats.h"

enum { STEPS = 50 };

typedef struct seen {
    uint64_t step[STEPS + 1];
    int n;
} seen;

/* Steps of rank r take (r + 1) tenths of a second, by its own account. */
static td__rank_times step_of(int rank)
{
    double s = 0.1 * (rank + 1);
    return (td__rank_times){.seconds = s,
                            .compute = 0.5 * s,
                            .update = 0.1 * s,
                            .comm = 0.2 * s,
                            .wait = 0.3 * s,
                            .data = 0.05 * s,
                            .nbytes = 1000 + rank,
                            .plain = 2000 + rank};
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void check_event(ranks_ctx *r, const td__ranks_event *e)
{
    double k = (double)e->steps;

    RANK_CHECK(r, e->n == r->size && e->blame, "%d ranks", e->n);
    for (int i = 0; i < e->n; i++) {
        td__rank_times want = step_of(i);
        const td__rank_times *got = &e->rank[i];
        RANK_CHECK(r,
                   near(got->seconds, k * want.seconds) && near(got->compute, k * want.compute) &&
                       near(got->update, k * want.update) && near(got->comm, k * want.comm) &&
                       near(got->wait, k * want.wait) && near(got->data, k * want.data) &&
                       near(got->nbytes, k * want.nbytes) && near(got->plain, k * want.plain),
                   "rank %d: %g seconds in %g steps", i, got->seconds, k);
        RANK_CHECK(r, got->memory > 1e5, "rank %d has %g bytes", i, got->memory);
        RANK_CHECK(r, e->blame[i] >= 0, "rank %d is to blame for %g", i, e->blame[i]);
    }
}

static void body(ranks_ctx *r)
{
    seen *mine = &((seen *)r->arg)[r->rank];
    td__rank_times step = step_of(r->rank);
    td__rank_stats *s;
    td__ranks_event e;
    uint64_t steps = 0;

    RANK_OK(r, td__rank_stats_create(r->comm, 0, &s));
    for (uint64_t k = 1; k <= STEPS; k++) {
        td__rank_stats_add(s, &step);
        RANK_OK(r, td__rank_stats_tell(s, k, k == STEPS, &e));
        if (!e.n)
            continue;
        check_event(r, &e);
        mine->step[mine->n++] = k;
        steps += e.steps;
        RANK_CHECK(r, e.step == k, "an event of step %llu", (unsigned long long)e.step);
    }
    RANK_CHECK(r, steps == STEPS, "events speak of %llu steps", (unsigned long long)steps);
    RANK_OK(r, td__rank_stats_tell(s, STEPS, true, &e));
    RANK_CHECK(r, !e.n, "nothing is left to tell");
    td__rank_stats_destroy(s);
}

TEST(all_ranks_tell_at_the_same_steps)
{
    seen all[3] = {0};

    ranks_run(3, NULL, body, all);
    for (int r = 1; r < 3; r++) {
        CHECK_EQ_INT(all[r].n, all[0].n);
        assert_memory_equal(all[r].step, all[0].step, sizeof all[0].step);
    }
    /* After the first step, then about twice a second of the slowest, whose steps take 0.3 s. */
    CHECK_EQ_INT(all[0].step[0], 1);
    CHECK(all[0].n >= STEPS / 2 && all[0].n <= STEPS, "%d events in %d steps", all[0].n, STEPS);
}

TEST(one_rank_tells_at_the_end)
{
    td__rank_times step = step_of(0);
    td__rank_stats *s;
    td__ranks_event e;

    CHECK_OK(td__rank_stats_create(NULL, 1, &s));
    for (uint64_t k = 1; k <= STEPS; k++) {
        td__rank_stats_add(s, &step);
        CHECK_OK(td__rank_stats_tell(s, k, k == STEPS, &e));
        CHECK_EQ_INT(e.n, k == STEPS);
    }
    CHECK(near(e.rank[0].seconds, STEPS * step.seconds) && !e.blame, "%g s", e.rank[0].seconds);
    td__rank_stats_destroy(s);
}

/* Rank 0 alone speaks for three. */
TEST(others_by_what_is_put)
{
    td__rank_times step = step_of(0), total = {0}, want = step_of(1);
    td__rank_stats *s;
    td__ranks_event e;
    double seconds = 0, blame = 0;
    int told = 0;

    CHECK_OK(td__rank_stats_create(NULL, 3, &s));
    for (uint64_t k = 1; k <= STEPS; k++) {
        td__rank_stats_add(s, &step);
        total.seconds += want.seconds;
        total.memory = 1e6;
        td__rank_stats_put(s, 1, &total);
        td__rank_stats_blame(s, 2, 0.25);
        CHECK_OK(td__rank_stats_tell(s, k, k == STEPS, &e));
        if (!e.n)
            continue;
        told++;
        CHECK(e.n == 3 && e.rank[1].memory == 1e6 && e.rank[2].seconds == 0, "%d ranks", e.n);
        seconds += e.rank[1].seconds;
        blame += e.blame[2];
    }
    CHECK(told > 2 && near(seconds, STEPS * want.seconds) && near(blame, STEPS * 0.25),
          "%d times, %g s, %g s", told, seconds, blame);
    td__rank_stats_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_tell_at_the_same_steps),
        cmocka_unit_test(one_rank_tells_at_the_end),
        cmocka_unit_test(others_by_what_is_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
