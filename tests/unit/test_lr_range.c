/* What a learning-rate range test advises, on losses whose best rate is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/check.h"
#include "train/lr_range.h"

enum { STEPS = 100 };

static double rate(int i)
{
    return 1e-6 * pow(10, 7.0 * i / (STEPS - 1));
}

/* Falls from 2 to 1 around the rate 1e-3, and grows from 0.1 on. */
TEST(a_loss_that_falls)
{
    td__lr_range r;
    bool over = false;

    CHECK_OK(td__lr_range_init(&r, STEPS));
    for (int i = 0; i < STEPS && !over; i++) {
        double x = log10(rate(i));
        over = td__lr_range_step(&r, rate(i), 2 - 1 / (1 + exp(-6 * (x + 3))) + exp(8 * (x + 1)));
    }
    td__lr_advice a = td__lr_range_advice(&r);
    CHECK(over && r.n < STEPS, "it goes on to the last rate");
    CHECK(a.lr > 4e-4 && a.lr < 2.5e-3, "steepest at %g", a.lr);
    CHECK(a.least_at > a.lr && a.least_at < 0.2, "least at %g", a.least_at);
    CHECK(a.grows_at > a.least_at && a.grows_at < 1, "grows at %g", a.grows_at);
    td__lr_range_fini(&r);
}

TEST(a_loss_that_does_not_fall)
{
    td__lr_range r;

    CHECK_OK(td__lr_range_init(&r, STEPS));
    for (int i = 0; i < STEPS; i++)
        CHECK(!td__lr_range_step(&r, rate(i), 2 + 0.01 * (i % 3)), "step %d is the last", i);
    CHECK(isnan(td__lr_range_advice(&r).lr), "a rate for nothing");
    CHECK(td__lr_range_step(&r, 1, 1), "more steps than room");
    td__lr_range_fini(&r);
}

TEST(a_loss_that_is_not_finite)
{
    td__lr_range r;

    CHECK_OK(td__lr_range_init(&r, STEPS));
    CHECK(!td__lr_range_step(&r, 0.1, 1), "the first");
    CHECK(td__lr_range_step(&r, 0.2, NAN), "it goes on after nan");
    CHECK_EQ_INT(r.n, 1);
    CHECK(isnan(td__lr_range_advice(&r).lr), "a rate from one step");
    td__lr_range_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loss_that_falls),
                                       cmocka_unit_test(a_loss_that_does_not_fall),
                                       cmocka_unit_test(a_loss_that_is_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
