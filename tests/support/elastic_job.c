/* elastic_job.c -- see elastic_job.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/elastic_job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "support/check.h"
#include "support/train_models.h"

enum { SAMPLES = 90, BATCH = 16 };

static const td__model MODEL = {.build = spirals_build};

static td__data *open_data(void)
{
    td__data *d;
    td__data_opts o = {.source = "spirals",
                       .source_opts = {.count = SAMPLES, .seed = 4},
                       .valid_fraction = 0.2,
                       .test_fraction = 0.1,
                       .seed = 4};
    CHECK_OK(td__data_open(&o, &d));
    return d;
}

elastic_plan elastic_job(int size)
{
    elastic_plan p = {.model = &MODEL, .data = open_data(), .size = size};
    p.opts = (td__train_opts){.batch = BATCH,
                              .steps = ELASTIC_JOB_STEPS,
                              .threads = 1,
                              .micro_batches = 8,
                              .valid_every = 2,
                              .eval_batch = 8,
                              .prefetch = -1,
                              .seed = 7,
                              .test = true,
                              .job_digest = "ab",
                              .optim = {.name = "adam", .lr = 0.02, .clip_norm = 0.7},
                              .schedule = {.name = "plateau", .patience = -1},
                              .checkpoint_every = 2};
    return p;
}

elastic_end elastic_job_quiet;

void elastic_job_expect(const elastic_plan *plan, const elastic_end *end)
{
    CHECK(!end->failure, "%s: %s", plan->faults ? plan->faults : "", end->text);
    CHECK(end->finished > 0, "%s: nobody finished", plan->faults ? plan->faults : "");
    CHECK(strcmp(end->result.digest, elastic_job_quiet.result.digest) == 0, "%s: other weights",
          plan->faults ? plan->faults : "");
    CHECK(end->result.best == elastic_job_quiet.result.best &&
              end->result.best_step == elastic_job_quiet.result.best_step &&
              end->result.train_loss == elastic_job_quiet.result.train_loss &&
              end->result.end == elastic_job_quiet.result.end,
          "%s: best %a at %d, loss %a", plan->faults ? plan->faults : "", end->result.best,
          (int)end->result.best_step, end->result.train_loss);
    CHECK(end->test.n == elastic_job_quiet.test.n &&
              end->test.value[0] == elastic_job_quiet.test.value[0],
          "%s: other test loss", plan->faults ? plan->faults : "");
    if (plan->dir)
        elastic_check_metrics(plan->dir, ELASTIC_JOB_STEPS);
}

void elastic_job_run_in(elastic_plan *plan, const char *dir, elastic_end *end)
{
    static char checkpoints[512];
    plan->dir = dir;
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", plan->dir);
    plan->opts.checkpoint_dir = checkpoints;
    elastic_run(plan, end);
}

void elastic_job_run(elastic_plan *plan, elastic_end *end)
{
    elastic_job_run_in(plan, check_tmpdir(), end);
}

void elastic_job_check_saved(const elastic_plan *plan)
{
    td__checkpoint_info info;
    CHECK_OK(td__checkpoint_find(plan->opts.checkpoint_dir, NULL, &info));
    CHECK_EQ_INT(info.state.step, ELASTIC_JOB_STEPS);
    CHECK(strcmp(info.state.digest, elastic_job_quiet.result.digest) == 0,
          "another digest on disk");
    CHECK_OK(td__checkpoint_find(plan->opts.checkpoint_dir, "best", &info));
    CHECK_EQ_INT(info.state.step, elastic_job_quiet.result.best_step);
}

int elastic_job_quiet_run(void **state)
{
    elastic_plan plan = elastic_job(1);
    (void)state;
    elastic_job_run(&plan, &elastic_job_quiet);
    CHECK(elastic_job_quiet.finished == 1 && isfinite(elastic_job_quiet.result.best), "%s",
          elastic_job_quiet.text);
    elastic_check_metrics(plan.dir, ELASTIC_JOB_STEPS);
    elastic_job_check_saved(&plan);
    check_tmpdir_remove();
    td__data_close(plan.data);
    return 0;
}
