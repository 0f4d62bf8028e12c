/* Elastic training, with threads as processes: the world grows and shrinks, ranks are asked to go,
 * slow ones get less to do, those that compute wrongly are taken out, faults can be repeated. Every
 * case ends with the weights of a quiet run, and metrics.jsonl has every step once. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "checkpoint/checkpoint.h"
#include "elastic/elastic.h"
#include "support/check.h"
#include "support/elastic_job.h"
#include "support/sanitized.h"
#include "tandem/log.h"

TEST(the_world_grows_and_shrinks)
{
    static const struct {
        int from, to[3], finished;
    } CASES[] = {{2, {4, 0, 0}, 4}, {4, {1, 0, 0}, 1}, {1, {3, 2, 0}, 2}, {3, {1, 4, 2}, 2}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int newest = 0; newest < 2; newest++) {
            elastic_plan plan = elastic_job(CASES[i].from);
            elastic_end end;
            for (int k = 0; k < 3; k++) {
                plan.change[k].step = (uint64_t)(1 + k);
                plan.change[k].size = CASES[i].to[k];
            }
            plan.newest_first = newest;
            elastic_job_run(&plan, &end);
            elastic_job_expect(&plan, &end);
            elastic_job_check_saved(&plan);
            CHECK_EQ_INT(end.finished, CASES[i].finished);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

TEST(a_process_that_is_asked_to_stop_goes_and_the_others_go_on)
{
    elastic_plan plan = elastic_job(3);
    elastic_end end;
    plan.stop_one_after = 2;
    elastic_job_run(&plan, &end);
    elastic_job_expect(&plan, &end);
    CHECK_EQ_INT(end.drained, 1);
    CHECK_EQ_INT(end.finished, 2);
    check_tmpdir_remove();
    td__data_close(plan.data);
}

/* Data that do not come in time on one process: it leaves and says why, rather than take its peers
 * for lost and try again for ever. */
static const td__dataset_ops *quick_ops;
static atomic_int reads_left;

static td_status late_once(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                           void *const *out)
{
    if (atomic_fetch_sub(&reads_left, 1) == 1)
        return TD_FAIL(TD_ETIMEDOUT, "the file server does not answer");
    return quick_ops->read(d, index, n, draw, out);
}

TEST(a_process_whose_data_do_not_come_leaves)
{
    elastic_plan plan = elastic_job(2);
    elastic_end end;
    td__dataset *train = td__data_part(plan.data, TD_PART_TRAIN);
    quick_ops = train->ops;
    td__dataset_ops late = *quick_ops;
    late.read = late_once;
    train->ops = &late;
    atomic_store(&reads_left, 5);
    elastic_job_run(&plan, &end);
    CHECK_EQ_INT(end.failed, 1);
    CHECK(end.failure == TD_EIO, "it failed with %s", td_status_name(end.failure));
    CHECK(strstr(end.text, "the file server does not answer"), "%s", end.text);
    CHECK_EQ_INT(end.finished, 1);
    end.failure = TD_OK;
    elastic_job_expect(&plan, &end);
    train->ops = quick_ops;
    check_tmpdir_remove();
    td__data_close(plan.data);
}

/* Whether a timeout is this host's own does not depend on what the comm has come to meanwhile. */
TEST(a_timeout_of_the_disk_is_told_from_one_of_a_peer)
{
    td_comm *c[2];
    float x = 0;
    CHECK_OK(td_comm_threads(2, &(td_comm_opts){.timeout_ms = 50}, c));
    CHECK(td__elastic_is_local(c[0], TD_FAIL(TD_ETIMEDOUT, "no disk")), "before the comm fails");
    td_status st = td_recv(c[0], &x, 1, TD_F32, 1, NULL);
    CHECK_STATUS(st, TD_ETIMEDOUT);
    CHECK(!td__elastic_is_local(c[0], st), "a peer is late: %s", td_last_error());
    CHECK(td__elastic_is_local(c[0], TD_FAIL(TD_ETIMEDOUT, "no disk")), "after the comm failed");
    CHECK(strcmp(td_last_error(), "no disk") == 0, "%s", td_last_error());
    CHECK(!td__elastic_is_local(c[0], TD_EPEER), "a lost peer is not local");
    td_comm_destroy(c[0]);
    td_comm_destroy(c[1]);
}

/* The job is stopped after step 2, and a rank dies at any call of step 3, in which the others agree
 * on that, or of what they do then to end; a new one, which has not heard of it, takes its place or
 * not. All end after the same step, with its checkpoint. */
static int sweep_stop(int rank, bool replace)
{
    for (int k = 1;; k++) {
        elastic_plan plan = elastic_job(3);
        elastic_end end;
        td__checkpoint_info info;
        char faults[128];
        snprintf(faults, sizeof faults, "kill rank=%d at=step:3:comm:%d", rank, k);
        plan.faults = faults;
        plan.replace = replace;
        plan.newest_first = k % 2;
        plan.stop_all_after = 2;
        elastic_job_run(&plan, &end);
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
            elastic_plan plan = elastic_job(size);
            elastic_end end;
            char faults[64];
            snprintf(faults, sizeof faults, "flip rank=%d at=step:3", rank);
            plan.faults = faults;
            plan.opts.verify = 1;
            elastic_job_run(&plan, &end);
            CHECK(end.failure == TD_EIO && strstr(end.text, "wrongly"), "%s: %s",
                  td_status_name(end.failure), end.text);
            CHECK_EQ_INT(end.failed, 1);
            CHECK_EQ_INT(end.finished, size - 1);
            end.failure = TD_OK;
            elastic_job_expect(&plan, &end);
            check_tmpdir_remove();
            td__data_close(plan.data);
        }
}

TEST(verifying_changes_nothing)
{
    for (int n = 2; n <= 3; n++) {
        elastic_plan plan = elastic_job(n);
        elastic_end end;
        plan.opts.verify = 0.3 * n;
        plan.faults = n == 3 ? "kill rank=1 at=step:4:comm:1" : NULL;
        elastic_job_run(&plan, &end);
        elastic_job_expect(&plan, &end);
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
    elastic_plan alone = elastic_job(1);
    elastic_end one, end;
    alone.opts.steps = LONG;
    elastic_job_run(&alone, &one);
    check_tmpdir_remove();
    td_log_set_sink(count_lines, NULL);
    CHECK_OK(td_log_configure("train=debug"));
    for (int even = 0; even < 2; even++) {
        elastic_plan plan = elastic_job(3);
        plan.opts.steps = LONG;
        plan.opts.even = even;
        plan.faults = SANITIZED ? "slow rank=1 for=30ms at=step:1; kill rank=0 at=step:40:comm:1"
                                : "slow rank=1 for=10ms at=step:1; kill rank=0 at=step:40:comm:1";
        atomic_store(&dealt, 0);
        elastic_job_run(&plan, &end);
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

/* faults.txt of a run on four ranks, each of which is replaced when it dies; the weights are those
 * of one rank. The steps of the faults are in order. */
static char *faults_of(const char *faults, const elastic_end *one, int steps)
{
    elastic_plan plan = elastic_job(4);
    elastic_end end;
    char path[512], *text = NULL, line[256];
    size_t nbytes;
    unsigned long long at, last = 0;

    plan.opts.steps = steps;
    plan.faults = faults;
    plan.replace = true;
    elastic_job_run(&plan, &end);
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
    elastic_plan alone = elastic_job(1);
    elastic_end one;
    char path[64] = "/tmp/tandem-faults-XXXXXX", from[80];
    int fd = mkstemp(path);

    CHECK(fd >= 0, "no file");
    snprintf(from, sizeof from, "@%s", path);
    alone.opts.steps = LONG;
    elastic_job_run(&alone, &one);
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
        cmocka_unit_test(the_world_grows_and_shrinks),
        cmocka_unit_test(a_process_that_is_asked_to_stop_goes_and_the_others_go_on),
        cmocka_unit_test(a_process_whose_data_do_not_come_leaves),
        cmocka_unit_test(a_timeout_of_the_disk_is_told_from_one_of_a_peer),
        cmocka_unit_test(a_rank_dies_as_all_agree_to_stop),
        cmocka_unit_test(a_rank_that_computes_wrongly_is_taken_out),
        cmocka_unit_test(verifying_changes_nothing),
        cmocka_unit_test(a_slow_rank_gets_fewer_micro_batches),
        cmocka_unit_test(faults_can_be_had_again),
    };
    return cmocka_run_group_tests(tests, elastic_job_quiet_run, NULL);
}
