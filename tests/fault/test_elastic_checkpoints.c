/* Elastic training, with threads as processes: rank 0, which writes the checkpoints, goes or dies
 * while it does; the disk is full; a checkpoint is ahead of the others. Every case ends with the
 * weights of a quiet run, and metrics.jsonl has every step once. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/deadline.h"
#include "checkpoint/checkpoint.h"
#include "support/check.h"
#include "support/elastic_job.h"

enum { PATIENCE_MS = 200000 };

/* Rank 0 goes while it writes a checkpoint, because it is asked to, or since there are to be fewer
 * ranks: the checkpoint is there, and nobody writes any more, before there is another rank 0. */
TEST(rank_0_goes_with_all_checkpoints_written)
{
    static const char *const OPS[] = {"model.safetensors", "state.json", "rename", "latest",
                                      "prune"};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        for (int asked = 0; asked < 2; asked++) {
            elastic_plan plan = elastic_job(3);
            elastic_end end;
            char faults[128];
            snprintf(faults, sizeof faults, "stop rank=0 for=1s at=step:2:%s", OPS[i]);
            plan.faults = faults;
            plan.slow_disk_at = 2;
            if (asked)
                plan.stop_one_after = 2;
            else
                plan.change[0].step = 2, plan.change[0].size = 2;
            elastic_job_run(&plan, &end);
            elastic_job_expect(&plan, &end);
            elastic_job_check_saved(&plan);
            CHECK_EQ_INT(end.two_writers, 0);
            CHECK_EQ_INT(end.drained, 1);
            CHECK_EQ_INT(end.finished, 2);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

/* A checkpoint cannot be written for a while; the run goes on, and the last one is there. */
TEST(a_disk_that_is_full_for_a_while)
{
    static const char *const OPS[] = {"model.safetensors", "state.json", "rename", "latest"};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
        elastic_plan plan = elastic_job(2);
        elastic_end end;
        char faults[128];
        snprintf(faults, sizeof faults, "full rank=0 at=step:2:%s", OPS[i]);
        plan.faults = faults;
        elastic_job_run(&plan, &end);
        elastic_job_expect(&plan, &end);
        elastic_job_check_saved(&plan);
        CHECK_EQ_INT(end.finished, 2);
        check_tmpdir_remove();
        td__data_close(plan.data);
    }
}

/* The first validation is the best; rank 0 dies while it writes that one down, and the others have
 * gone on by then: who is rank 0 next has kept it. */
TEST(the_best_checkpoint_outlives_rank_0)
{
    static const char *const OPS[] = {"model.safetensors", "state.json", "rename", "best"};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
        elastic_plan plan = elastic_job(3);
        elastic_end end;
        char faults[128];
        td__checkpoint_info info;
        snprintf(faults, sizeof faults, "kill rank=0 at=step:2:%s", OPS[i]);
        plan.faults = faults;
        plan.opts.min_delta = 100;
        plan.opts.checkpoint_every = -1;
        elastic_job_run(&plan, &end);
        CHECK(!end.failure && end.died == 1 && end.finished == 2, "%s: %s", faults, end.text);
        CHECK(strcmp(end.result.digest, elastic_job_quiet.result.digest) == 0, "%s: other weights",
              faults);
        CHECK_EQ_INT(end.result.best_step, 2);
        CHECK_OK(td__checkpoint_find(plan.opts.checkpoint_dir, "best", &info));
        CHECK(info.state.step == 2, "%s: the best checkpoint is of step %d", faults,
              (int)info.state.step);
        CHECK_OK(td__checkpoint_find(plan.opts.checkpoint_dir, NULL, &info));
        CHECK_EQ_INT(info.state.step, ELASTIC_JOB_STEPS);
        check_tmpdir_remove();
        td__data_close(plan.data);
    }
}

/* After step ahead_at - 1 the directory has the checkpoint of the next one, as if rank 0 had done
 * that step alone. */
static uint64_t ahead_at;

static void put_ahead(const elastic_plan *plan, uint64_t step)
{
    static const char *const NAMES[] = {"best", "latest"};
    char from[600], to[600];
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);

    snprintf(from, sizeof from, "%s/ahead/step-%08d", plan->dir, (int)ahead_at);
    snprintf(to, sizeof to, "%s/latest", plan->opts.checkpoint_dir);
    if (step != ahead_at - 1 || access(from, F_OK) != 0)
        return;
    while (ahead_at > 2 && access(to, F_OK) != 0) /* what rank 0 writes itself is there first */
        CHECK(!td__deadline_passed(until), "no %s", to);
    snprintf(to, sizeof to, "%s/step-%08d", plan->opts.checkpoint_dir, (int)ahead_at);
    CHECK(rename(from, to) == 0, "cannot rename %s", from);
    for (int i = 0; i < 2; i++) { /* replaced, as rank 0 does: its other thread may look there */
        snprintf(from, sizeof from, "%s/%s", plan->dir, NAMES[i]);
        snprintf(to, sizeof to, "%s/%s", plan->opts.checkpoint_dir, NAMES[i]);
        FILE *f = fopen(from, "w");
        CHECK(f && fprintf(f, "step-%08d\n", (int)ahead_at) > 0 && fclose(f) == 0 &&
                  rename(from, to) == 0,
              "no %s", to);
    }
}

/* Rank 0 dies with a checkpoint of a step that nobody else has done, then all others before they
 * have done it: the next ones have the disk alone, and metrics.jsonl still has all steps once. */
TEST(a_checkpoint_that_was_ahead_is_not_gone_on_from)
{
    for (ahead_at = 2; ahead_at <= 4; ahead_at += 2)
        for (int all = 0; all < 2; all++) {
            /* Who dies in generation 2 before it has the lead leaves another with the state. */
            elastic_plan first = elastic_job(1), plan = elastic_job(all ? 2 : 3);
            elastic_end end;
            char faults[160], ahead[600];
            plan.dir = check_tmpdir();
            snprintf(ahead, sizeof ahead, "%s/ahead", plan.dir);
            first.opts.checkpoint_dir = ahead;
            first.stop_all_after = ahead_at - 1;
            elastic_run(&first, &end);
            CHECK(end.result.end == TD_TRAIN_INTERRUPTED && end.result.step == ahead_at, "%s",
                  end.text);
            snprintf(faults, sizeof faults, "kill rank=0 at=step:%d; kill rank=%s", (int)ahead_at,
                     all ? ahead_at == 2 ? "1 at=step:2:comm:2" : "1 at=step:4:comm:2"
                         : "0 at=generation:2:latest");
            plan.faults = faults;
            plan.replace = true;
            plan.all_die_in = all ? 2 : 0;
            plan.rank_0_did = put_ahead;
            elastic_job_run_in(&plan, plan.dir, &end);
            elastic_job_expect(&plan, &end);
            elastic_job_check_saved(&plan);
            CHECK_EQ_INT(end.died, all ? 3 : 2);
            check_tmpdir_remove();
            td__data_close(plan.data);
            td__data_close(first.data);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_goes_with_all_checkpoints_written),
        cmocka_unit_test(a_disk_that_is_full_for_a_while),
        cmocka_unit_test(the_best_checkpoint_outlives_rank_0),
        cmocka_unit_test(a_checkpoint_that_was_ahead_is_not_gone_on_from),
    };
    return cmocka_run_group_tests(tests, elastic_job_quiet_run, NULL);
}
