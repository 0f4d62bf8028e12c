/* Learning-rate schedules against closed forms, and what they refuse. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tandem/optim.h"

static const int64_t MILESTONES[] = {3, 7};

typedef struct row {
    td_schedule_opts opts;
    int64_t step;
    double want;
} row;

static const row ROWS[] = {
    {{.lr = 0.5}, 1000, 0.5},
    {{.name = "step", .lr = 1, .step_size = 10}, 9, 1},
    {{.name = "step", .lr = 1, .step_size = 10}, 10, 0.1},
    {{.name = "step", .lr = 1, .step_size = 10, .gamma = 0.5}, 35, 0.125},
    {{.name = "multistep", .lr = 2, .milestones = MILESTONES, .n_milestones = 2}, 2, 2},
    {{.name = "multistep", .lr = 2, .milestones = MILESTONES, .n_milestones = 2}, 3, 0.2},
    {{.name = "multistep", .lr = 2, .milestones = MILESTONES, .n_milestones = 2}, 7, 0.02},
    {{.name = "exponential", .lr = 3, .gamma = 0.9}, 0, 3},
    {{.name = "exponential", .lr = 3, .gamma = 0.9}, 2, 2.43},
    {{.name = "polynomial", .lr = 1, .total_steps = 100}, 25, 0.75},
    {{.name = "polynomial", .lr = 1, .total_steps = 100, .power = 2, .lr_min = 0.2}, 50, 0.4},
    {{.name = "polynomial", .lr = 1, .total_steps = 100, .lr_min = 0.2}, 500, 0.2},
    {{.name = "cosine", .lr = 1, .total_steps = 100}, 0, 1},
    {{.name = "cosine", .lr = 1, .total_steps = 100}, 50, 0.5},
    {{.name = "cosine", .lr = 1, .total_steps = 100, .lr_min = 0.1}, 100, 0.1},
    {{.name = "cosine", .lr = 1, .total_steps = 99, .lr_min = 0.1}, 33, 0.1 + 0.9 * 0.75},
    /* Warm-up, and the wrapped schedule that counts from its end. */
    {{.lr = 1, .warmup_steps = 10}, 0, 0.1},
    {{.lr = 1, .warmup_steps = 10}, 5, 0.55},
    {{.lr = 1, .warmup_steps = 10}, 10, 1},
    {{.lr = 1, .warmup_steps = 10, .warmup_start = TD_ZERO}, 0, 0},
    {{.lr = 1, .warmup_steps = 4, .warmup_start = 0.5}, 1, 0.625},
    {{.name = "cosine", .lr = 1, .total_steps = 110, .warmup_steps = 10}, 60, 0.5},
    {{.name = "step", .lr = 1, .step_size = 10, .warmup_steps = 10}, 19, 1},
    {{.name = "step", .lr = 1, .step_size = 10, .warmup_steps = 10}, 20, 0.1},
    {{.name = "plateau", .lr = 1}, 12345, 1},
};

TEST(closed_forms)
{
    for (int i = 0; i < TD_LEN(ROWS); i++) {
        td_schedule *s;
        CHECK_OK(td_schedule_create(&ROWS[i].opts, &s));
        double got = td_schedule_lr(s, ROWS[i].step);
        CHECK(fabs(got - ROWS[i].want) < 1e-14, "row %d: %.17g, want %.17g", i, got, ROWS[i].want);
        td_schedule_destroy(s);
    }
}

/* As torch.optim.lr_scheduler.ReduceLROnPlateau: patience bad metrics are put up with. */
TEST(plateau)
{
    td_schedule_opts o = {
        .name = "plateau", .lr = 1, .gamma = 0.5, .patience = 2, .cooldown = 1, .lr_min = 0.2};
    static const struct {
        double metric, lr;
    } FEED[] = {
        {10, 1},    {9, 1},     {9, 1},      {8.9999, 1}, /* less than the threshold: bad */
        {9.5, 0.5},                                       /* third bad one: cut */
        {9.5, 0.5},                                       /* cooling down: not counted */
        {9.5, 0.5}, {9.5, 0.5}, {9.5, 0.25},              /* three more */
        {1, 0.25},                                        /* better */
        {2, 0.25},  {2, 0.25},  {2, 0.2},                 /* cut, but not below lr_min */
    };
    td_schedule *s, *copy;
    CHECK_OK(td_schedule_create(&o, &s));
    CHECK_OK(td_schedule_create(&o, &copy));

    for (int i = 0; i < TD_LEN(FEED); i++) {
        CHECK_OK(td_schedule_metric(s, FEED[i].metric));
        CHECK(td_schedule_lr(s, i) == FEED[i].lr, "metric %d: lr %g, want %g", i,
              td_schedule_lr(s, i), FEED[i].lr);
    }
    td_schedule_set_state(copy, td_schedule_get_state(s));
    CHECK(td_schedule_lr(copy, 0) == td_schedule_lr(s, 0), "state was not carried over");
    CHECK_STATUS(td_schedule_metric(s, NAN), TD_EINVAL);
    td_schedule_destroy(copy);
    td_schedule_destroy(s);
}

TEST(plateau_maximize)
{
    td_schedule_opts o = {.name = "plateau", .lr = 1, .patience = -1, .maximize = true};
    td_schedule *s;
    CHECK_OK(td_schedule_create(&o, &s));
    CHECK_OK(td_schedule_metric(s, 0.5));
    CHECK_OK(td_schedule_metric(s, 0.6));
    CHECK(td_schedule_lr(s, 0) == 1.0, "cut while growing");
    CHECK_OK(td_schedule_metric(s, 0.6));
    CHECK(td_schedule_lr(s, 0) == 0.1, "not cut");
    td_schedule_destroy(s);
}

static const int64_t FALLING[] = {7, 3};

static const struct {
    td_schedule_opts opts;
    const char *part; /* of the message */
} BAD[] = {
    {{.name = "sawtooth", .lr = 1}, "no schedule is called 'sawtooth'"},
    {{.name = "cosine", .lr = NAN, .total_steps = 5}, "cosine: lr is nan"},
    {{.name = "constant", .lr = -0.1}, "constant: lr is -0.1"},
    {{.lr = 0}, "lr is 0"},
    {{.lr = INFINITY}, "lr is inf"},
    {{.name = "cosine", .lr = 1}, "cosine: total_steps is 0"},
    {{.name = "cosine", .lr = 1, .total_steps = 5, .warmup_steps = 5}, "total_steps is 5"},
    {{.name = "step", .lr = 1}, "step: step_size is 0"},
    {{.name = "step", .lr = 1, .step_size = -2}, "step: step_size is -2"},
    {{.name = "exponential", .lr = 1}, "exponential: gamma is not set"},
    {{.name = "exponential", .lr = 1, .gamma = -1}, "exponential: gamma is -1"},
    {{.name = "multistep", .lr = 1}, "multistep: milestones are not set"},
    {{.name = "multistep", .lr = 1, .milestones = FALLING, .n_milestones = 2}, "milestone 3"},
    {{.lr = 1, .warmup_steps = -1}, "warmup_steps is -1"},
    {{.lr = 1, .warmup_start = 2}, "warmup_start is 2"},
    {{.name = "plateau", .lr = 1, .threshold = NAN}, "plateau: threshold is nan"},
};

TEST(refusals_name_schedule_option_and_value)
{
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td_schedule *s;
        CHECK_STATUS(td_schedule_create(&BAD[i].opts, &s), TD_EINVAL);
        CHECK(strstr(td_last_error(), BAD[i].part), "row %d says: %s", i, td_last_error());
        CHECK(!s, "row %d left an object", i);
    }
    td_schedule *s;
    CHECK_STATUS(td_schedule_create(NULL, &s), TD_EINVAL);
}

TEST(every_schedule_is_listed_and_tested)
{
    int n = 0;
    for (; td_schedule_list(n); n++) {
        bool found = false;
        for (int i = 0; i < TD_LEN(ROWS); i++)
            found = found || !strcmp(ROWS[i].opts.name ? ROWS[i].opts.name : "constant",
                                     td_schedule_list(n));
        CHECK(found, "%s has no row", td_schedule_list(n));
    }
    CHECK_EQ_INT(n, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_forms),
        cmocka_unit_test(plateau),
        cmocka_unit_test(plateau_maximize),
        cmocka_unit_test(refusals_name_schedule_option_and_value),
        cmocka_unit_test(every_schedule_is_listed_and_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
