/* Elastic training, with threads as processes: ranks die at every communication call, while a state
 * is being transferred, together, and all but one. Every case ends with the weights, metrics and
 * decisions of a quiet run, and metrics.jsonl has every step once. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <stdio.h>

#include "support/check.h"
#include "support/elastic_job.h"

TEST(any_number_of_ranks)
{
    for (int n = 1; n <= 5; n++) {
        elastic_plan plan = elastic_job(n);
        elastic_end end;
        elastic_job_run(&plan, &end);
        elastic_job_expect(&plan, &end);
        elastic_job_check_saved(&plan);
        CHECK_EQ_INT(end.finished, n);
        CHECK_EQ_INT(end.generations, 1);
        check_tmpdir_remove();
        td__data_close(plan.data);
    }
}

/* A kill at every call of every step, of every rank, with and without a new process in its place,
 * which may become rank 0. Returns how many calls there were. */
static int sweep(const char *where, int rank, int number, int variant)
{
    for (int k = 1;; k++) {
        elastic_plan plan = elastic_job(3);
        elastic_end end;
        char faults[128];
        snprintf(faults, sizeof faults, "kill rank=%d at=%s:%d:comm:%d", rank, where, number, k);
        plan.faults = faults;
        plan.replace = (k + variant) % 2;
        plan.newest_first = (k + variant) / 2 % 2;
        elastic_job_run(&plan, &end);
        elastic_job_expect(&plan, &end);
        elastic_job_check_saved(&plan);
        CHECK(end.died <= 1, "%d died", end.died);
        check_tmpdir_remove();
        td__data_close(plan.data);
        if (!end.died)
            return k - 1;
        CHECK_EQ_INT(end.finished, plan.replace ? 3 : 2);
        CHECK(end.generations >= 2, "%d generations", (int)end.generations);
    }
}

TEST(a_rank_dies_at_any_call_of_a_step)
{
    for (int rank = 0; rank < 3; rank++)
        for (int step = 1; step <= 3; step++) {
            int calls = sweep("step", rank, step, rank + step);
            CHECK(calls >= (step == 2 ? 3 : 2), "only %d calls in step %d", calls, step);
        }
}

TEST(a_rank_dies_while_the_first_generation_forms)
{
    for (int rank = 0; rank < 3; rank++)
        CHECK(sweep("generation", rank, 1, rank) >= 2, "nothing happened");
}

TEST(a_rank_dies_as_the_run_ends)
{
    for (int rank = 0; rank < 3; rank++)
        CHECK(sweep("step", rank, ELASTIC_JOB_STEPS, rank) >= 5, "nothing happened");
}

/* Generation 2 is the one that recovers from the first fault: it is hit as well. */
TEST(ranks_die_while_the_state_is_transferred)
{
    for (int rank = 0; rank < 4; rank++)
        for (int k = 1; k <= 6; k++) {
            elastic_plan plan = elastic_job(4);
            elastic_end end;
            char faults[256];
            snprintf(faults, sizeof faults,
                     "kill rank=%d at=step:3:comm:%d; kill rank=%d at=generation:2:comm:%d",
                     (rank + 1) % 4, 1 + k % 2, rank, k);
            plan.faults = faults;
            plan.replace = rank % 2;
            plan.newest_first = k % 2;
            elastic_job_run(&plan, &end);
            elastic_job_expect(&plan, &end);
            elastic_job_check_saved(&plan);
            CHECK(end.died >= 1 && end.died <= 2, "%d died", end.died);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

TEST(all_but_one_die)
{
    static const char *const FAULTS[] = {
        "kill rank=0 at=step:1; kill rank=0 at=step:3; kill rank=0 at=step:5",
        "kill rank=3 at=step:1; kill rank=2 at=step:3:comm:2; kill rank=1 at=step:6:comm:3",
        "kill rank=1 at=step:1; kill rank=1 at=step:3:barrier; kill rank=0 at=step:5:allreduce",
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        elastic_plan plan = elastic_job(4);
        elastic_end end;
        plan.faults = FAULTS[i];
        elastic_job_run(&plan, &end);
        elastic_job_expect(&plan, &end);
        elastic_job_check_saved(&plan);
        CHECK_EQ_INT(end.finished, 1);
        CHECK_EQ_INT(end.died, 3);
        check_tmpdir_remove();
        td__data_close(plan.data);
    }
}

/* Several in the same step: how many of them it reaches is a matter of time. */
TEST(ranks_die_together)
{
    static const char *const FAULTS[] = {
        "kill rank=0 at=step:2:comm:1; kill rank=1 at=step:2:comm:1; kill rank=2 at=step:2:comm:1",
        "kill rank=1 at=step:3; kill rank=2 at=step:3; kill rank=3 at=step:3",
        "kill rank=0 at=step:4; kill rank=1 at=step:4:barrier; kill rank=3 at=step:4:comm:2",
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++)
        for (int replace = 0; replace < 2; replace++) {
            elastic_plan plan = elastic_job(4);
            elastic_end end;
            plan.faults = FAULTS[i];
            plan.replace = replace;
            elastic_job_run(&plan, &end);
            elastic_job_expect(&plan, &end);
            elastic_job_check_saved(&plan);
            CHECK_EQ_INT(end.finished, replace ? 4 : 4 - end.died);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

/* The only one dies: the new one has nothing but the disk. */
TEST(all_die_and_the_disk_is_left)
{
    for (int step = 1; step <= ELASTIC_JOB_STEPS; step++)
        for (int k = 0; k < 2; k++) {
            elastic_plan plan = elastic_job(1 + k);
            elastic_end end;
            char faults[128];
            snprintf(faults, sizeof faults, "kill rank=0 at=step:%d; kill rank=1 at=step:%d", step,
                     step);
            plan.faults = faults;
            plan.replace = true;
            elastic_job_run(&plan, &end);
            elastic_job_expect(&plan, &end);
            elastic_job_check_saved(&plan);
            CHECK(end.died >= 1 && end.died <= 1 + k, "%d died", end.died);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks),
        cmocka_unit_test(a_rank_dies_at_any_call_of_a_step),
        cmocka_unit_test(a_rank_dies_while_the_first_generation_forms),
        cmocka_unit_test(a_rank_dies_as_the_run_ends),
        cmocka_unit_test(ranks_die_while_the_state_is_transferred),
        cmocka_unit_test(all_but_one_die),
        cmocka_unit_test(ranks_die_together),
        cmocka_unit_test(all_die_and_the_disk_is_left),
    };
    return cmocka_run_group_tests(tests, elastic_job_quiet_run, NULL);
}
