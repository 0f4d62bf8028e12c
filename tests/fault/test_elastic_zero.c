/* Elastic training with shards (parallel.zero 1, 2, 3), with threads as processes: ranks die at
 * every communication call, also while shards are on their way to a new world; the world grows and
 * shrinks; two ranks that hold the same slice die at once. Every case ends with the weights of a
 * quiet run on one rank. That shards came from mirrors, and not from the beginning of the run with
 * the same bits, is told by the log: no line says that the run goes back. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"
#include "support/elastic_world.h"
#include "tandem/log.h"
#include "tandem/ops.h"
#include "tandem/tandem.h"
#include "checkpoint/checkpoint.h"

enum { STEPS = 4 };

/* Tensors that are cut, running averages, random numbers, and a table, row-sparse or not. */
static bool row_sparse = true, dense = false;

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    td_nn_embedding_opts sparse = {.sparse = *(const bool *)user};
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 2));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_nn_batch_norm(g, "norm", td_nn_linear(g, "one", x, 60, NULL), NULL);
    h = td_nn_dropout(g, td_relu(g, h), 0.1);
    h = td_relu(g, td_nn_linear(g, "two", h, 90, NULL));
    h = td_add(g, h, td_nn_embedding(g, "table", y, 7, 90, &sparse));
    td_node *logits = td_nn_linear(g, "three", h, 3, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

/* More than a bucket of the default size. */
static td_status build_wide(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 2));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_relu(g, td_nn_linear(g, "one", x, 600, NULL));
    h = td_relu(g, td_nn_linear(g, "two", h, 1800, NULL));
    td_node *logits = td_nn_linear(g, "three", h, 3, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static const td__model WIDE = {.build = build_wide};
static const td__model MODEL = {.build = build, .user = &row_sparse};
static const td__model DENSE = {.build = build, .user = &dense};

static elastic_plan new_plan(int stage, int size)
{
    elastic_plan p = {.model = &MODEL, .size = size};
    td__data_opts o = {.source = "spirals",
                       .source_opts = {.count = 42, .seed = 4},
                       .valid_fraction = 0.1,
                       .test_fraction = 0.1,
                       .seed = 4};
    CHECK_OK(td__data_open(&o, &p.data));
    p.opts = (td__train_opts){.batch = 12,
                              .steps = STEPS,
                              .threads = 1,
                              .micro_batches = 4,
                              .valid_every = 2,
                              .eval_batch = 6,
                              .prefetch = -1,
                              .seed = 7,
                              .test = true,
                              .job_digest = "ab",
                              .sync.zero = stage,
                              .sync.bucket_nbytes = 16384,
                              .optim = {.name = "adam", .lr = 0.02, .clip_norm = 0.7},
                              .schedule = {.name = "plateau", .patience = -1},
                              .checkpoint_every = 2};
    return p;
}

static elastic_end quiet;
static atomic_int back; /* lines that say that the run goes back */

static void count_lines(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)level;
    (void)part;
    if (strstr(line, "the run goes back to step"))
        atomic_fetch_add(&back, 1);
}

static void expect(const elastic_plan *plan, const elastic_end *end, const elastic_end *want)
{
    const char *what = plan->faults ? plan->faults : "";
    int stage = plan->opts.sync.zero;
    CHECK(!end->failure, "stage %d, %s: %s", stage, what, end->text);
    CHECK(end->finished > 0, "stage %d, %s: nobody finished", stage, what);
    CHECK(strcmp(end->result.digest, want->result.digest) == 0, "stage %d, %s: other weights",
          stage, what);
    CHECK(end->result.best == want->result.best &&
              end->result.train_loss == want->result.train_loss,
          "stage %d, %s: best %a, loss %a", stage, what, end->result.best, end->result.train_loss);
    CHECK(end->test.value[0] == want->test.value[0], "stage %d, %s: other test loss", stage, what);
}

/* Without checkpoints: what is not in memory is lost. */
static void run_in_memory(elastic_plan *plan, elastic_end *end)
{
    atomic_store(&back, 0);
    elastic_run(plan, end);
    expect(plan, end, &quiet);
    CHECK(atomic_load(&back) == 0, "stage %d, %s: the run went back", plan->opts.sync.zero,
          plan->faults ? plan->faults : "");
    td__data_close(plan->data);
}

/* With metrics and checkpoints, in a directory of its own. */
static void run_on_disk(elastic_plan *plan, elastic_end *end)
{
    char checkpoints[512];
    td__checkpoint_info info;
    plan->dir = check_tmpdir();
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", plan->dir);
    plan->opts.checkpoint_dir = checkpoints;
    atomic_store(&back, 0);
    elastic_run(plan, end);
    expect(plan, end, &quiet);
    elastic_check_metrics(plan->dir, STEPS);
    CHECK_OK(td__checkpoint_find(checkpoints, NULL, &info));
    CHECK_EQ_INT(info.state.step, STEPS);
    CHECK(strcmp(info.state.digest, quiet.result.digest) == 0, "another digest on disk");
    CHECK_OK(td__checkpoint_find(checkpoints, "best", &info));
    CHECK_EQ_INT(info.state.step, quiet.result.best_step);
    check_tmpdir_remove();
    td__data_close(plan->data);
}

static int make_quiet(void **state)
{
    elastic_plan plan = new_plan(0, 1);
    (void)state;
    elastic_run(&plan, &quiet);
    CHECK(quiet.finished == 1 && isfinite(quiet.result.best), "%s", quiet.text);
    td__data_close(plan.data);
    td_log_set_sink(count_lines, NULL);
    return 0;
}

TEST(any_number_of_ranks)
{
    for (int stage = 1; stage <= 3; stage++)
        for (int n = 1; n <= 5; n++) {
            elastic_plan plan = new_plan(stage, n);
            elastic_end end;
            run_on_disk(&plan, &end);
            CHECK_EQ_INT(end.finished, n);
            CHECK_EQ_INT(end.generations, 1);
        }
}

/* A kill at every call of a step or generation, or at some, of one rank after the other, with and
 * without a new process in its place, which may become rank 0. Returns how many there were. */
static int sweep(int stage, const char *where, int number, int every)
{
    for (int k = 1;; k += every) {
        elastic_plan plan = new_plan(stage, 3);
        elastic_end end;
        char faults[128];
        int rank = (k / every + stage + number) % 3;
        snprintf(faults, sizeof faults, "kill rank=%d at=%s:%d:comm:%d", rank, where, number, k);
        plan.faults = faults;
        plan.replace = k / every % 2;
        plan.newest_first = k / every / 2 % 2;
        run_in_memory(&plan, &end);
        CHECK(end.died <= 1, "%d died", end.died);
        if (!end.died)
            return k - 1;
        CHECK_EQ_INT(end.finished, plan.replace ? 3 : 2);
        CHECK(end.generations >= 2, "%d generations", (int)end.generations);
    }
}

static void sweep_steps(int stage)
{
    for (int step = 1; step <= 3; step++) {
        int calls = sweep(stage, "step", step, 1);
        CHECK(calls >= 8, "stage %d: only %d calls in step %d", stage, calls, step);
    }
}

TEST(a_rank_dies_at_any_call_of_a_step_at_stage_1)
{
    sweep_steps(1);
}

TEST(a_rank_dies_at_any_call_of_a_step_at_stage_2)
{
    sweep_steps(2);
}

TEST(a_rank_dies_at_any_call_of_a_step_at_stage_3)
{
    sweep_steps(3);
}

TEST(a_rank_dies_as_the_run_begins_or_ends)
{
    for (int stage = 1; stage <= 3; stage++) {
        CHECK(sweep(stage, "generation", 1, 1) >= 2, "nothing happened");
        CHECK(sweep(stage, "step", STEPS, 3) >= 8, "nothing happened");
    }
}

/* Generation 2 recovers from the first fault, generation 3, if replaced, takes in a new process: a
 * second one dies there, before or after it got its shards. Two losses so close to each other may
 * cost both holders of a slice: then the checkpoint is what is left. */
TEST(ranks_die_while_shards_are_moved)
{
    for (int stage = 1; stage <= 3; stage++)
        for (int rank = 0; rank < 3; rank++)
            for (int k = 1 + 2 * rank; k <= 30; k += 5) {
                elastic_plan plan = new_plan(stage, 4);
                elastic_end end;
                char faults[256];
                snprintf(faults, sizeof faults,
                         "kill rank=%d at=step:3:comm:%d; kill rank=%d at=generation:%d:comm:%d",
                         (rank + 1) % 4, 1 + k % 5, rank, 2 + k % 2, k);
                plan.faults = faults;
                plan.replace = k % 2;
                plan.newest_first = k / 2 % 2;
                run_on_disk(&plan, &end);
                CHECK(end.died >= 1 && end.died <= 2, "%d died", end.died);
            }
}

/* Slices that are handed over while ranks leave, and one of those who stay or go dies. */
TEST(a_rank_dies_while_shards_are_handed_over)
{
    for (int stage = 1; stage <= 3; stage++)
        for (int rank = 0; rank < 3; rank++)
            for (int k = 8 + rank; k <= 40; k += 7) {
                elastic_plan plan = new_plan(stage, 3);
                elastic_end end;
                char faults[128];
                snprintf(faults, sizeof faults, "kill rank=%d at=step:1:comm:%d", rank, k);
                plan.faults = faults;
                plan.change[0].step = 1;
                plan.change[0].size = 2;
                run_on_disk(&plan, &end);
            }
}

/* One after the other, down to one rank: every slice comes from a mirror in between. */
TEST(all_but_one_die)
{
    static const char *const FAULTS[] = {
        "kill rank=0 at=step:1; kill rank=0 at=step:3; kill rank=1 at=step:4",
        "kill rank=3 at=step:1:comm:5; kill rank=2 at=step:3:comm:2; kill rank=1 at=step:4:comm:3",
        "kill rank=1 at=step:1; kill rank=1 at=step:3:allreduce; kill rank=0 at=step:4:send",
    };
    for (int stage = 1; stage <= 3; stage++)
        for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
            elastic_plan plan = new_plan(stage, 4);
            elastic_end end;
            plan.faults = FAULTS[i];
            run_in_memory(&plan, &end);
            CHECK_EQ_INT(end.finished, 1);
            CHECK_EQ_INT(end.died, 3);
        }
}

/* A rank dies, and who mirrors it with it: that slice is nowhere but on disk. Not at its first call
 * of the step: only after it is it sure that the survivors have the step before, and lose it. */
TEST(both_holders_of_a_slice_die)
{
    for (int stage = 1; stage <= 3; stage++)
        for (int rank = 0; rank < 3; rank++)
            for (int disk = 0; disk < 2; disk++) {
                elastic_plan plan = new_plan(stage, 4);
                elastic_end end;
                char faults[128];
                snprintf(faults, sizeof faults, "kill rank=%d at=step:4:comm:%d", rank,
                         2 + 4 * rank);
                plan.faults = faults;
                plan.takes_next = true;
                plan.replace = disk;
                if (disk) {
                    run_on_disk(&plan, &end);
                } else { /* from the beginning */
                    atomic_store(&back, 0);
                    elastic_run(&plan, &end);
                    expect(&plan, &end, &quiet);
                    td__data_close(plan.data);
                }
                CHECK_EQ_INT(end.died, 2);
                CHECK_EQ_INT(end.finished, disk ? 3 : 2);
                CHECK(atomic_load(&back) == 1, "%d lines about a slice that is lost",
                      atomic_load(&back));
            }
}

TEST(the_world_grows_and_shrinks)
{
    static const struct {
        int from, to[3], finished;
    } CASES[] = {{2, {4, 0, 0}, 4}, {4, {1, 0, 0}, 1}, {1, {3, 2, 0}, 2}, {3, {1, 4, 2}, 2}};
    for (int stage = 1; stage <= 3; stage++)
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
            for (int newest = 0; newest < 2; newest++) {
                elastic_plan plan = new_plan(stage, CASES[i].from);
                elastic_end end;
                for (int k = 0; k < 3; k++) {
                    plan.change[k].step = (uint64_t)(1 + k);
                    plan.change[k].size = CASES[i].to[k];
                }
                plan.newest_first = newest;
                run_in_memory(&plan, &end);
                CHECK_EQ_INT(end.finished, CASES[i].finished);
            }
}

TEST(a_process_that_is_asked_to_stop_hands_over_its_shards)
{
    for (int stage = 1; stage <= 3; stage++)
        for (int n = 2; n <= 3; n++) {
            elastic_plan plan = new_plan(stage, n);
            elastic_end end;
            plan.stop_one_after = 2;
            run_in_memory(&plan, &end);
            CHECK_EQ_INT(end.drained, 1);
            CHECK_EQ_INT(end.finished, n - 1);
        }
}

/* Shards in memory that the host cannot touch: they come from mirrors, are handed over, go to those
 * who join, and are loaded. */
TEST(shards_in_memory_of_a_device)
{
    static const char *const FAULTS[] = {"kill rank=0 at=step:2:comm:3", NULL, NULL,
                                         "kill rank=0 at=step:3; kill rank=1 at=step:3"};
    static const int CHANGE[] = {0, 3, 1, 0};
    for (int stage = 1; stage <= 3; stage++)
        for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
            elastic_plan plan = new_plan(stage, 2);
            elastic_end end;
            plan.opts.backend = "far";
            plan.faults = FAULTS[i];
            plan.replace = true;
            plan.change[0].step = 1;
            plan.change[0].size = CHANGE[i];
            run_on_disk(&plan, &end);
            CHECK(end.generations > 1, "stage %d, case %zu: one generation", stage, i);
        }
}

/* Where the job does not say how large buckets are, those of a device are others at stage 1: what
 * ranks hold, and what is moved when the world changes, is cut alike. */
TEST(buckets_of_a_device)
{
    elastic_plan alone = new_plan(0, 1);
    elastic_end one, end;
    alone.model = &WIDE;
    elastic_run(&alone, &one);
    td__data_close(alone.data);
    CHECK(!one.failure, "%s", one.text);
    elastic_plan plan = new_plan(1, 3);
    plan.model = &WIDE;
    plan.opts.backend = "far";
    plan.opts.sync.bucket_nbytes = 0;
    plan.faults = "kill rank=1 at=step:2:comm:3";
    atomic_store(&back, 0);
    elastic_run(&plan, &end);
    expect(&plan, &end, &one);
    CHECK(atomic_load(&back) == 0, "the run went back");
    td__data_close(plan.data);
}

/* Those that look at whole tensors, or have no state. */
TEST(every_optimizer_can_be_mirrored)
{
    static const char *const NAMES[] = {"lamb", "lars", "adamw", "rmsprop", "adagrad"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        elastic_plan alone = new_plan(0, 1);
        elastic_end one, end;
        alone.opts.optim.name = NAMES[i];
        alone.model = &DENSE; /* not all take row-sparse gradients */
        elastic_run(&alone, &one);
        td__data_close(alone.data);
        CHECK(!one.failure, "%s", one.text);
        for (int stage = 1; stage <= 3; stage++)
            for (int k = 4; k < 16; k += 5) {
                elastic_plan plan = new_plan(stage, 3);
                char faults[64];
                snprintf(faults, sizeof faults, "kill rank=%d at=step:2:comm:%d", k % 3, k);
                plan.opts.optim.name = NAMES[i];
                plan.model = alone.model;
                plan.faults = faults;
                atomic_store(&back, 0);
                elastic_run(&plan, &end);
                expect(&plan, &end, &one);
                CHECK(atomic_load(&back) == 0, "%s: the run went back", NAMES[i]);
                td__data_close(plan.data);
            }
    }
}

TEST(a_disk_that_is_full_for_a_while)
{
    static const char *const OPS[] = {"model.safetensors", "state.json", "rename", "latest"};
    for (int stage = 1; stage <= 3; stage++)
        for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
            elastic_plan plan = new_plan(stage, 2);
            elastic_end end;
            char faults[128];
            snprintf(faults, sizeof faults, "full rank=0 at=step:2:%s", OPS[i]);
            plan.faults = faults;
            run_on_disk(&plan, &end);
            CHECK_EQ_INT(end.finished, 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks),
        cmocka_unit_test(a_rank_dies_at_any_call_of_a_step_at_stage_1),
        cmocka_unit_test(a_rank_dies_at_any_call_of_a_step_at_stage_2),
        cmocka_unit_test(a_rank_dies_at_any_call_of_a_step_at_stage_3),
        cmocka_unit_test(a_rank_dies_as_the_run_begins_or_ends),
        cmocka_unit_test(ranks_die_while_shards_are_moved),
        cmocka_unit_test(a_rank_dies_while_shards_are_handed_over),
        cmocka_unit_test(all_but_one_die),
        cmocka_unit_test(both_holders_of_a_slice_die),
        cmocka_unit_test(the_world_grows_and_shrinks),
        cmocka_unit_test(a_process_that_is_asked_to_stop_hands_over_its_shards),
        cmocka_unit_test(shards_in_memory_of_a_device),
        cmocka_unit_test(buckets_of_a_device),
        cmocka_unit_test(every_optimizer_can_be_mirrored),
        cmocka_unit_test(a_disk_that_is_full_for_a_while),
    };
    return cmocka_run_group_tests(tests, make_quiet, NULL);
}
