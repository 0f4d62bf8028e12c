/* Rules whose ranks are not in step: on one rank they follow their recurrence, computed here in
 * double, and give the weights of one that is in step; on several they end at the optimum of a
 * ridge regression, whatever the order of messages; asynchronous ADMM that waits for all is ADMM.
 * Requests to stop reach ranks at different steps; what they keep is in the checkpoint, also for
 * another number of ranks; they do not touch memory of a device. */
/* Test labels: slow */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "parallel/sync.h"
#include "support/check.h"
#include "support/sync_runs.h"
#include "tandem/tandem.h"

enum { P = SYNC_PARAMS };
static const char *const RULES[] = {"async-peer", "aeasgd", "async-admm"};
enum { N_RULES = sizeof RULES / sizeof *RULES };

static void check_near(const char *what, const float *got, const double *want, double most)
{
    double off = 0, size = 0;
    for (int p = 0; p < P; p++) {
        off += pow((double)got[p] - want[p], 2);
        size += want[p] * want[p];
    }
    CHECK(sqrt(off / size) < most, "%s: %g off, relative", what, sqrt(off / size));
}

/* ---- One rank -------------------------------------------------------------------------------- */

/* The centre in the end; x of a rank alone: alpha is beta. */
static void elastic_alone(const sync_run *u, int tau, double alpha, double *out)
{
    td__dataset *d;
    td__loader *l = sync_batches(&d);
    sync_sim s = {.n = 1};
    sync_sim_begin(&s, u);
    for (int step = 1; step <= SYNC_STEPS; step++) {
        const td__batch *b;
        CHECK_OK(td__loader_next(l, &b));
        sync_sim_descend(&s, 0, b);
        for (int p = 0; p < P && (step % tau == 0 || step == SYNC_STEPS); p++) {
            double move = alpha * (s.x[0][p] - s.c[p]);
            s.x[0][p] -= move;
            s.c[p] += move;
        }
    }
    memcpy(out, s.c, sizeof s.c);
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

TEST(one_rank_follows_the_recurrence)
{
    for (int problem = 0; problem < 2; problem++)
        for (int tau = 1; tau <= 5; tau += 2) {
            double want[P];
            sync_run u;
            sync_run_init(&u, (sync_problem)problem, "aeasgd");
            sync_run_set(&u, "tau", tau);
            sync_run_set(&u, "beta", 0.4);
            sync_run_on(&u, 1, NULL);
            elastic_alone(&u, tau, 0.4, want);
            check_near("aeasgd", u.last, want, 1e-5);
            sync_run_end(&u);
        }
}

TEST(one_rank_has_the_weights_of_one_in_step)
{
    static const char *const IN_STEP[] = {NULL, "admm"}, *const APART[] = {"async-peer",
                                                                           "async-admm"};
    for (int i = 0; i < 2; i++)
        for (int far = 0; far < 2; far++) {
            sync_run want, got;
            sync_run_init(&want, SYNC_QUADRATIC, IN_STEP[i]);
            sync_run_init(&got, SYNC_QUADRATIC, APART[i]);
            want.opts.backend = got.opts.backend = far ? "far" : NULL;
            sync_run_on(&want, 1, NULL);
            sync_run_on(&got, 1, NULL);
            CHECK(strcmp(want.got.digest, got.got.digest) == 0, "%s: other weights", APART[i]);
            sync_run_end(&want);
            sync_run_end(&got);
        }
}

/* ---- Several --------------------------------------------------------------------------------- */

/* A gradient of each rank in every step, in some order: SGD on two or four times the updates. */
TEST(all_end_at_the_optimum)
{
    double want[P];
    sync_ridge_optimum(want);
    for (int i = 0; i < N_RULES; i++)
        for (int n = 2; n <= SYNC_MOST_RANKS; n++) {
            bool admm = strcmp(RULES[i], "async-admm") == 0;
            sync_run u;
            sync_run_init(&u, SYNC_RIDGE_REGRESSION, RULES[i]);
            if (i > 0)
                sync_run_set(&u, "tau", 5);
            if (admm)
                sync_run_set(&u, "min_arrivals", 1 + n / 2);
            u.opts.batch = SYNC_SAMPLES;
            u.opts.partition = admm ? "even" : NULL; /* whose duals make up for other data */
            u.opts.steps = admm ? 1200 : 1000;
            u.opts.optim.lr = admm ? 0.05 : 0.01; /* the noise of rows that are drawn */
            sync_run_on(&u, n, n == 3 ? &(ranks_opts){.transport = "tcp"} : NULL);
            check_near(RULES[i], u.last, want, admm ? 1e-5 : 0.1);
            sync_run_end(&u);
        }
}

TEST(admm_that_waits_for_all_is_admm)
{
    for (int n = 2; n <= SYNC_MOST_RANKS; n++)
        for (int problem = 0; problem < 2; problem++) {
            double want[P];
            sync_run in_step, apart;
            sync_run_init(&in_step, (sync_problem)problem, "admm");
            sync_run_init(&apart, (sync_problem)problem, "async-admm");
            sync_run_set(&in_step, "tau", 3);
            sync_run_set(&apart, "tau", 3);
            sync_run_set(&apart, "min_arrivals", n);
            sync_run_on(&in_step, n, NULL);
            sync_run_on(&apart, n, NULL);
            for (int p = 0; p < P; p++)
                want[p] = (double)in_step.last[p];
            check_near("async-admm", apart.last, want, 1e-5);
            sync_run_end(&in_step);
            sync_run_end(&apart);
        }
}

/* ---- Stops, checkpoints ---------------------------------------------------------------------- */

typedef struct stopper {
    td__observer base;
    uint64_t at;
    atomic_int stop;
} stopper;

static td_status stop_at(td__observer *o, const td__step_event *e)
{
    stopper *s = (stopper *)o;
    if (e->step == s->at)
        atomic_store(&s->stop, 1);
    return TD_OK;
}

/* Rank 0 alone is asked to stop; ranks are at any step then. */
TEST(a_request_brings_ranks_to_one_step)
{
    for (int i = 0; i < N_RULES; i++)
        for (int n = 2; n <= SYNC_MOST_RANKS; n++) {
            stopper s = {.base = {.step = stop_at}, .at = 40};
            sync_run u;
            sync_run_init(&u, SYNC_QUADRATIC, RULES[i]);
            u.opts.steps = 100000;
            u.observer = &s.base;
            u.stop = &s.stop;
            sync_run_on(&u, n, NULL);
            CHECK(u.got.end == TD_TRAIN_INTERRUPTED && u.got.step > 40 && u.got.step < 100000,
                  "%s, %d ranks: step %d", RULES[i], n, (int)u.got.step);
            sync_run_end(&u);
        }
}

TEST(a_run_is_resumed_on_other_ranks)
{
    for (int i = 0; i < N_RULES; i++)
        for (int far = 0; far < 2; far++) {
            sync_run u;
            sync_run_init(&u, SYNC_QUADRATIC, RULES[i]);
            u.opts.backend = far ? "far" : NULL;
            u.opts.checkpoint_dir = check_tmpdir();
            u.opts.checkpoint_every = 6;
            sync_run_on(&u, 2, NULL);
            CHECK_EQ_INT(u.got.step, SYNC_STEPS);
            u.resume = true;
            for (int n = 1; n <= 3; n += 2) {
                u.opts.steps += 6;
                sync_run_on(&u, n, NULL);
                CHECK(u.got.end == TD_TRAIN_DONE && u.got.step == (uint64_t)u.opts.steps,
                      "%s: not on %d ranks", RULES[i], n);
            }
            sync_run_end(&u);
        }
}

TEST(not_for_elastic_ranks)
{
    td_optim_opts optim = {.name = "sgd"};
    td__sync_job j = {.optim = &optim};
    td__sync_world w = {.ranks = 2, .elastic = true};
    for (int i = 0; i < N_RULES; i++) {
        CHECK_EQ_INT(td__sync_check(&(td__sync_config){.rule = RULES[i]}, &j, &w), TD_EINVAL);
        CHECK(strstr(td_last_error(), "cannot run on elastic ranks"), "%s", td_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_follows_the_recurrence),
        cmocka_unit_test(one_rank_has_the_weights_of_one_in_step),
        cmocka_unit_test(all_end_at_the_optimum),
        cmocka_unit_test(admm_that_waits_for_all_is_admm),
        cmocka_unit_test(a_request_brings_ranks_to_one_step),
        cmocka_unit_test(a_run_is_resumed_on_other_ranks),
        cmocka_unit_test(not_for_elastic_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
