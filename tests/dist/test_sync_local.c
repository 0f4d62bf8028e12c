/* Rules of local updates: each follows its published recurrence, which is computed here in double
 * on a quadratic and a ridge regression; with one rank and an exchange after every step those that
 * only average give the weights of one rank; what they keep is in the checkpoint, also for another
 * number of ranks; they do not touch memory of a device. */
/* Test labels: slow */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "parallel/sync.h"
#include "support/check.h"
#include "support/step_rig.h"
#include "support/sync_runs.h"
#include "tandem/tandem.h"

/* ---- The recurrences, in double -------------------------------------------------------------- */

enum { P = SYNC_PARAMS };
typedef sync_sim sim;
typedef sync_run run;

static void average(sim *s)
{
    for (int p = 0; p < P; p++) {
        double m = sync_sim_mean(s, p);
        for (int r = 0; r < s->n; r++)
            s->x[r][p] = m;
    }
}

static void bmuf(sim *s, bool nesterov)
{
    for (int p = 0; p < P; p++) {
        double g = sync_sim_mean(s, p) - (s->c[p] + (s->ahead ? s->a * s->v[p] : 0));
        s->v[p] = s->a * s->v[p] + s->b * g;
        s->c[p] += s->v[p];
        for (int r = 0; r < s->n; r++)
            s->x[r][p] = s->c[p] + (nesterov ? s->a * s->v[p] : 0);
    }
    s->ahead = nesterov;
}

static void classical(sim *s)
{
    bmuf(s, false);
}

static void nesterov(sim *s)
{
    bmuf(s, true);
}

static void elastic(sim *s)
{
    for (int p = 0; p < P; p++) {
        double m = sync_sim_mean(s, p), c = s->c[p];
        for (int r = 0; r < s->n; r++)
            s->x[r][p] -= s->a / s->n * (s->x[r][p] - c);
        s->c[p] = (1 - s->a) * c + s->a * m;
    }
}

/* y is a rank's momentum. */
static void with_momentum(sim *s, int r, const td__batch *b)
{
    double at[P], grad[P];
    for (int p = 0; p < P; p++)
        at[p] = s->x[r][p] + s->b * s->y[r][p];
    sync_sim_grad(s, r, b, at, grad);
    for (int p = 0; p < P; p++) {
        s->y[r][p] = s->b * s->y[r][p] - SYNC_LR * grad[p];
        s->x[r][p] += s->y[r][p];
    }
}

/* y is a rank's scaled dual, a is rho. */
static void near_centre(sim *s, int r, const td__batch *b)
{
    double pull = SYNC_LR * s->a;
    sync_sim_descend(s, r, b);
    for (int p = 0; p < P; p++)
        s->x[r][p] = (s->x[r][p] + pull * (s->c[p] - s->y[r][p])) / (1 + pull);
}

static void multipliers(sim *s)
{
    for (int p = 0; p < P; p++) {
        s->c[p] = 0;
        for (int r = 0; r < s->n; r++)
            s->c[p] += (s->x[r][p] + s->y[r][p]) / s->n;
        for (int r = 0; r < s->n; r++)
            s->y[r][p] += s->x[r][p] - s->c[p];
    }
}

static void outer(sim *s)
{
    for (int p = 0; p < P; p++) {
        double g = s->c[p] - sync_sim_mean(s, p);
        s->v[p] = s->a * s->v[p] + g;
        s->c[p] -= s->b * (g + s->a * s->v[p]);
        for (int r = 0; r < s->n; r++)
            s->x[r][p] = s->c[p];
    }
}

typedef struct rule_case {
    const char *rule;
    void (*merge)(sim *s);
    bool centre; /* params are the centre in the end */
    const char *option[3];
    double value[3];
    void (*descend)(sim *s, int r, const td__batch *b); /* a step of a rank; NULL: of SGD */
} rule_case;

static const rule_case CASES[] = {
    {"ma", average, false, {NULL}, {0}, NULL},
    {"local-sgd", average, false, {NULL}, {0}, NULL},
    {"bmuf", classical, true, {"momentum", "rate"}, {0.6, 0.9}, NULL},
    {"bmuf", nesterov, true, {"momentum", "rate", "nesterov"}, {0.6, 0.9, 1}, NULL},
    {"easgd", elastic, true, {"beta"}, {0.7}, NULL},
    {"eamsgd", elastic, true, {"beta", "momentum"}, {0.7, 0.5}, with_momentum},
    {"admm", multipliers, true, {"rho"}, {2}, near_centre},
    {"diloco", outer, true, {"momentum", "rate"}, {0.8, 0.5}, NULL},
};
enum { N_CASES = sizeof CASES / sizeof *CASES };

static void start_case(run *u, sync_problem problem, const rule_case *c, int tau)
{
    sync_run_init(u, problem, c->rule);
    sync_run_set(u, "tau", tau);
    for (int i = 0; i < 3 && c->option[i]; i++)
        sync_run_set(u, c->option[i], c->value[i]);
}

/* warmup: steps at the beginning after each of which ranks exchange. */
static void simulate_warm(const run *u, const rule_case *c, int tau, int warmup, sim *s)
{
    td__dataset *d;
    td__loader *l = sync_batches(&d);
    int steps = (int)u->opts.steps;
    sync_sim_begin(s, u);
    for (int step = 1; step <= steps; step++) {
        const td__batch *b;
        CHECK_OK(td__loader_next(l, &b));
        for (int r = 0; r < s->n; r++)
            (c->descend ? c->descend : sync_sim_descend)(s, r, b);
        if (step <= warmup || (step - warmup) % tau == 0 || step == steps)
            c->merge(s);
    }
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

static void simulate(const run *u, const rule_case *c, int tau, sim *s)
{
    simulate_warm(u, c, tau, 0, s);
}

static void check_case(sync_problem problem, const rule_case *c, int n, int tau)
{
    run u;
    start_case(&u, problem, c, tau);
    sync_run_on(&u, n, NULL);
    sim s = {.n = n, .a = c->value[0], .b = c->value[1]};
    simulate(&u, c, tau, &s);
    for (int p = 0; p < P; p++) {
        double want = c->centre ? s.c[p] : s.x[0][p], got = (double)u.last[p];
        CHECK(fabs(got - want) < 1e-5 && fabs((double)u.first[p] - want) > 1e-3,
              "%s, problem %d, %d ranks, tau %d: param %d is %.9g, not %.9g", c->rule, (int)problem,
              n, tau, p, got, want);
    }
    sync_run_end(&u);
}

TEST(every_rule_follows_its_recurrence)
{
    for (int i = 0; i < N_CASES; i++)
        for (int n = 1; n <= SYNC_MOST_RANKS; n++) {
            check_case(SYNC_QUADRATIC, &CASES[i], n, 3);
            check_case(SYNC_RIDGE_REGRESSION, &CASES[i], n, 5); /* they meet in mid-block */
        }
}

/* Post-local SGD: as one that averages after every step, then every tau steps. The gradient of a
 * rank's rows is not that of all, so where ranks meet matters. */
TEST(a_warm_up_averages_after_each_of_its_steps)
{
    enum { TAU = 4, WARMUP = 5 };
    const rule_case *c = &CASES[1];
    CHECK(!strcmp(c->rule, "local-sgd"), "%s", c->rule);
    for (int n = 2; n <= SYNC_MOST_RANKS; n++) {
        run u;
        start_case(&u, SYNC_RIDGE_REGRESSION, c, TAU);
        sync_run_set(&u, "warmup", WARMUP);
        sync_run_on(&u, n, NULL);
        sim s = {.n = n}, never = {.n = n};
        simulate_warm(&u, c, TAU, WARMUP, &s);
        simulate(&u, c, TAU, &never);
        double apart = 0;
        for (int p = 0; p < P; p++) {
            double got = (double)u.last[p];
            CHECK(fabs(got - s.x[0][p]) < 1e-6, "%d ranks: param %d is %.9g, not %.9g", n, p, got,
                  s.x[0][p]);
            apart = fmax(apart, fabs(s.x[0][p] - never.x[0][p]));
        }
        CHECK(apart > 1e-5, "%d ranks: a warm-up makes no difference", n);
        sync_run_end(&u);
    }
}

/* D-PSGD: a step begins with the mean of the neighbourhood, and its gradient is of before. Weight
 * decay, by which the ridge regression has its penalty, is the optimizer's: of the mean. */
static void gossip(sim *s, int graph, const td__batch *b)
{
    sim old = *s;
    double decay = s->problem == SYNC_RIDGE_REGRESSION ? SYNC_LR * SYNC_RIDGE : 0;
    for (int r = 0; r < s->n; r++)
        for (int p = 0; p < P; p++) {
            bool near[SYNC_MOST_RANKS] = {[0] = false};
            double sum = 0, all = 0;
            near[r] = true;
            if (graph == 0) { /* ring */
                near[(r + 1) % s->n] = near[(r + s->n - 1) % s->n] = true;
            } else if (graph == 1 && s->n == 4) { /* 2 by 2 */
                near[r ^ 1] = near[r ^ 2] = true;
            } else if (graph == 1) { /* a row */
                near[(r + 1) % s->n] = near[(r + s->n - 1) % s->n] = true;
            } else { /* those 1, 2, ... before it */
                for (int by = 1; by < s->n; by *= 2)
                    near[(r + s->n - by) % s->n] = true;
            }
            for (int k = 0; k < s->n; k++) {
                sum += near[k] ? old.x[k][p] : 0;
                all += near[k];
            }
            s->x[r][p] = sum / all;
        }
    for (int r = 0; r < s->n; r++) {
        sim moved = old;
        sync_sim_descend(&moved, r, b);
        for (int p = 0; p < P; p++)
            s->x[r][p] += moved.x[r][p] - old.x[r][p] - decay * (s->x[r][p] - old.x[r][p]);
    }
}

static void check_gossip(sync_problem problem, int graph, int n, const char *backend)
{
    run u;
    sync_run_init(&u, problem, "dpsgd");
    sync_run_set(&u, "graph", graph);
    u.opts.backend = backend;
    sync_run_on(&u, n, n == 3 ? &(ranks_opts){.transport = "tcp"} : NULL);
    td__dataset *d;
    td__loader *l = sync_batches(&d);
    sim s = {.n = n};
    sync_sim_begin(&s, &u);
    for (int step = 1; step <= (int)u.opts.steps; step++) {
        const td__batch *b;
        CHECK_OK(td__loader_next(l, &b));
        gossip(&s, graph, b);
    }
    for (int p = 0; p < P; p++)
        CHECK(fabs((double)u.last[p] - sync_sim_mean(&s, p)) < 1e-5,
              "problem %d, graph %d, %d ranks, %s: param %d is %.9g, not %.9g", (int)problem, graph,
              n, backend, p, (double)u.last[p], sync_sim_mean(&s, p));
    td__loader_destroy(l);
    td__dataset_destroy(d);
    sync_run_end(&u);
}

TEST(gossip_follows_its_recurrence_on_every_graph)
{
    for (int graph = 0; graph < 3; graph++)
        for (int n = 1; n <= SYNC_MOST_RANKS; n++) {
            check_gossip(SYNC_QUADRATIC, graph, n, "cpu");
            check_gossip(SYNC_RIDGE_REGRESSION, graph, n, n % 2 ? "cpu" : "far");
        }
}

/* ---- Bits ------------------------------------------------------------------------------------ */

TEST(one_rank_that_averages_after_every_step_has_the_weights_of_exact)
{
    static const char *const RULES[] = {"ma", "local-sgd", "ssgd", "dpsgd"};
    run exact;
    sync_run_init(&exact, SYNC_QUADRATIC, NULL);
    sync_run_on(&exact, 1, NULL);
    for (size_t k = 0; k < 2 * sizeof RULES / sizeof *RULES; k++) {
        size_t i = k / 2;
        run u;
        sync_run_init(&u, SYNC_QUADRATIC, RULES[i]);
        if (i < 2)
            sync_run_set(&u, "tau", 1);
        u.opts.backend = k % 2 ? "far" : "cpu";
        sync_run_on(&u, 1, NULL);
        CHECK(strcmp(u.got.digest, exact.got.digest) == 0, "%s on %s: other weights", RULES[i],
              u.opts.backend);
        sync_run_end(&u);
    }
    sync_run_end(&exact);
}

/* Synchronous SGD is SGD on the whole batch, and the exact rule but for the order of sums; memory
 * of a device does not matter to its bits. */
static void check_ssgd(const run *exact, int n, const ranks_opts *how)
{
    run u;
    char digest[65];
    sim s = {.n = 1};
    simulate(exact, &(rule_case){.rule = "ssgd", .merge = average}, 1, &s);
    for (int far = 0; far < 2; far++) {
        sync_run_init(&u, exact->problem, "ssgd");
        u.opts.backend = far ? "far" : "cpu";
        sync_run_on(&u, n, how);
        for (int p = 0; p < P; p++) {
            CHECK(fabsf(u.last[p] - exact->last[p]) < 1e-6f, "%d ranks: param %d is %g, not %g", n,
                  p, (double)u.last[p], (double)exact->last[p]);
            CHECK(fabs((double)u.last[p] - s.x[0][p]) < 1e-5, "%d ranks: param %d is %g, not %g", n,
                  p, (double)u.last[p], s.x[0][p]);
        }
        CHECK(!far || !strcmp(digest, u.got.digest), "%d ranks on far: other weights", n);
        memcpy(digest, u.got.digest, sizeof digest);
        sync_run_end(&u);
    }
}

TEST(synchronous_sgd_is_near_exact)
{
    static const ranks_opts TCP = {.transport = "tcp"};
    for (int k = 0; k < 2; k++) {
        run exact;
        sync_run_init(&exact, k ? SYNC_RIDGE_REGRESSION : SYNC_QUADRATIC, NULL);
        sync_run_on(&exact, 1, NULL);
        for (int n = 2; n <= SYNC_MOST_RANKS; n++)
            for (int tcp = 0; tcp < 2; tcp++)
                check_ssgd(&exact, n, tcp ? &TCP : NULL);
        sync_run_end(&exact);
    }
}

/* A run that is resumed ends like one that was not, on as many ranks; on others it goes on from the
 * centre. On a device the bits are the same. */
TEST(what_a_rule_keeps_is_in_the_checkpoint)
{
    for (int i = 0; i < N_CASES; i++) {
        run whole, u, far;
        start_case(&whole, SYNC_QUADRATIC, &CASES[i], 4);
        whole.opts.checkpoint_dir = check_tmpdir();
        whole.opts.checkpoint_every = 6;
        sync_run_on(&whole, 2, NULL);
        start_case(&u, SYNC_QUADRATIC, &CASES[i], 4);
        u.opts.checkpoint_dir = check_tmpdir();
        u.opts.checkpoint_every = 6;
        u.opts.steps = 6;
        sync_run_on(&u, 2, NULL);
        u.opts.steps = 12;
        u.resume = true;
        sync_run_on(&u, 2, NULL);
        CHECK(strcmp(u.got.digest, whole.got.digest) == 0, "%s: other weights when resumed",
              CASES[i].rule);
        u.opts.steps = 18;
        sync_run_on(&u, 3, NULL);
        CHECK(u.got.end == TD_TRAIN_DONE && u.got.step == 18, "%s: not on three ranks",
              CASES[i].rule);
        start_case(&far, SYNC_QUADRATIC, &CASES[i], 4);
        far.opts.backend = "far";
        far.opts.checkpoint_dir = check_tmpdir();
        far.opts.checkpoint_every = 6;
        sync_run_on(&far, 2, NULL);
        CHECK(strcmp(far.got.digest, whole.got.digest) == 0, "%s: other weights on far",
              CASES[i].rule);
        sync_run_end(&whole);
        sync_run_end(&u);
        sync_run_end(&far);
    }
}

/* Optimizers with a state of their own; a batch whose row is one rank's, so that the other makes
 * fewer updates; and training that goes on in the same process. */
TEST(a_resumed_run_has_the_bits_of_one_that_went_on)
{
    static const rule_case GOSSIP = {"dpsgd", NULL, false, {NULL}, {0}, NULL};
    static const td_optim_opts OPTIMS[] = {{.name = "sgd", .lr = 0.05, .momentum = 0.9},
                                           {.name = "adam", .lr = 0.05}};
    for (int i = 0; i <= N_CASES; i++)
        for (int k = 0; k < 2; k++) {
            const rule_case *c = i < N_CASES ? &CASES[i] : &GOSSIP;
            const char *digest[3];
            run u[3]; /* whole, resumed, stopped and gone on */
            for (int j = 0; j < 3; j++) {
                sync_run_init(&u[j], SYNC_QUADRATIC, c->rule);
                if (i < N_CASES)
                    sync_run_set(&u[j], "tau", 4);
                for (int o = 0; o < 3 && c->option[o]; o++)
                    sync_run_set(&u[j], c->option[o], c->value[o]);
                u[j].opts.batch = SYNC_SAMPLES / 5; /* and one row */
                u[j].opts.optim = OPTIMS[k];
                u[j].opts.checkpoint_dir = check_tmpdir();
                u[j].opts.checkpoint_every = 6;
                if (j == 1) {
                    u[j].opts.steps = 6;
                    sync_run_on(&u[j], 3, NULL);
                    u[j].opts.steps = 12;
                    u[j].resume = true;
                }
                u[j].stop_after = j == 2 ? 6 : 0;
                sync_run_on(&u[j], 3, NULL);
                digest[j] = u[j].got.digest;
                sync_run_end(&u[j]);
            }
            CHECK(strcmp(digest[0], digest[1]) == 0, "%s, %s: other weights when resumed", c->rule,
                  OPTIMS[k].name);
            CHECK(strcmp(digest[0], digest[2]) == 0, "%s, %s: other weights when run again",
                  c->rule, OPTIMS[k].name);
        }
}

/* A new rule of the kind, as after the loss of a rank, with what the old one kept. */
static void replace_rule(step_rig *rig, bool keep)
{
    static float copy[TD__SYNC_BLOCKS][4096];
    td__sync_ctx x = rig->sync->x;
    td__sync_block b[TD__SYNC_BLOCKS];
    int n = td__sync_states(rig->sync, b);
    for (int i = 0; keep && i < n; i++) {
        CHECK(b[i].count <= 4096, "%zu numbers", b[i].count);
        memcpy(copy[i], b[i].data, b[i].count * sizeof(float));
    }
    td__sync_destroy(rig->sync);
    rig->sync = NULL;
    CHECK_OK(td__sync_create(&x, &rig->sync));
    CHECK_OK(td__sync_meet_for(rig->sync, TD_MEET_BEGIN));
    CHECK(td__sync_states(rig->sync, b) == n || !keep, "other states");
    for (int i = 0; keep && i < n; i++)
        memcpy(b[i].data, copy[i], b[i].count * sizeof(float));
}

/* Ranks that lose one of them do not meet before: with Nesterov's momentum they are ahead of the
 * centre then. */
TEST(rules_go_on_in_mid_block)
{
    for (int i = 0; i < N_CASES; i++) {
        step_case c = {.m = &TRAIN_MODELS[0], .micro_batches = 4, .accumulate = 1};
        char digest[2][65];
        for (int k = 0; k < 2; k++) {
            step_rig rig = {0};
            double loss;
            CHECK_OK(step_rig_make(&c, NULL, &rig));
            rig.config = (td__sync_config){.rule = CASES[i].rule, .n_set = 1, .set = {{"tau", 4}}};
            for (int o = 0; o < 3 && CASES[i].option[o]; o++)
                rig.config.set[rig.config.n_set++] =
                    (td__sync_setting){CASES[i].option[o], CASES[i].value[o]};
            replace_rule(&rig, false);
            CHECK_OK(step_rig_run(&c, 0, &rig, &loss));
            if (k)
                replace_rule(&rig, true);
            CHECK_OK(step_rig_run(&c, 0, &rig, &loss));
            CHECK_OK(td_params_digest(rig.ps, digest[k]));
            step_rig_drop(&rig);
        }
        CHECK(strcmp(digest[0], digest[1]) == 0, "%s: other weights", CASES[i].rule);
    }
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* Ranks without a micro-batch would learn nothing. */
TEST(every_rank_has_rows_of_its_own)
{
    run u;
    sync_run_init(&u, SYNC_QUADRATIC, "ma");
    u.opts.micro_batches = 0;
    sync_run_on(&u, 4, NULL); /* which says so if it has to: 24 rows are one micro-batch */
    sim s = {.n = 4};
    simulate(&u, &CASES[0], 16, &s);
    for (int p = 0; p < P; p++)
        CHECK(fabs((double)u.last[p] - s.x[0][p]) < 1e-5, "param %d is %g, not %g", p,
              (double)u.last[p], s.x[0][p]);
    sync_run_end(&u);
}

/* ---- Consensus ------------------------------------------------------------------------------- */

typedef struct watch {
    td__observer base;
    double primal, dual; /* the last ones */
} watch;

static td_status see_step(td__observer *o, const td__step_event *e)
{
    watch *w = (watch *)o;
    for (int i = 0; i < e->n_notes; i++)
        *(strcmp(e->note[i].name, "primal") == 0 ? &w->primal : &w->dual) = e->note[i].value;
    return TD_OK;
}

/* Each rank has samples of its own: their minima differ, and only the duals bring ranks to that of
 * all. Averages alone stay off it. */
TEST(admm_reaches_the_optimum_of_all_ranks)
{
    double want[P];
    sync_ridge_optimum(want);
    for (int n = 2; n <= SYNC_MOST_RANKS; n++)
        for (int local = 0; local < (n == 2 ? 2 : 1); local++) {
            watch w = {.base = {.step = see_step}, .primal = 1, .dual = 1};
            double off = 0, size = 0;
            run u;
            sync_run_init(&u, SYNC_RIDGE_REGRESSION, local ? "local-sgd" : "admm");
            sync_run_set(&u, "tau", 10);
            u.opts.batch = SYNC_SAMPLES;
            u.opts.steps = 1200;
            u.opts.partition = "even";
            u.observer = &w.base;
            sync_run_on(&u, n, NULL);
            for (int p = 0; p < P; p++) {
                off += pow((double)u.last[p] - want[p], 2);
                size += want[p] * want[p];
            }
            off = sqrt(off / size);
            CHECK(local ? off > 1e-3 : off < 1e-5, "%s, %d ranks: %g off the optimum",
                  local ? "local-sgd" : "admm", n, off);
            CHECK(local || (w.primal < 1e-5 && w.dual < 1e-5), "residuals %g and %g", w.primal,
                  w.dual);
            sync_run_end(&u);
        }
}

/* Samples of a rank's own are for rules whose ranks have params of their own. */
TEST(a_partition_needs_params_of_ranks)
{
    static const int64_t WEIGHTS[] = {1, 2, 1};
    run u;
    sync_run_init(&u, SYNC_QUADRATIC, "easgd");
    td__sync_world w = {.ranks = 3, .starts = true};
    u.opts.partition = "weighted";
    CHECK_EQ_INT(td__train_check(&u.opts, &w), TD_EINVAL);
    u.opts.weights = WEIGHTS;
    u.opts.n_weights = 2;
    CHECK_EQ_INT(td__train_check(&u.opts, &w), TD_EINVAL);
    CHECK(strstr(td_last_error(), "data.weights: 2 numbers for 3 ranks"), "%s", td_last_error());
    u.opts.n_weights = 3;
    CHECK_OK(td__train_check(&u.opts, &w));
    sync_run_on(&u, 3, NULL);
    u.opts.sync.rule = NULL;
    CHECK_EQ_INT(td__train_check(&u.opts, &w), TD_EINVAL);
    CHECK(strstr(td_last_error(), "data.partition: not with the sync rule exact-"), "%s",
          td_last_error());
    sync_run_end(&u);
}

TEST(verification_needs_the_same_params)
{
    td_optim_opts optim = {.name = "sgd"};
    td__sync_job j = {.optim = &optim, .verify = 0.5};
    td__sync_world w = {.ranks = 2};
    CHECK_EQ_INT(td__sync_check(&(td__sync_config){.rule = "easgd"}, &j, &w), TD_EINVAL);
    CHECK(strstr(td_last_error(), "train.verify: not with the sync rule easgd"), "%s",
          td_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_follows_its_recurrence),
        cmocka_unit_test(a_warm_up_averages_after_each_of_its_steps),
        cmocka_unit_test(gossip_follows_its_recurrence_on_every_graph),
        cmocka_unit_test(one_rank_that_averages_after_every_step_has_the_weights_of_exact),
        cmocka_unit_test(synchronous_sgd_is_near_exact),
        cmocka_unit_test(what_a_rule_keeps_is_in_the_checkpoint),
        cmocka_unit_test(a_resumed_run_has_the_bits_of_one_that_went_on),
        cmocka_unit_test(rules_go_on_in_mid_block),
        cmocka_unit_test(every_rank_has_rows_of_its_own),
        cmocka_unit_test(admm_reaches_the_optimum_of_all_ranks),
        cmocka_unit_test(a_partition_needs_params_of_ranks),
        cmocka_unit_test(verification_needs_the_same_params),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
