/* Elastic ranks with stages, with threads as processes: ranks die at every communication call of a
 * step, and while state is on its way to a new world; the world grows and shrinks, in other
 * arrangements than the job's where their number wants it. test_elastic_pieces.c has ranks with
 * pieces of layers and with shared states. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow full */
#include "support/elastic_sweep.h"

static const arrangement STAGES[] = {{"pipeline=4", MESH(1, 4, 1), 0, 4},
                                     {"pipeline=2", MESH(1, 2, 1), 0, 2},
                                     {"data=2,pipeline=2", MESH(2, 2, 1), 0, 4}};

TEST(a_stage_dies_at_any_call_of_a_step)
{
    sweep_steps(STAGES, TD_LEN(STAGES));
}

TEST(a_stage_dies_as_the_run_begins)
{
    sweep_generations(STAGES, TD_LEN(STAGES));
}

TEST(the_world_of_a_pipeline_changes)
{
    change_world(STAGES, TD_LEN(STAGES));
}

/* The result is a function of the replicas of each step: the same, whoever is lost in a step and
 * where. */
TEST(a_rank_with_compressed_gradients_dies)
{
    static const char *const NAMES[] = {"bf16", "powersgd"};
    const arrangement *a = &STAGES[2];
    for (size_t i = 0; i < TD_LEN(NAMES); i++) {
        char want[65] = "";
        for (int k = 1; k < 8; k++) {
            elastic_plan plan = new_plan(a);
            elastic_end end;
            char faults[64];
            snprintf(faults, sizeof faults, "kill rank=%d at=step:2:comm:%d", k % a->size, k);
            plan.opts.sync.compressor = NAMES[i];
            plan.faults = faults;
            atomic_store(&back, 0);
            elastic_run(&plan, &end);
            CHECK(!end.failure && end.finished == a->size - 1, "%s, %s: %s", NAMES[i], faults,
                  end.text);
            CHECK(atomic_load(&back) == 0, "%s, %s: the run went back", NAMES[i], faults);
            if (*want)
                CHECK(strcmp(want, end.result.digest) == 0, "%s, %s: other weights", NAMES[i],
                      faults);
            memcpy(want, end.result.digest, sizeof want);
            td__data_close(plan.data);
        }
    }
}

/* Each stage keeps its own up to date: the run goes back, and says so. */
TEST(a_row_sparse_table_is_lost_with_any_rank)
{
    elastic_plan alone = new_plan(NULL);
    elastic_end one, end;
    alone.model = &WITH_TABLE;
    elastic_run(&alone, &one);
    td__data_close(alone.data);
    CHECK(one.finished == 1, "%s", one.text);
    for (int zero = 0; zero < 2; zero++) {
        elastic_plan plan = new_plan(&STAGES[2]);
        plan.model = &WITH_TABLE;
        plan.opts.sync.zero = zero;
        plan.faults = "kill rank=2 at=step:3:comm:4";
        atomic_store(&back, 0);
        elastic_run(&plan, &end);
        td__data_close(plan.data);
        CHECK(!end.failure && end.finished == 3, "zero %d: %s", zero, end.text);
        CHECK(strcmp(end.result.digest, one.result.digest) == 0, "zero %d: other weights", zero);
        CHECK_EQ_INT(atomic_load(&back), 1);
    }
}

/* Memory that the host cannot touch. */
TEST(stages_in_memory_of_a_device)
{
    for (size_t i = 0; i < TD_LEN(STAGES); i++)
        for (int k = 1; k < 24; k += 6) {
            elastic_plan plan = new_plan(&STAGES[i]);
            elastic_end end;
            char faults[64];
            snprintf(faults, sizeof faults, "kill rank=%d at=step:2:comm:%d",
                     k / 6 % STAGES[i].size, k);
            plan.opts.backend = "far";
            plan.faults = faults;
            plan.replace = k % 4 == 1;
            run(&plan, &STAGES[i], &end);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_dies_at_any_call_of_a_step),
        cmocka_unit_test(a_stage_dies_as_the_run_begins),
        cmocka_unit_test(the_world_of_a_pipeline_changes),
        cmocka_unit_test(a_rank_with_compressed_gradients_dies),
        cmocka_unit_test(a_row_sparse_table_is_lost_with_any_rank),
        cmocka_unit_test(stages_in_memory_of_a_device),
    };
    return cmocka_run_group_tests(tests, make_quiet, NULL);
}
