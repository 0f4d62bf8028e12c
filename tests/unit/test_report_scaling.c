/* test_report_scaling.c -- speed-up, efficiency and shares of a run on several ranks, from files
 * whose numbers are known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "support/check.h"
#include "run/report_scaling.h"

enum { STEPS = 100 };

/* The metrics of a run in check_path(name): steps take step_s, but for every tenth, which takes
 * twice as long. Rank r computes for (r + 1) tenths of a step and waits for the rest of half. */
static void make_run(const char *name, const char *job, int ranks, int threads, double step_s,
                     const char *end)
{
    char path[512], line[512];
    td__text t = {0};

    CHECK(mkdir(check_path(name), 0777) == 0, "%s", name);
    snprintf(line, sizeof line,
             "{\"kind\": \"begin\", \"step\": 1, \"batch\": 64, \"threads\": %d, \"ranks\": %d, "
             "\"job\": \"%s\"}\n",
             threads, ranks, job);
    td__text_add(&t, line);
    double seconds = 0;
    for (int i = 1; i <= STEPS; i++) {
        double s = i % 10 ? step_s : 2 * step_s;
        seconds += s;
        snprintf(line, sizeof line,
                 "{\"kind\": \"step\", \"step\": %d, \"loss\": 1, \"samples\": 64, \"seconds\": "
                 "%.9g, \"data_wait\": 0}\n",
                 i, s);
        td__text_add(&t, line);
    }
    static const struct {
        const char *key;
        double first, more; /* of `seconds`, for rank 0 and for each rank after it */
    } PARTS[] = {{"seconds", 1, 0},   {"compute", 0.1, 0.1}, {"update", 0.05, 0}, {"comm", 0.2, 0},
                 {"wait", 0.5, -0.1}, {"data", 0.1, 0},      {"blame", 0.1, 0.2}};
    snprintf(line, sizeof line, "{\"kind\": \"ranks\", \"step\": %d, \"steps\": %d", STEPS, STEPS);
    td__text_add(&t, line);
    for (int k = 0; k < TD_LEN(PARTS); k++) {
        td__text_printf(&t, ", \"%s\": [", PARTS[k].key);
        for (int r = 0; r < ranks; r++)
            td__text_printf(&t, "%s%.9g", r ? ", " : "",
                            seconds * (PARTS[k].first + r * PARTS[k].more));
        td__text_add(&t, "]");
    }
    td__text_add(&t, ranks == 1 ? ", \"nbytes\": [0], \"plain_nbytes\": [0]"
                                : ", \"nbytes\": [100000, 300000], \"plain_nbytes\": [1e6, 1e6]");
    td__text_add(&t, ", \"memory\": [1e6, 2e6]}\n");
    if (end)
        td__text_printf(&t, "{\"kind\": \"end\", \"step\": %d, \"end\": \"%s\"}\n", STEPS, end);
    CHECK_OK(td__text_status(&t));
    snprintf(path, sizeof path, "%s/metrics.jsonl", check_path(name));
    check_write_file(path, t.data, t.used);
    td__text_fini(&t);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static void scaling_of(const char *name, td__baseline *b, td__scaling *s)
{
    td__report_data d;
    char dir[512];

    snprintf(dir, sizeof dir, "%s", check_path(name));
    CHECK_OK(td__report_data_read(dir, &d));
    CHECK_OK(td__baseline_find(dir, &d, b));
    CHECK_OK(td__scaling_of(&d, b, s));
    td__report_data_fini(&d);
}

static void check_base(const td__baseline *b, const char *want)
{
    const char *slash = strrchr(b->dir, '/');
    CHECK(want ? slash && strcmp(slash + 1, want) == 0 : !*b->dir, "found '%s', not %s", b->dir,
          want ? want : "none");
}

TEST(numbers)
{
    td__baseline b;
    td__scaling s;

    check_tmpdir();
    make_run("two", "abc", 2, 1, 0.010, "done");
    make_run("other-job", "abd", 1, 1, 0.001, "done");
    make_run("more-ranks", "abc", 3, 1, 0.001, "done");

    /* Nothing to measure by: 0.3 of all seconds is compute, 0.05 update; a mean step is 11 ms. */
    scaling_of("two", &b, &s);
    check_base(&b, NULL);
    CHECK(s.estimated && near(s.speedup, 0.35 * 11 / 10), "speed-up %g", s.speedup);
    CHECK(near(s.efficiency, s.speedup / 2), "efficiency %g", s.efficiency);
    CHECK(near(s.step_s, 0.010) && near(s.p95_s, 0.020), "steps of %g, %g", s.step_s, s.p95_s);
    CHECK(near(s.samples_per_second, 6400), "%g samples/s", s.samples_per_second);
    CHECK(near(s.step_nbytes, 2000) && near(s.saved, 5), "%g bytes, %g", s.step_nbytes, s.saved);
    /* Rank 0: 0.25 of its seconds are in no other part, so all of comm (0.2) is exposed. */
    CHECK(s.hidden == 0, "%g hidden", s.hidden);

    /* Twice the threads, half the step. */
    make_run("one-wide", "abc", 1, 2, 0.012, "done");
    scaling_of("two", &b, &s);
    check_base(&b, "one-wide");
    CHECK(!s.estimated && near(s.speedup, 1.2) && near(s.efficiency, 1.2), "%g, %g", s.speedup,
          s.efficiency);
    make_run("one-killed", "abc", 1, 1, 0.001, NULL);
    make_run("one", "abc", 1, 1, 0.018, "done");
    scaling_of("two", &b, &s);
    check_base(&b, "one");
    CHECK(near(s.speedup, 1.8) && near(s.efficiency, 0.9), "%g, %g", s.speedup, s.efficiency);
    check_tmpdir_remove();
}

TEST(page)
{
    td__report_data d;
    td__text t = {0};
    char dir[512];

    check_tmpdir();
    make_run("two", "abc", 2, 1, 0.010, "done");
    make_run("one", "abc", 1, 1, 0.018, "done");
    snprintf(dir, sizeof dir, "%s", check_path("two"));
    CHECK_OK(td__report_data_read(dir, &d));
    CHECK_OK(td__report_scaling(&t, dir, &d));
    CHECK_OK(td__text_status(&t));
    static const char *const WANT[] = {"1.80x",
                                       "90 %",
                                       "10 ms",
                                       "6.40 k",
                                       "2.00 kB",
                                       "1/5 of f32",
                                       "/one: one rank with 1 thread, 18 ms a step"};
    for (int i = 0; i < TD_LEN(WANT); i++)
        CHECK(strstr(t.data, WANT[i]), "the page lacks %s: %s", WANT[i], t.data);
    CHECK(!strstr(t.data, "nan") && !strstr(t.data, "inf"), "%s", t.data);
    /* The parts of a bar fill it, and do not overflow. */
    for (const char *at = strstr(t.data, "class=\"stack\""); at;
         at = strstr(at + 1, "class=\"stack\"")) {
        const char *end = strstr(at, "</td>");
        double sum = 0, part;
        for (const char *w = at; (w = strstr(w, "width:")) && w < end; w++)
            sum += sscanf(w, "width:%lf", &part) == 1 ? part : 0;
        CHECK(sum > 90 && sum < 100.1, "%g %% of a bar", sum);
    }
    td__report_data_fini(&d);
    td__text_clear(&t);

    snprintf(dir, sizeof dir, "%s", check_path("one"));
    CHECK_OK(td__report_data_read(dir, &d));
    CHECK_OK(td__report_scaling(&t, dir, &d)); /* one rank: nothing to say */
    CHECK_EQ_INT(t.used, 0);
    td__report_data_fini(&d);
    td__text_fini(&t);
    check_tmpdir_remove();
}

/* A run of an older version, which called micro-batches shards. */
TEST(old_run)
{
    td__report_data d;

    CHECK_OK(td__report_data_read("tests/golden/old_run", &d));
    CHECK(d.micro_batches == 4 && d.batch == 16 && d.step.n == 8,
          "%g micro-batches of %g, %d steps", d.micro_batches, d.batch, d.step.n);
    CHECK(strcmp(d.end, "done") == 0, "%s", d.end);
    td__report_data_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(page),
        cmocka_unit_test(old_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
