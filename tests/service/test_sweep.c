/* Sweeps as pure logic: plans, values of trials, specs of trials, metrics, asha. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/sweep/sweep.h"
#include "support/check.h"

static td__sweep *plan(const char *text)
{
    td__sweep *s;
    CHECK_OK(td__sweep_parse(text, strlen(text), "sweep", &s));
    return s;
}

TEST(a_grid_has_all_combinations_once)
{
    td__sweep *s = plan("search: grid\nspace: {a: [1, 2, 3], b: [x, y]}\nspec: {algorithm: t}\n");
    char va[TD__SWEEP_VALUE], vb[TD__SWEEP_VALUE];
    static const char *const WANT[] = {"1x", "1y", "2x", "2y", "3x", "3y"};
    CHECK_EQ_INT(s->trials, 6);
    for (int i = 0; i < 6; i++) {
        td__sweep_value(s, i, 0, va);
        td__sweep_value(s, i, 1, vb);
        CHECK(va[0] == WANT[i][0] && vb[0] == WANT[i][1], "trial %d is %s%s", i, va, vb);
    }
    td__sweep_destroy(s);
}

TEST(drawn_values_lie_in_their_ranges_and_stay)
{
    static const char TEXT[] = "trials: 400\nseed: 7\nspace:\n  u: {uniform: [2, 3]}\n"
                               "  l: {log: [0.0001, 1]}\n  i: {int: [4, 6]}\n  c: [a, b]\n"
                               "spec: {algorithm: t}\n";
    td__sweep *s = plan(TEXT), *again = plan(TEXT);
    char v[TD__SWEEP_VALUE], w[TD__SWEEP_VALUE];
    int ints[3] = {0}, small = 0, as = 0;
    double sum = 0;
    for (int i = 0; i < 400; i++) {
        double u = strtod(td__sweep_value(s, i, 0, v), NULL);
        double l = strtod(td__sweep_value(s, i, 1, v), NULL);
        long k = strtol(td__sweep_value(s, i, 2, v), NULL, 10);
        CHECK(u >= 2 && u <= 3 && l >= 0.000099 && l <= 1 && k >= 4 && k <= 6, "%g %g %ld", u, l,
              k);
        sum += u;
        small += l < 0.01; /* half of the decades */
        ints[k - 4]++;
        as += *td__sweep_value(s, i, 3, v) == 'a';
        for (int d = 0; d < 4; d++)
            CHECK(!strcmp(td__sweep_value(s, i, d, v), td__sweep_value(again, i, d, w)),
                  "trial %d is another one after a restart", i);
    }
    CHECK(fabs(sum / 400 - 2.5) < 0.06, "mean %g", sum / 400);
    CHECK(abs(small - 200) < 45 && abs(as - 200) < 45, "%d small, %d times a", small, as);
    for (int k = 0; k < 3; k++)
        CHECK(abs(ints[k] - 133) < 40, "%d times %d", ints[k], k + 4);
    td__sweep_destroy(s);
    td__sweep_destroy(again);
}

TEST(trials_are_specs_with_their_values)
{
    td__sweep *s = plan("name: s\nsearch: grid\nspace: {train.epochs: [3, 4]}\n"
                        "spec: {job: \"name: x\\n\", sets: [train.batch=8], labels: {a: b}}\n");
    td__job_spec *t;
    CHECK_OK(td__sweep_trial(s, 1, &t));
    CHECK(strcmp(t->name, "s-1") == 0, "%s", t->name);
    CHECK(t->n_sets == 2 && !strcmp(t->sets[0], "train.batch=8") &&
              !strcmp(t->sets[1], "train.epochs=4"),
          "%d sets", t->n_sets);
    CHECK_EQ_INT(t->parameters.n, 0);
    td__spec_destroy(t);
    td__sweep_destroy(s);
    s = plan("{\"search\": \"grid\", \"space\": {\"LR\": [\"0.1\"]}, \"spec\": {\"algorithm\": "
             "\"t\", \"parameters\": {\"LR\": \"9\", \"EPOCHS\": \"2\"}}}");
    CHECK_OK(td__sweep_trial(s, 0, &t));
    CHECK_EQ_INT(t->parameters.n, 2);
    CHECK(!strcmp(td__pairs_get(&t->parameters, "LR"), "0.1") &&
              !strcmp(td__pairs_get(&t->parameters, "EPOCHS"), "2"),
          "parameters");
    td__spec_destroy(t);
    td__sweep_destroy(s);
}

TEST(wrong_plans_are_refused)
{
    static const char *const BAD[][2] = {
        {"spec: {algorithm: t}\n", "space"},
        {"space: {a: [1]}\n", "spec"},
        {"space: {a: 1}\nspec: {algorithm: t}\n", "space.a"},
        {"space: {a: []}\nspec: {algorithm: t}\n", "at least one"},
        {"space: {a: {uniform: [2, 1]}}\nspec: {algorithm: t}\n", "LO < HI"},
        {"space: {a: {log: [0, 1]}}\nspec: {algorithm: t}\n", "above 0"},
        {"space: {a: {int: [0.5, 3]}}\nspec: {algorithm: t}\n", "whole numbers"},
        {"space: {a: {normal: [0, 1]}}\nspec: {algorithm: t}\n", "uniform"},
        {"search: grid\nspace: {a: {int: [1, 3]}}\nspec: {algorithm: t}\n", "grid needs"},
        {"search: best\nspace: {a: [1]}\nspec: {algorithm: t}\n", "search"},
        {"space: {a: [1]}\nspec: {algorihm: t}\n", "algorithm"},
        {"spaces: {a: [1]}\nspec: {algorithm: t}\n", "space"},
        {"[1]", "map"},
        {"{\"space\": ", "sweep:1"},
    };
    td__sweep *s;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        CHECK_STATUS(td__sweep_parse(BAD[i][0], strlen(BAD[i][0]), "sweep", &s), TD_EINVAL);
        CHECK(strstr(td_last_error(), BAD[i][1]), "no '%s' in: %s", BAD[i][1], td_last_error());
    }
}

TEST(metrics_are_found_in_lines)
{
    td__sweep *s = plan("metric: accuracy\nspace: {a: [1]}\nspec: {algorithm: t}\n");
    static const struct {
        const char *line;
        double value; /* -1: none */
        int64_t step;
    } CASES[] = {
        {"{\"kind\":\"eval\",\"step\":8,\"part\":\"valid\",\"metrics\":{\"accuracy\":0.5}}", 0.5,
         8},
        {"{\"kind\":\"eval\",\"step\":8,\"part\":\"test\",\"metrics\":{\"accuracy\":0.5}}", -1, 0},
        {"{\"kind\":\"step\",\"step\":8,\"loss\":2,\"accuracy\":1}", -1, 0},
        {"{\"step\":3,\"accuracy\":0.25}", 0.25, 3},
        {"{\"step\":3,\"metrics\":{\"accuracy\":\"0.75\"}}", 0.75, 3},
        {"{\"accuracy\":\"high\"}", -1, 0},
        {"{\"accuracy\":null}", -1, 0},
        {"not json", -1, 0},
        {"[]", -1, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int64_t step = 0;
        double value = -1;
        bool found = td__sweep_read(s, CASES[i].line, strlen(CASES[i].line), &step, &value);
        CHECK(found == (CASES[i].value >= 0) &&
                  (!found || (fabs(value - CASES[i].value) < 1e-12 && step == CASES[i].step)),
              "%s: %d %g", CASES[i].line, found, value);
    }
    CHECK(!td__sweep_lower(s), "a higher accuracy is better");
    td__sweep_destroy(s);
    s = plan("metric: train_loss\nspace: {a: [1]}\nspec: {algorithm: t}\n");
    int64_t step;
    double value;
    static const char LINE[] = "{\"kind\":\"step\",\"step\":2,\"loss\":1.5}";
    CHECK(td__sweep_read(s, LINE, sizeof LINE - 1, &step, &value) && value > 1.4, "a step's loss");
    CHECK(td__sweep_lower(s), "a lower loss is better");
    td__sweep_destroy(s);
}

/* 27 trials in the order of their quality, worst first or best first, each reporting at every rung
 * it reaches: how many steps are spent, and who is left. */
static int64_t spend(bool worst_first, int *left, int *best_left)
{
    td__sweep *s = plan("search: asha\nmetric: loss\ntrials: 27\nasha: {min_steps: 10, factor: 3}\n"
                        "space: {a: {uniform: [0, 1]}}\nspec: {algorithm: t}\n");
    td__asha a = {0};
    int rung[27] = {0};
    bool alive[27];
    int64_t steps = 0;
    memset(alive, 1, sizeof alive);
    for (int64_t step = 10; step <= 270; step *= 3) {
        for (int i = 0; i < 27; i++) {
            int quality = worst_first ? 27 - i : i; /* the loss */
            if (!alive[i])
                continue;
            steps += step - (step > 10 ? step / 3 : 0);
            alive[i] = td__asha_report(&a, s, step, quality, &rung[i]);
        }
    }
    *left = 0;
    for (int i = 0; i < 27; i++)
        *left += alive[i];
    *best_left = alive[worst_first ? 26 : 0];
    td__asha_fini(&a);
    td__sweep_destroy(s);
    return steps;
}

TEST(asha_keeps_the_best_and_spends_less)
{
    int left, best;
    int64_t good = spend(false, &left, &best);
    CHECK(best && left <= 6, "%d trials are left", left);
    CHECK(good < 27 * 270 / 3, "%lld steps of %d", (long long)good, 27 * 270);
    int64_t bad = spend(true, &left, &best);
    CHECK(best, "the best trial came last, and was stopped");
    CHECK(bad <= 27 * 270, "%lld steps", (long long)bad);
}

TEST(asha_counts_skipped_rungs_and_loaded_values)
{
    td__sweep *s = plan("search: asha\nmetric: accuracy\nasha: {min_steps: 10, factor: 2}\n"
                        "space: {a: [1]}\nspec: {algorithm: t}\n");
    td__asha a = {0};
    int first = 0, second = 0;
    CHECK(td__asha_report(&a, s, 5, 0.9, &first) && first == 0, "before the first rung");
    CHECK(td__asha_report(&a, s, 45, 0.9, &first) && first == 3, "rungs 10, 20, 40");
    CHECK(td__asha_report(&a, s, 45, 0.9, &first) && first == 3, "each rung once");
    CHECK(!td__asha_report(&a, s, 12, 0.1, &second), "worse than the best half");
    CHECK_OK(td__asha_put(&a, 5, 0.5));
    CHECK(a.n_rungs == 6 && a.rungs[5].n == 1 && a.rungs[4].n == 0, "a loaded value");
    td__asha_fini(&a);
    td__sweep_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grid_has_all_combinations_once),
        cmocka_unit_test(drawn_values_lie_in_their_ranges_and_stay),
        cmocka_unit_test(trials_are_specs_with_their_values),
        cmocka_unit_test(wrong_plans_are_refused),
        cmocka_unit_test(metrics_are_found_in_lines),
        cmocka_unit_test(asha_keeps_the_best_and_spends_less),
        cmocka_unit_test(asha_counts_skipped_rungs_and_loaded_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
