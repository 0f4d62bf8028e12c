/* What optimizers refuse, and how; that a bad step changes nothing; that state can be carried over;
 * that a lack of memory leaks nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/optim_model.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tandem/alloc.h"
#include "tandem/optim.h"

TEST(row_sparse_refusals)
{
    static const td_optim_opts BAD[] = {{.name = "sgd", .momentum = 0.9},
                                        {.name = "sgd", .weight_decay = 0.1},
                                        {.name = "adagrad", .weight_decay = 0.1},
                                        {.name = "adam", .weight_decay = 0.1},
                                        {.name = "rmsprop"},
                                        {.name = "lamb"},
                                        {.name = "lars"}};
    optim_model m = optim_table_create();
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td_optimizer *o;
        CHECK_STATUS(td_optimizer_create(&BAD[i], m.params, &o), TD_ENOTSUP);
        CHECK(strstr(td_last_error(), BAD[i].name) && strstr(td_last_error(), "'table'"),
              "row %d says: %s", i, td_last_error());
    }
    optim_model_destroy(&m);
}

static const struct {
    td_optim_opts opts;
    const char *part;
} BAD[] = {
    {{.name = "sdg"}, "no optimizer is called 'sdg'"},
    {{.name = "sgd", .lr = -1}, "sgd: lr is -1"},
    {{.name = "adam", .lr = NAN}, "adam: lr is nan"},
    {{.name = "sgd", .lr = INFINITY}, "sgd: lr is inf"},
    {{.name = "sgd", .momentum = 1}, "sgd: momentum is 1, must be in [0, 1)"},
    {{.name = "sgd", .momentum = -0.5}, "sgd: momentum is -0.5"},
    {{.name = "sgd", .beta1 = 0.9}, "sgd: has no option beta1 (given 0.9)"},
    {{.name = "sgd", .nesterov = true}, "sgd: nesterov needs momentum > 0"},
    {{.name = "sgd", .nesterov = true, .momentum = 0.9, .dampening = 0.1}, "dampening 0.1"},
    {{.name = "adam", .nesterov = true}, "adam: has no option nesterov"},
    {{.name = "adam", .centered = true}, "adam: has no option centered"},
    {{.name = "adam", .momentum = 0.9}, "adam: has no option momentum (given 0.9)"},
    {{.name = "adam", .beta2 = 1}, "adam: beta2 is 1"},
    {{.name = "adamw", .beta1 = NAN}, "adamw: beta1 is nan"},
    {{.name = "adamw", .weight_decay = -0.01}, "adamw: weight_decay is -0.01"},
    {{.name = "rmsprop", .alpha = 1.5}, "rmsprop: alpha is 1.5"},
    {{.name = "lars", .trust = -1}, "lars: trust is -1"},
    {{.name = "lamb", .eps = -1}, "lamb: eps is -1"},
    {{.name = "sgd", .clip_norm = -1}, "sgd: clip_norm is -1"},
    {{.name = "sgd", .clip_value = NAN}, "sgd: clip_value is nan"},
};

TEST(refusals_name_optimizer_option_and_value)
{
    optim_model m = optim_model_create();
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td_optimizer *o;
        CHECK_STATUS(td_optimizer_create(&BAD[i].opts, m.params, &o), TD_EINVAL);
        CHECK(strstr(td_last_error(), BAD[i].part), "row %d says: %s", i, td_last_error());
        CHECK(!o, "row %d left an object", i);
    }
    optim_model_destroy(&m);
}

TEST(a_bad_step_changes_nothing)
{
    static const double LR[] = {NAN, INFINITY, -0.1};
    optim_model m = optim_model_create();
    td_optim_opts opts = {.name = "adamw", .clip_norm = 1};
    td_optimizer *o;
    char before[65], after[65];
    CHECK_OK(td_optimizer_create(&opts, m.params, &o));
    optim_model_run(&m, 1);
    CHECK_OK(td_params_digest(m.params, before));
    for (int i = 0; i < TD_LEN(LR); i++) {
        CHECK_STATUS(td_optimizer_step(o, m.runner, LR[i]), TD_EINVAL);
        CHECK(strstr(td_last_error(), "adamw: lr is "), "%s", td_last_error());
    }
    td_runner_grads(m.runner, NULL)[3] = NAN;
    CHECK_STATUS(td_optimizer_step(o, m.runner, 0.1), TD_EINVAL);
    CHECK(strstr(td_last_error(), "norm is nan"), "%s", td_last_error());
    CHECK_OK(td_params_digest(m.params, after));
    CHECK(!strcmp(before, after), "params changed");
    CHECK_EQ_INT(td_optimizer_steps(o), 0);
    td_optimizer_destroy(o);
    optim_model_destroy(&m);
}

/* Steps with the state and counter carried over by hand, as a checkpoint does: the same bits. */
TEST(resume_from_states)
{
    optim_model a = optim_model_create(), b = optim_model_create();
    td_optim_opts opts = {.name = "adamw"};
    td_optimizer *oa, *ob;
    CHECK_OK(td_optimizer_create(&opts, a.params, &oa));
    CHECK_OK(td_optimizer_create(&opts, b.params, &ob));
    for (int t = 1; t <= 3; t++) {
        optim_model_run(&a, t);
        CHECK_OK(td_optimizer_step(oa, a.runner, 0.01));
    }
    size_t all;
    float *from = td_params_block(a.params, &all);
    memcpy(td_params_block(b.params, NULL), from, all * sizeof *from);
    for (int k = 0; k < td_optimizer_state_count(oa); k++) {
        size_t n;
        float *s = td_optimizer_state(oa, k, &n);
        memcpy(td_optimizer_state(ob, k, NULL), s, n * sizeof *s);
    }
    td_optimizer_set_steps(ob, td_optimizer_steps(oa));
    optim_model_run(&a, 4);
    optim_model_run(&b, 4);
    CHECK_OK(td_optimizer_step(oa, a.runner, 0.01));
    CHECK_OK(td_optimizer_step(ob, b.runner, 0.01));
    CHECK(!memcmp(from, td_params_block(b.params, NULL), all * sizeof *from), "params differ");
    CHECK(!strcmp(td_optimizer_state_name(oa, 0), "exp_avg"), "%s", td_optimizer_state_name(oa, 0));
    td_optimizer_destroy(ob);
    td_optimizer_destroy(oa);
    optim_model_destroy(&b);
    optim_model_destroy(&a);
}

TEST(no_memory)
{
    optim_model m = optim_model_create();
    td_optim_opts opts = {.name = "adam"};
    uint64_t live = td_alloc_get_stats().live;
    for (uint64_t nth = 1;; nth++) {
        td_optimizer *o;
        td_alloc_fail_at(nth);
        td_status st = td_optimizer_create(&opts, m.params, &o);
        td_alloc_fail_at(0);
        td_optimizer_destroy(o);
        CHECK_EQ_INT(td_alloc_get_stats().live, live);
        if (!st)
            break;
        CHECK_EQ_INT(st, TD_ENOMEM);
        CHECK(nth < 100, "never succeeds");
    }
    optim_model_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_sparse_refusals),
        cmocka_unit_test(refusals_name_optimizer_option_and_value),
        cmocka_unit_test(a_bad_step_changes_nothing),
        cmocka_unit_test(resume_from_states),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
