/* Elastic training, with threads as processes: ranks die at every communication call, all but one
 * die, rank 0 moves, the world grows and shrinks, a process is asked to go; failures while a state
 * is being transferred, in validations and in checkpoints. Every case ends with the weights,
 * metrics and decisions of a quiet run, and metrics.jsonl has every step once. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/deadline.h"
#include "support/check.h"
#include "support/elastic_world.h"
#include "support/sanitized.h"
#include "support/train_models.h"
#include "tandem/log.h"
#include "checkpoint/checkpoint.h"

enum { SAMPLES = 90, BATCH = 16, STEPS = 6, PATIENCE_MS = 200000 };

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

static elastic_plan new_plan(int size)
{
    elastic_plan p = {.model = &MODEL, .data = open_data(), .size = size};
    p.opts = (td__train_opts){.batch = BATCH,
                              .steps = STEPS,
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

static elastic_end quiet;

static void expect(const elastic_plan *plan, const elastic_end *end)
{
    CHECK(!end->failure, "%s: %s", plan->faults ? plan->faults : "", end->text);
    CHECK(end->finished > 0, "%s: nobody finished", plan->faults ? plan->faults : "");
    CHECK(strcmp(end->result.digest, quiet.result.digest) == 0, "%s: other weights",
          plan->faults ? plan->faults : "");
    CHECK(end->result.best == quiet.result.best &&
              end->result.best_step == quiet.result.best_step &&
              end->result.train_loss == quiet.result.train_loss &&
              end->result.end == quiet.result.end,
          "%s: best %a at %d, loss %a", plan->faults ? plan->faults : "", end->result.best,
          (int)end->result.best_step, end->result.train_loss);
    CHECK(end->test.n == quiet.test.n && end->test.value[0] == quiet.test.value[0],
          "%s: other test loss", plan->faults ? plan->faults : "");
    if (plan->dir)
        elastic_check_metrics(plan->dir, STEPS);
}

static void run_in(elastic_plan *plan, const char *dir, elastic_end *end)
{
    static char checkpoints[512];
    plan->dir = dir;
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", plan->dir);
    plan->opts.checkpoint_dir = checkpoints;
    elastic_run(plan, end);
}

/* Run in a directory of its own. */
static void run(elastic_plan *plan, elastic_end *end)
{
    run_in(plan, check_tmpdir(), end);
}

/* The newest checkpoint is that of the last step; nothing half written is left. */
static void check_saved(const elastic_plan *plan)
{
    td__checkpoint_info info;
    CHECK_OK(td__checkpoint_find(plan->opts.checkpoint_dir, NULL, &info));
    CHECK_EQ_INT(info.state.step, STEPS);
    CHECK(strcmp(info.state.digest, quiet.result.digest) == 0, "another digest on disk");
    CHECK_OK(td__checkpoint_find(plan->opts.checkpoint_dir, "best", &info));
    CHECK_EQ_INT(info.state.step, quiet.result.best_step);
}

static int make_quiet(void **state)
{
    elastic_plan plan = new_plan(1);
    (void)state;
    run(&plan, &quiet);
    CHECK(quiet.finished == 1 && isfinite(quiet.result.best), "%s", quiet.text);
    elastic_check_metrics(plan.dir, STEPS);
    check_saved(&plan);
    check_tmpdir_remove();
    td__data_close(plan.data);
    return 0;
}

TEST(any_number_of_ranks)
{
    for (int n = 1; n <= 5; n++) {
        elastic_plan plan = new_plan(n);
        elastic_end end;
        run(&plan, &end);
        expect(&plan, &end);
        check_saved(&plan);
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
        elastic_plan plan = new_plan(3);
        elastic_end end;
        char faults[128];
        snprintf(faults, sizeof faults, "kill rank=%d at=%s:%d:comm:%d", rank, where, number, k);
        plan.faults = faults;
        plan.replace = (k + variant) % 2;
        plan.newest_first = (k + variant) / 2 % 2;
        run(&plan, &end);
        expect(&plan, &end);
        check_saved(&plan);
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
        CHECK(sweep("step", rank, STEPS, rank) >= 5, "nothing happened");
}

/* Generation 2 is the one that recovers from the first fault: it is hit as well. */
TEST(ranks_die_while_the_state_is_transferred)
{
    for (int rank = 0; rank < 4; rank++)
        for (int k = 1; k <= 6; k++) {
            elastic_plan plan = new_plan(4);
            elastic_end end;
            char faults[256];
            snprintf(faults, sizeof faults,
                     "kill rank=%d at=step:3:comm:%d; kill rank=%d at=generation:2:comm:%d",
                     (rank + 1) % 4, 1 + k % 2, rank, k);
            plan.faults = faults;
            plan.replace = rank % 2;
            plan.newest_first = k % 2;
            run(&plan, &end);
            expect(&plan, &end);
            check_saved(&plan);
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
        elastic_plan plan = new_plan(4);
        elastic_end end;
        plan.faults = FAULTS[i];
        run(&plan, &end);
        expect(&plan, &end);
        check_saved(&plan);
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
            elastic_plan plan = new_plan(4);
            elastic_end end;
            plan.faults = FAULTS[i];
            plan.replace = replace;
            run(&plan, &end);
            expect(&plan, &end);
            check_saved(&plan);
            CHECK_EQ_INT(end.finished, replace ? 4 : 4 - end.died);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

/* The only one dies: the new one has nothing but the disk. */
TEST(all_die_and_the_disk_is_left)
{
    for (int step = 1; step <= STEPS; step++)
        for (int k = 0; k < 2; k++) {
            elastic_plan plan = new_plan(1 + k);
            elastic_end end;
            char faults[128];
            snprintf(faults, sizeof faults, "kill rank=0 at=step:%d; kill rank=1 at=step:%d", step,
                     step);
            plan.faults = faults;
            plan.replace = true;
            run(&plan, &end);
            expect(&plan, &end);
            check_saved(&plan);
            CHECK(end.died >= 1 && end.died <= 1 + k, "%d died", end.died);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

TEST(the_world_grows_and_shrinks)
{
    static const struct {
        int from, to[3], finished;
    } CASES[] = {{2, {4, 0, 0}, 4}, {4, {1, 0, 0}, 1}, {1, {3, 2, 0}, 2}, {3, {1, 4, 2}, 2}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int newest = 0; newest < 2; newest++) {
            elastic_plan plan = new_plan(CASES[i].from);
            elastic_end end;
            for (int k = 0; k < 3; k++) {
                plan.change[k].step = (uint64_t)(1 + k);
                plan.change[k].size = CASES[i].to[k];
            }
            plan.newest_first = newest;
            run(&plan, &end);
            expect(&plan, &end);
            check_saved(&plan);
            CHECK_EQ_INT(end.finished, CASES[i].finished);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

TEST(a_process_that_is_asked_to_stop_goes_and_the_others_go_on)
{
    elastic_plan plan = new_plan(3);
    elastic_end end;
    plan.stop_one_after = 2;
    run(&plan, &end);
    expect(&plan, &end);
    CHECK_EQ_INT(end.drained, 1);
    CHECK_EQ_INT(end.finished, 2);
    check_tmpdir_remove();
    td__data_close(plan.data);
}

/* Rank 0 goes while it writes a checkpoint, because it is asked to, or since there are to be fewer
 * ranks: the checkpoint is there, and nobody writes any more, before there is another rank 0. */
TEST(rank_0_goes_with_all_checkpoints_written)
{
    static const char *const OPS[] = {"model.safetensors", "state.json", "rename", "latest",
                                      "prune"};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        for (int asked = 0; asked < 2; asked++) {
            elastic_plan plan = new_plan(3);
            elastic_end end;
            char faults[128];
            snprintf(faults, sizeof faults, "stop rank=0 for=1s at=step:2:%s", OPS[i]);
            plan.faults = faults;
            plan.slow_disk_at = 2;
            if (asked)
                plan.stop_one_after = 2;
            else
                plan.change[0].step = 2, plan.change[0].size = 2;
            run(&plan, &end);
            expect(&plan, &end);
            check_saved(&plan);
            CHECK_EQ_INT(end.two_writers, 0);
            CHECK_EQ_INT(end.drained, 1);
            CHECK_EQ_INT(end.finished, 2);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

/* The job is stopped after step 2, and a rank dies at any call of step 3, in which the others agree
 * on that, or of what they do then to end; a new one, which has not heard of it, takes its place or
 * not. All end after the same step, with its checkpoint. */
static int sweep_stop(int rank, bool replace)
{
    for (int k = 1;; k++) {
        elastic_plan plan = new_plan(3);
        elastic_end end;
        td__checkpoint_info info;
        char faults[128];
        snprintf(faults, sizeof faults, "kill rank=%d at=step:3:comm:%d", rank, k);
        plan.faults = faults;
        plan.replace = replace;
        plan.newest_first = k % 2;
        plan.stop_all_after = 2;
        run(&plan, &end);
        CHECK(!end.failure && end.finished > 0, "%s: %s", faults, end.text);
        CHECK(end.result.end == TD_TRAIN_INTERRUPTED && end.result.step == 3,
              "%s: end %d after step %d", faults, (int)end.result.end, (int)end.result.step);
        CHECK_OK(td__checkpoint_find(plan.opts.checkpoint_dir, NULL, &info));
        CHECK_EQ_INT(info.state.step, 3);
        elastic_check_metrics(plan.dir, 3);
        check_tmpdir_remove();
        td__data_close(plan.data);
        if (!end.died)
            return k - 1;
        CHECK_EQ_INT(end.finished, plan.replace ? 3 : 2);
    }
}

TEST(a_rank_dies_as_all_agree_to_stop)
{
    for (int rank = 0; rank < 3; rank++)
        for (int replace = 0; replace < 2; replace++)
            CHECK(sweep_stop(rank, replace) >= 4, "nothing happened");
}

/* Two results of a micro-batch that differ: the rank that is outvoted goes, the others go on. */
TEST(a_rank_that_computes_wrongly_is_taken_out)
{
    for (int size = 2; size <= 4; size++)
        for (int rank = 0; rank < size; rank += 2) {
            elastic_plan plan = new_plan(size);
            elastic_end end;
            char faults[64];
            snprintf(faults, sizeof faults, "flip rank=%d at=step:3", rank);
            plan.faults = faults;
            plan.opts.verify = 1;
            run(&plan, &end);
            CHECK(end.failure == TD_EIO && strstr(end.text, "wrongly"), "%s: %s",
                  td_status_name(end.failure), end.text);
            CHECK_EQ_INT(end.failed, 1);
            CHECK_EQ_INT(end.finished, size - 1);
            end.failure = TD_OK;
            expect(&plan, &end);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

TEST(verifying_changes_nothing)
{
    for (int n = 2; n <= 3; n++) {
        elastic_plan plan = new_plan(n);
        elastic_end end;
        plan.opts.verify = 0.3 * n;
        plan.faults = n == 3 ? "kill rank=1 at=step:4:comm:1" : NULL;
        run(&plan, &end);
        expect(&plan, &end);
        CHECK_EQ_INT(end.finished, 2);
        check_tmpdir_remove();
        td__data_close(plan.data);
    }
}

static atomic_int dealt; /* lines about micro-batches dealt out anew */

static void count_lines(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)level;
    (void)part;
    if (strstr(line, "micro-batches from step"))
        atomic_fetch_add(&dealt, 1);
}

/* A slow rank has fewer micro-batches after a while, the bits are the same; also when another one
 * dies. It must seem slow in three windows in a row, also beside a rank that has just lost its
 * core. */
TEST(a_slow_rank_gets_fewer_micro_batches)
{
    enum { LONG = 60 };
    elastic_plan alone = new_plan(1);
    elastic_end one, end;
    alone.opts.steps = LONG;
    run(&alone, &one);
    check_tmpdir_remove();
    td_log_set_sink(count_lines, NULL);
    CHECK_OK(td_log_configure("train=debug"));
    for (int even = 0; even < 2; even++) {
        elastic_plan plan = new_plan(3);
        plan.opts.steps = LONG;
        plan.opts.even = even;
        plan.faults = SANITIZED ? "slow rank=1 for=30ms at=step:1; kill rank=0 at=step:40:comm:1"
                                : "slow rank=1 for=10ms at=step:1; kill rank=0 at=step:40:comm:1";
        atomic_store(&dealt, 0);
        run(&plan, &end);
        CHECK(!end.failure && end.finished == 2, "%s", end.text);
        CHECK(strcmp(one.result.digest, end.result.digest) == 0, "other weights");
        CHECK((atomic_load(&dealt) > 0) == !even, "dealt out %d times", atomic_load(&dealt));
        elastic_check_metrics(plan.dir, LONG);
        check_tmpdir_remove();
        td__data_close(plan.data);
    }
    CHECK_OK(td_log_configure("warn"));
    td_log_set_sink(NULL, NULL);
    td__data_close(alone.data);
}

/* A checkpoint cannot be written for a while; the run goes on, and the last one is there. */
TEST(a_disk_that_is_full_for_a_while)
{
    static const char *const OPS[] = {"model.safetensors", "state.json", "rename", "latest"};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
        elastic_plan plan = new_plan(2);
        elastic_end end;
        char faults[128];
        snprintf(faults, sizeof faults, "full rank=0 at=step:2:%s", OPS[i]);
        plan.faults = faults;
        run(&plan, &end);
        expect(&plan, &end);
        check_saved(&plan);
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
        elastic_plan plan = new_plan(3);
        elastic_end end;
        char faults[128];
        td__checkpoint_info info;
        snprintf(faults, sizeof faults, "kill rank=0 at=step:2:%s", OPS[i]);
        plan.faults = faults;
        plan.opts.min_delta = 100;
        plan.opts.checkpoint_every = -1;
        run(&plan, &end);
        CHECK(!end.failure && end.died == 1 && end.finished == 2, "%s: %s", faults, end.text);
        CHECK(strcmp(end.result.digest, quiet.result.digest) == 0, "%s: other weights", faults);
        CHECK_EQ_INT(end.result.best_step, 2);
        CHECK_OK(td__checkpoint_find(plan.opts.checkpoint_dir, "best", &info));
        CHECK(info.state.step == 2, "%s: the best checkpoint is of step %d", faults,
              (int)info.state.step);
        CHECK_OK(td__checkpoint_find(plan.opts.checkpoint_dir, NULL, &info));
        CHECK_EQ_INT(info.state.step, STEPS);
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
            elastic_plan first = new_plan(1), plan = new_plan(all ? 2 : 3);
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
            run_in(&plan, plan.dir, &end);
            expect(&plan, &end);
            check_saved(&plan);
            CHECK_EQ_INT(end.died, all ? 3 : 2);
            check_tmpdir_remove();
            td__data_close(plan.data);
            td__data_close(first.data);
        }
}

/* faults.txt of a run on four ranks, each of which is replaced when it dies; the weights are those
 * of one rank. The steps of the faults are in order. */
static char *faults_of(const char *faults, const elastic_end *one, int steps)
{
    elastic_plan plan = new_plan(4);
    elastic_end end;
    char path[512], *text = NULL, line[256];
    size_t nbytes;
    unsigned long long at, last = 0;

    plan.opts.steps = steps;
    plan.faults = faults;
    plan.replace = true;
    run(&plan, &end);
    CHECK(!end.failure && end.finished > 0, "%s: %s", faults, end.text);
    CHECK(strcmp(one->result.digest, end.result.digest) == 0, "%s: other weights", faults);
    elastic_check_metrics(plan.dir, steps);
    snprintf(path, sizeof path, "%s/faults.txt", plan.dir);
    FILE *f = fopen(path, "r"), *mem = open_memstream(&text, &nbytes);
    CHECK(f && mem, "%s: no %s", faults, path);
    while (fgets(line, sizeof line, f)) {
        const char *step = strstr(line, "at=step:");
        CHECK(step && sscanf(step, "at=step:%llu", &at) == 1 && at > last, "after %llu: %s", last,
              line);
        last = at;
        fputs(line, mem);
    }
    fclose(f);
    fclose(mem);
    check_tmpdir_remove();
    td__data_close(plan.data);
    return text;
}

/* A seed gives the same faults to every run; what the clock gave to one can be had again. */
TEST(faults_can_be_had_again)
{
    enum { LONG = 48, EVERY = 8 };
    static const char *const SEEDS[] = {"seed=5,rate=1/8steps", "seed=6,rate=1/5ms"};
    elastic_plan alone = new_plan(1);
    elastic_end one;
    char path[64] = "/tmp/tandem-faults-XXXXXX", from[80];
    int fd = mkstemp(path);

    CHECK(fd >= 0, "no file");
    snprintf(from, sizeof from, "@%s", path);
    alone.opts.steps = LONG;
    run(&alone, &one);
    check_tmpdir_remove();
    for (int clock = 0; clock < 2; clock++) {
        char *first = faults_of(SEEDS[clock], &one, LONG), *again;
        int lines = 0;
        for (const char *p = first; *p; p++)
            lines += *p == '\n';
        CHECK(clock ? lines > 0 : lines == LONG / EVERY, "%d faults:\n%s", lines, first);
        if (!clock) {
            again = faults_of(SEEDS[clock], &one, LONG);
            CHECK(strcmp(first, again) == 0, "the same seed gave\n%sand\n%s", first, again);
            free(again);
        }
        CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, first, strlen(first), 0) > 0, "cannot write");
        again = faults_of(from, &one, LONG);
        CHECK(strcmp(first, again) == 0, "the file\n%sgave\n%s", first, again);
        free(again);
        free(first);
    }
    close(fd);
    unlink(path);
    td__data_close(alone.data);
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
        cmocka_unit_test(the_world_grows_and_shrinks),
        cmocka_unit_test(a_process_that_is_asked_to_stop_goes_and_the_others_go_on),
        cmocka_unit_test(rank_0_goes_with_all_checkpoints_written),
        cmocka_unit_test(a_rank_dies_as_all_agree_to_stop),
        cmocka_unit_test(a_disk_that_is_full_for_a_while),
        cmocka_unit_test(a_rank_that_computes_wrongly_is_taken_out),
        cmocka_unit_test(verifying_changes_nothing),
        cmocka_unit_test(a_slow_rank_gets_fewer_micro_batches),
        cmocka_unit_test(the_best_checkpoint_outlives_rank_0),
        cmocka_unit_test(a_checkpoint_that_was_ahead_is_not_gone_on_from),
        cmocka_unit_test(faults_can_be_had_again),
    };
    return cmocka_run_group_tests(tests, make_quiet, NULL);
}
