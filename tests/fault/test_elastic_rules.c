/* Elastic training with sync rules other than the exact ones, with threads as processes: what a
 * rule keeps goes on when ranks are replaced and when work is dealt out anew; compressors
 * compress. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/fail.h"
#include "parallel/sync.h"
#include "support/check.h"
#include "support/elastic_job.h"
#include "support/sanitized.h"
#include "tandem/log.h"

#define TD_SYNC(id) extern const td__sync_ops td__sync_##id;
#include "support/sync.def"
#undef TD_SYNC

static td__sync_ops counting; /* exact-shm, with the number of its steps as a state */

const td__sync_ops *const td__sync_rules[] = {&counting,
#define TD_SYNC(id) &td__sync_##id,
#include "support/sync.def"
#undef TD_SYNC
                                              NULL};

static void run(elastic_plan *plan, elastic_end *end)
{
    elastic_job_run(plan, end);
    CHECK(!end->failure && end->finished > 0, "%s: %s", plan->faults ? plan->faults : "",
          end->text);
    check_tmpdir_remove();
    td__data_close(plan->data);
}

/* ---- States ---------------------------------------------------------------------------------- */

/* Averages of params with block momentum: ranks meet after every second step, to validate. */
static elastic_plan averaging(void)
{
    elastic_plan plan = elastic_job(2);
    plan.opts.optim = (td_optim_opts){.name = "sgd", .lr = 0.05};
    plan.opts.sync =
        (td__sync_config){.rule = "average", .set = {{"every", 2}, {"momentum", 0.5}}, .n_set = 2};
    return plan;
}

/* The one who dies has made nothing alone since all met; who comes gets the averages' momentum with
 * the weights, or, if nobody is left, from disk. */
TEST(states_go_to_who_comes)
{
    static const char *const FAULTS[] = {
        "kill rank=1 at=step:3:comm:1", "kill rank=0 at=step:3:comm:1",
        "kill rank=1 at=step:5:comm:1", "kill rank=0 at=step:3; kill rank=1 at=step:3"};
    elastic_plan quiet = averaging();
    elastic_end want, end;
    run(&quiet, &want);
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        elastic_plan plan = averaging();
        plan.faults = FAULTS[i];
        plan.replace = true;
        run(&plan, &end);
        CHECK(end.died > 0 && end.generations > 1, "%s: nobody died", FAULTS[i]);
        CHECK(strcmp(end.result.digest, want.result.digest) == 0, "%s: other weights", FAULTS[i]);
    }
}

static float *count_of(td__sync *s)
{
    return (float *)((char *)s + td__sync_exact_shm.size);
}

static td_status count_step(td__sync *s, double lr, td__step_result *out)
{
    TD_TRY(td__sync_exact_shm.step(s, lr, out));
    *count_of(s) += 1;
    return TD_OK;
}

static int count_states(td__sync *s, td__sync_block *out)
{
    out[0] = (td__sync_block){.name = "steps", .data = count_of(s), .count = 1};
    return 1;
}

static atomic_int counted; /* steps, by any rank at the end */

static td_status count_meet(td__sync *s, td__sync_meet why)
{
    if (why == TD_MEET_END)
        atomic_store(&counted, (int)*count_of(s));
    return TD_OK;
}

static atomic_int dealt;

static void count_lines(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)level;
    (void)part;
    if (strstr(line, "micro-batches from step"))
        atomic_fetch_add(&dealt, 1);
}

TEST(states_stay_when_work_is_dealt_out_anew)
{
    enum { LONG = 40 };
    elastic_plan plan = elastic_job(3);
    elastic_end end;
    plan.opts.steps = LONG;
    plan.opts.sync.rule = "counting";
    plan.faults = SANITIZED ? "slow rank=1 for=30ms at=step:1" : "slow rank=1 for=10ms at=step:1";
    td_log_set_sink(count_lines, NULL);
    CHECK_OK(td_log_configure("train=debug"));
    run(&plan, &end);
    CHECK_OK(td_log_configure("warn"));
    td_log_set_sink(NULL, NULL);
    CHECK(atomic_load(&dealt) > 0, "nothing was dealt out anew");
    CHECK_EQ_INT(atomic_load(&counted), LONG);
}

/* ---- Compressors ----------------------------------------------------------------------------- */

TEST(compressors_compress)
{
    elastic_plan plan = elastic_job(2), two = elastic_job(2);
    elastic_end exact, sent, killed;
    run(&plan, &exact);
    two.opts.sync.compressor = "bf16";
    run(&two, &sent);
    CHECK(strcmp(sent.result.digest, exact.result.digest) != 0, "gradients were not compressed");
    elastic_plan again = elastic_job(2);
    again.opts.sync.compressor = "bf16";
    again.faults = "kill rank=0 at=step:4:comm:1";
    again.replace = true;
    run(&again, &killed);
    CHECK(killed.died == 1 && strcmp(killed.result.digest, sent.result.digest) == 0,
          "other weights after a rank was replaced");
}

TEST(a_compressor_whose_momentum_would_be_lost_is_refused)
{
    td_optim_opts optim = {.name = "sgd"};
    td__sync_job j = {.optim = &optim};
    td__sync_world w = {.ranks = 2, .elastic = true};
    CHECK_EQ_INT(td__sync_check(&(td__sync_config){.compressor = "topk"}, &j, &w), TD_EINVAL);
    CHECK(strstr(td_last_error(), "parallel.compress: topk is not for elastic ranks"), "%s",
          td_last_error());
    CHECK_OK(td__sync_check(&(td__sync_config){.compressor = "powersgd"}, &j, &w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_go_to_who_comes),
        cmocka_unit_test(states_stay_when_work_is_dealt_out_anew),
        cmocka_unit_test(compressors_compress),
        cmocka_unit_test(a_compressor_whose_momentum_would_be_lost_is_refused),
    };
    counting = td__sync_exact_shm;
    counting.name = "counting";
    counting.fits = NULL;
    counting.size = td__sync_exact_shm.size + sizeof(float);
    counting.step = count_step;
    counting.states = count_states;
    counting.meet = count_meet;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
