/* Parameter servers with copies of their shards, as elastic ranks that are threads: a server that
 * is lost at any operation of a step costs nothing. In lockstep the weights are those of one rank.
 * Of an asynchronous rule pushes are counted by sums: gradients do not depend on the params and all
 * sums are exact, so the weights say whether each batch of each epoch was applied once. Where all
 * servers are lost the run goes back to its last checkpoint. */
/* Test labels: slow full */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "support/check.h"
#include "support/elastic_job.h"
#include "support/full.h"
#include "tandem/log.h"

enum { WORKERS = 2, FIRST = 1, LAST = 3, EVERY = 9, SUM_STEPS = 10 };

/* With three of them no server has all shards. */
static int servers = 2;

static elastic_plan with_servers(elastic_plan plan, const char *rule)
{
    plan.opts.sync = (td__sync_config){.rule = rule, .servers = servers, .replicas = 1};
    return plan;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* The mean of x w + b + c over the rows, with x in whole numbers: its gradient in b and c is 1, in
 * w the mean of x. */
static td_status build_sums(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    static const float EIGHT = 8;
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 2));
    td_node *whole = td_floor(g, td_mul(g, x, td_constant(g, TD_F32, TD_SHAPE(1), &EIGHT)));
    td_node *w = td_param(g, "w", TD_SHAPE(2, 1), (td_init){.kind = TD_INIT_ZEROS});
    td_node *b = td_param(g, "b", TD_SHAPE(1), (td_init){.kind = TD_INIT_ZEROS});
    td_node *c = td_param(g, "c", TD_SHAPE(1), (td_init){.kind = TD_INIT_ZEROS});
    td_node *h = td_add(g, td_add(g, td_matmul(g, whole, w, false, false), b), c);
    *out = (td__model_nodes){
        .loss = td_mean(g, h, NULL, 0, false), .output = h, .inputs = {"x"}, .n_inputs = 1};
    return TD_OK;
}

static elastic_plan sums(int size)
{
    static const td__model MODEL = {.build = build_sums};
    elastic_plan p = elastic_job(size);
    td__data_close(p.data);
    CHECK_OK(td__data_open(
        &(td__data_opts){.source = "spirals", .source_opts = {.count = 80, .seed = 4}, .seed = 4},
        &p.data));
    p.model = &MODEL;
    p.opts.steps = SUM_STEPS; /* two epochs */
    p.opts.valid_every = -1;
    p.opts.test = false;
    p.opts.optim = (td_optim_opts){.name = "sgd", .lr = 0.5};
    p.opts.schedule = (td_schedule_opts){.name = "constant"};
    return p;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

typedef elastic_plan make_fn(int size);

static elastic_plan lockstep(int size)
{
    return with_servers(elastic_job(size), "sync");
}

static elastic_plan asgd(int size)
{
    return with_servers(sums(size), "asgd");
}

static elastic_plan downpour(int size)
{
    return with_servers(sums(size), "downpour");
}

static void run(make_fn *make, int size, const char *faults, elastic_end *end)
{
    elastic_plan plan = make(size);
    plan.faults = faults;
    plan.replace = true;
    elastic_job_run(&plan, end);
    CHECK(!end->failure && end->finished > 0, "%s: %s", faults ? faults : "", end->text);
    check_tmpdir_remove();
    td__data_close(plan.data);
}

/* Rank `rank` is lost at every communication of the first steps. */
static void sweep(make_fn *make, int rank, const char *want)
{
    int died = 0;
    for (int step = FIRST; step <= LAST; step++)
        for (int op = 1;; op++) {
            char faults[64];
            elastic_end end;
            if (!full_or_sampled(step + op + rank, EVERY) && op > 1)
                continue;
            snprintf(faults, sizeof faults, "kill rank=%d at=step:%d:comm:%d", rank, step, op);
            run(make, (WORKERS + servers), faults, &end);
            CHECK(strcmp(end.result.digest, want) == 0, "%s: other weights", faults);
            died += end.died;
            if (!end.died)
                break;
        }
    int least = rank < servers ? LAST - FIRST + 1 : 1; /* a worker may have no part in a step */
    CHECK(died >= least, "rank %d died %d times", rank, died);
}

TEST(lockstep_has_the_bits_of_one_rank)
{
    for (int rank = 0; rank < servers + full_test(); rank++)
        sweep(lockstep, rank, elastic_job_quiet.result.digest);
}

TEST(no_push_is_lost)
{
    elastic_end want;
    run(sums, 1, NULL, &want);
    for (int rank = 0; rank < servers + full_test(); rank++)
        sweep(asgd, rank, want.result.digest);
    if (full_test())
        sweep(downpour, 0, want.result.digest);
}

/* Decisions and metrics.jsonl too, where another server takes the lead in the middle. */
TEST(who_takes_over_writes_what_is_missing)
{
    elastic_plan plan = lockstep((WORKERS + servers));
    elastic_end end;
    plan.faults = "kill rank=0 at=step:3:comm:2; kill rank=0 at=step:5:comm:4";
    plan.replace = true;
    elastic_job_run(&plan, &end);
    CHECK_EQ_INT(end.died, 2);
    elastic_job_expect(&plan, &end);
    elastic_job_check_saved(&plan);
    check_tmpdir_remove();
    td__data_close(plan.data);
}

static char line_seen[256];

static void see(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)level;
    (void)part;
    if (strstr(line, "held the state of the run"))
        snprintf(line_seen, sizeof line_seen, "%s", line);
}

TEST(all_servers_lost_goes_back_to_the_checkpoint)
{
    elastic_plan plan = lockstep((WORKERS + servers));
    elastic_end end;
    line_seen[0] = 0;
    plan.faults = "kill rank=0 at=step:4:comm:3";
    plan.takes_next = plan.replace = true;
    plan.opts.checkpoint_every = 1;
    td_log_set_sink(see, NULL);
    elastic_job_run(&plan, &end);
    td_log_set_sink(NULL, NULL);
    CHECK(end.died == 2, "%d died", end.died);
    CHECK(strstr(line_seen, "it goes back to step 2") || strstr(line_seen, "back to step 3"),
          "it says '%s'", line_seen);
    elastic_job_expect(&plan, &end);
    check_tmpdir_remove();
    td__data_close(plan.data);
}

/* Ranks join and leave, servers among them: shards move to those that are there. */
TEST(servers_and_workers_come_and_go)
{
    elastic_plan plan = lockstep((WORKERS + servers));
    elastic_end end;
    plan.change[0].step = 2;
    plan.change[0].size = (WORKERS + servers) + 2;
    plan.change[1].step = 4;
    plan.change[1].size = (WORKERS + servers) - 2;
    line_seen[0] = 0;
    td_log_set_sink(see, NULL);
    elastic_job_run(&plan, &end);
    td_log_set_sink(NULL, NULL);
    CHECK(!*line_seen, "it says '%s'", line_seen);
    CHECK(end.drained == 4 && end.generations == 3, "%d drained, %d generations", end.drained,
          (int)end.generations);
    elastic_job_expect(&plan, &end);
    check_tmpdir_remove();
    td__data_close(plan.data);
}

/* The same where the host does not read the memory of params. */
TEST(bits_of_one_rank_on_a_device)
{
    elastic_plan plan = lockstep(WORKERS + servers);
    elastic_end end;
    plan.opts.backend = "far";
    plan.faults = "kill rank=0 at=step:3:comm:2; kill rank=1 at=step:5:comm:4";
    plan.replace = true;
    elastic_job_run(&plan, &end);
    CHECK_EQ_INT(end.died, 2);
    elastic_job_expect(&plan, &end);
    check_tmpdir_remove();
    td__data_close(plan.data);
}

/* ---- Sums of several batches ----------------------------------------------------------------- */

enum { N_PUSH = 3, LONG_STEPS = 30 };

static int said_lost; /* batches, as the run says */

static void count_lost(void *user, td_log_level level, td_log_part part, const char *line)
{
    const char *at = strstr(line, "gradients of ");
    int n;
    (void)user;
    (void)level;
    (void)part;
    if (at && strstr(at, "not push") && sscanf(at, "gradients of %d batches", &n) == 1)
        said_lost += n;
}

/* b of the last checkpoint. */
static float read_last(const elastic_plan *plan)
{
    td__checkpoint_info info;
    td_graph *g;
    td__model_nodes nodes;
    td_program *p;
    td_params *ps;
    float b;
    CHECK_OK(td__checkpoint_find(plan->opts.checkpoint_dir, NULL, &info));
    CHECK_EQ_INT(info.state.step, plan->opts.steps);
    CHECK_OK(td_graph_create(&g));
    CHECK_OK(build_sums(NULL, g, 1, &nodes));
    CHECK_OK(td_program_create(g, nodes.loss, &(td_program_opts){.backend = NULL}, &p));
    CHECK_OK(td_params_create(p, 0, &ps));
    CHECK_OK(td__checkpoint_load(&info, ps, NULL));
    CHECK_OK(td_params_read(ps, td_params_info(ps, td_params_find(ps, "b")).offset, 1, &b));
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
    return b;
}

/* Ranks join and leave, and one is killed, while workers have added up gradients that they have not
 * pushed: what is lost is what the run says, nothing where no rank is killed. b is moved by each
 * batch once. */
TEST(what_is_added_up_survives_a_change)
{
    static const char *const FAULTS[] = {NULL, "kill rank=3 at=step:11:comm:1"};
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        elastic_plan plan = downpour(WORKERS + servers);
        elastic_end end;
        plan.opts.sync.set[0] = (td__sync_setting){"n_push", N_PUSH};
        plan.opts.sync.n_set = 1;
        plan.opts.steps = LONG_STEPS;
        plan.opts.checkpoint_every = 10;
        plan.replace = true;
        plan.faults = FAULTS[i];
        for (int k = 0; k < 4; k++) {
            plan.change[k].step = (uint64_t)(4 + 6 * k);
            plan.change[k].size = WORKERS + servers + (k % 2 ? 0 : 2);
        }
        said_lost = 0;
        td_log_set_sink(count_lost, NULL);
        elastic_job_run(&plan, &end);
        td_log_set_sink(NULL, NULL);
        CHECK(!end.failure && end.finished > 0, "%s", end.text);
        CHECK(end.generations >= 3, "%d generations", (int)end.generations);
        /* Of each worker that is there at the end, and of one that died. */
        CHECK(said_lost <= (N_PUSH - 1) * (WORKERS + end.died), "%d batches are lost", said_lost);
        float b = read_last(&plan);
        CHECK(b == -0.5F * (float)(LONG_STEPS - said_lost), "%g after %d batches less %d",
              (double)b, LONG_STEPS, said_lost);
        check_tmpdir_remove();
        td__data_close(plan.data);
    }
}

/* A ring of three: each server has its shard and that of another one. */
TEST(a_ring_of_servers_loses_nothing)
{
    elastic_end want;
    servers = 3;
    for (int rank = 0; rank < servers; rank++)
        sweep(lockstep, rank, elastic_job_quiet.result.digest);
    run(sums, 1, NULL, &want);
    for (int rank = 0; rank < servers; rank++)
        sweep(asgd, rank, want.result.digest);
    who_takes_over_writes_what_is_missing(NULL);
    servers_and_workers_come_and_go(NULL);
    servers = 2;
}

/* Two servers that are neighbours have all that there is of a shard. */
TEST(a_lost_shard_goes_back_to_the_checkpoint)
{
    servers = 3;
    all_servers_lost_goes_back_to_the_checkpoint(NULL);
    servers = 2;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lockstep_has_the_bits_of_one_rank),
        cmocka_unit_test(no_push_is_lost),
        cmocka_unit_test(who_takes_over_writes_what_is_missing),
        cmocka_unit_test(all_servers_lost_goes_back_to_the_checkpoint),
        cmocka_unit_test(servers_and_workers_come_and_go),
        cmocka_unit_test(bits_of_one_rank_on_a_device),
        cmocka_unit_test(what_is_added_up_survives_a_change),
        cmocka_unit_test(a_ring_of_servers_loses_nothing),
        cmocka_unit_test(a_lost_shard_goes_back_to_the_checkpoint),
    };
    return cmocka_run_group_tests(tests, elastic_job_quiet_run, NULL);
}
