/* Elastic ranks that were started with other options than the rest: they are told which one, and
 * the run goes on without them, with the weights of a run in which they never were. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "support/check.h"
#include "support/elastic_world.h"
#include "support/train_models.h"

enum { SAMPLES = 60, BATCH = 12, STEPS = 6 };

static const td__model MODEL = {.build = spirals_build};

static td__data *open_data(void)
{
    td__data *d;
    td__data_opts o = {
        .source = "spirals", .source_opts = {.count = SAMPLES, .seed = 4}, .seed = 4};
    CHECK_OK(td__data_open(&o, &d));
    return d;
}

static elastic_plan new_plan(td__data *data, int size)
{
    return (elastic_plan){.model = &MODEL,
                          .data = data,
                          .size = size,
                          .opts = {.batch = BATCH,
                                   .steps = STEPS,
                                   .threads = 1,
                                   .micro_batches = 4,
                                   .prefetch = -1,
                                   .seed = 7,
                                   .job_digest = "ab",
                                   .optim = {.name = "adam", .lr = 0.02}}};
}

/* The options of process number ODD. */
enum { ODD = 2 };

static void other_balance(int id, td__train_opts *o)
{
    o->even = id == ODD;
}

static void other_verify(int id, td__train_opts *o)
{
    o->verify = id == ODD ? 0.5 : 0;
}

static void other_patience(int id, td__train_opts *o)
{
    o->patience = id == ODD ? 3 : 0;
}

static void other_job(int id, td__train_opts *o)
{
    o->job_digest = id == ODD ? "cd" : "ab";
}

static const struct {
    void (*differs)(int id, td__train_opts *o);
    const char *text;
} CASES[] = {{other_balance, ": parallel.balance is off, but rank "},
             {other_verify, ": train.verify is 0.5, but rank "},
             {other_patience, ": train.early_stop.patience is 3, but rank "},
             {other_job, ": digest of the job is cd, but rank "}};

static void check(const elastic_plan *plan, const char *text, const char *digest)
{
    elastic_end end;
    elastic_run(plan, &end);
    CHECK(end.failed == 1 && end.failure == TD_EINVAL && strstr(end.text, text),
          "%d failed, %s: %s; expected one: %s", end.failed, td_status_name(end.failure), end.text,
          text);
    CHECK_EQ_INT(end.finished, 2);
    CHECK(strcmp(end.result.digest, digest) == 0, "%s: other weights", text);
}

TEST(a_rank_with_other_options_is_left_out)
{
    td__data *data = open_data();
    elastic_plan quiet = new_plan(data, 1);
    elastic_end end;
    elastic_run(&quiet, &end);
    CHECK(end.finished == 1, "%s", end.text);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        elastic_plan from_start = new_plan(data, 3);
        from_start.differs = CASES[i].differs;
        check(&from_start, CASES[i].text, end.result.digest);
        /* It comes later, and would be rank 0: those that hold the run's state stay. */
        elastic_plan later = new_plan(data, 2);
        later.differs = CASES[i].differs;
        later.newest_first = true;
        later.change[0].step = 2;
        later.change[0].size = 3;
        check(&later, CASES[i].text, end.result.digest);
    }
    td__data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_other_options_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
