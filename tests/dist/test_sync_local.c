/* Rules of local updates: each follows its published recurrence, which is computed here in double
 * on a quadratic; with one rank and an exchange after every step those that only average give the
 * weights of one rank; what they keep is in the checkpoint, also for another number of ranks; they
 * do not touch memory of a device. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "data/loader.h"
#include "graph/params.h"
#include "parallel/sync.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/step_rig.h"
#include "support/train_models.h"
#include "tandem/tandem.h"
#include "train/trainer.h"

enum { SAMPLES = 96, BATCH = 24, WIDTH = 5, MOST_RANKS = 4, SEED = 7 };
static const double LR = 0.1;

/* ---- A quadratic: the mean of (x w + b)^2 over rows ------------------------------------------ */

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, WIDTH));
    td_node *h = td_nn_linear(g, "one", x, 1, NULL);
    *out = (td__model_nodes){.loss = td_mean(g, td_square(g, h), NULL, 0, false),
                             .output = h,
                             .inputs = {"x"},
                             .n_inputs = 1};
    return TD_OK;
}

static const train_model QUADRATIC = {
    .name = "quadratic", .build = build, .x = {1, {WIDTH}}, .classes = 2};

typedef struct run {
    td__train_opts opts;
    td__data *data;
    bool resume;
    float first[WIDTH + 1], last[WIDTH + 1]; /* params, w then b, of rank 0 */
    td__train_result got;                    /* of rank 0 */
    uint64_t stop_after;                     /* step; then training goes on: 0: never */
} run;

typedef struct stopper {
    td__observer head;
    uint64_t after;
    atomic_int stop;
} stopper;

static td_status stop_after(td__observer *o, const td__step_event *e)
{
    stopper *s = (stopper *)o;
    if (e->step + 1 == s->after) /* told with the next one */
        atomic_store(&s->stop, 1);
    return TD_OK;
}

static td_status open_part(void *user, td__part part, td__dataset **out)
{
    (void)user;
    *out = NULL;
    if (part != TD_PART_TRAIN)
        return TD_ENOTSUP;
    *out = train_model_data(&QUADRATIC, SAMPLES, 3);
    return TD_OK;
}

static void read_params(td__trainer *t, float *out)
{
    const td_params *ps = td__trainer_params(t);
    const char *const NAMES[] = {"one.weight", "one.bias"};
    for (int i = 0; i < 2; i++) {
        td_param_info info = td_params_info(ps, td_params_find(ps, NAMES[i]));
        td__mapping map;
        CHECK_OK(td__params_map(ps, info.offset, info.count, TD_MAP_READ, &map));
        memcpy(out + i * WIDTH, map.at, map.nbytes);
        td__mem_map_drop(&map);
    }
}

static void body(ranks_ctx *r)
{
    run *u = r->arg;
    td__model model = {.build = build};
    td__train_opts o = u->opts;
    td__train_result got;
    td__trainer *t;
    stopper stop = {.head = {.step = stop_after}, .after = u->stop_after};
    bool found;
    o.comm = r->comm;
    if (r->rank)
        o.checkpoint_dir = NULL;
    RANK_OK(r, td__trainer_create(&o, &model, u->data, &t));
    if (r->rank == 0)
        read_params(t, u->first);
    if (u->resume && r->rank == 0)
        RANK_OK(r, td__trainer_resume(t, &found));
    if (u->stop_after) {
        RANK_OK(r, td__trainer_observe(t, &stop.head));
        RANK_OK(r, td__trainer_run(t, &stop.stop, &got));
        RANK_CHECK(r, got.end == TD_TRAIN_INTERRUPTED && got.step == u->stop_after, "step %d",
                   (int)got.step);
    }
    RANK_OK(r, td__trainer_run(t, NULL, &got));
    if (r->rank == 0) {
        read_params(t, u->last);
        u->got = got;
    }
    td__trainer_destroy(t);
}

static void start(run *u, const char *rule)
{
    *u = (run){.opts = {.batch = BATCH,
                        .steps = 12,
                        .threads = 1,
                        .micro_batches = 12,
                        .valid_every = -1,
                        .seed = SEED,
                        .prefetch = -1,
                        .optim = {.name = "sgd", .lr = LR},
                        .sync = {.rule = rule},
                        .checkpoint_every = -1}};
    CHECK_OK(td__data_open(
        &(td__data_opts){.source = "digits", .open_part = open_part, .open_user = u}, &u->data));
}

static void set(run *u, const char *option, double value)
{
    u->opts.sync.set[u->opts.sync.n_set++] = (td__sync_setting){option, value};
}

/* ---- The recurrences, in double -------------------------------------------------------------- */

enum { P = WIDTH + 1 };

typedef struct sim {
    int n;
    double x[MOST_RANKS][P], c[P], v[P];
    double a, b; /* options of the rule */
    bool ahead;  /* ranks began at c + a v */
} sim;

static double mean_of(const sim *s, int p)
{
    double sum = 0;
    for (int r = 0; r < s->n; r++)
        sum += s->x[r][p];
    return sum / s->n;
}

static void average(sim *s)
{
    for (int p = 0; p < P; p++) {
        double m = mean_of(s, p);
        for (int r = 0; r < s->n; r++)
            s->x[r][p] = m;
    }
}

static void bmuf(sim *s, bool nesterov)
{
    for (int p = 0; p < P; p++) {
        double g = mean_of(s, p) - (s->c[p] + (s->ahead ? s->a * s->v[p] : 0));
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
        double m = mean_of(s, p), c = s->c[p];
        for (int r = 0; r < s->n; r++)
            s->x[r][p] -= s->a / s->n * (s->x[r][p] - c);
        s->c[p] = (1 - s->a) * c + s->a * m;
    }
}

static void outer(sim *s)
{
    for (int p = 0; p < P; p++) {
        double g = s->c[p] - mean_of(s, p);
        s->v[p] = s->a * s->v[p] + g;
        s->c[p] -= s->b * (g + s->a * s->v[p]);
        for (int r = 0; r < s->n; r++)
            s->x[r][p] = s->c[p];
    }
}

/* One step of SGD of rank r on its rows of a batch. */
static void descend(sim *s, int r, const td__batch *b)
{
    int64_t begin = b->rows * r / s->n, end = b->rows * (r + 1) / s->n;
    const float *rows = b->field[0];
    double grad[P] = {0};
    for (int64_t i = begin; i < end; i++) {
        double h = s->x[r][WIDTH];
        for (int k = 0; k < WIDTH; k++)
            h += s->x[r][k] * (double)rows[i * WIDTH + k];
        for (int k = 0; k < P; k++)
            grad[k] +=
                2 * h * (k < WIDTH ? (double)rows[i * WIDTH + k] : 1) / (double)(end - begin);
    }
    for (int k = 0; k < P; k++)
        s->x[r][k] -= LR * grad[k];
}

typedef struct rule_case {
    const char *rule;
    void (*merge)(sim *s);
    bool centre; /* params are the centre in the end */
    const char *option[3];
    double value[3];
} rule_case;

static const rule_case CASES[] = {
    {"ma", average, false, {NULL}, {0}},
    {"local-sgd", average, false, {NULL}, {0}},
    {"bmuf", classical, true, {"momentum", "rate"}, {0.6, 0.9}},
    {"bmuf", nesterov, true, {"momentum", "rate", "nesterov"}, {0.6, 0.9, 1}},
    {"easgd", elastic, true, {"beta"}, {0.7}},
    {"diloco", outer, true, {"momentum", "rate"}, {0.8, 0.5}},
};
enum { N_CASES = sizeof CASES / sizeof *CASES };

static void start_case(run *u, const rule_case *c, int tau)
{
    start(u, c->rule);
    set(u, "tau", tau);
    for (int i = 0; i < 3 && c->option[i]; i++)
        set(u, c->option[i], c->value[i]);
}

static void simulate(const run *u, const rule_case *c, int tau, sim *s)
{
    td__dataset *d = train_model_data(&QUADRATIC, SAMPLES, 3);
    td__loader_opts o = {
        .batch = BATCH, .shuffle = true, .augment = true, .seed = SEED, .prefetch = -1};
    td__loader *l;
    int steps = (int)u->opts.steps;
    CHECK_OK(td__loader_create(d, &o, &l));
    for (int p = 0; p < P; p++) {
        s->c[p] = (double)u->first[p];
        for (int r = 0; r < s->n; r++)
            s->x[r][p] = s->c[p];
    }
    for (int step = 1; step <= steps; step++) {
        const td__batch *b;
        CHECK_OK(td__loader_next(l, &b));
        for (int r = 0; r < s->n; r++)
            descend(s, r, b);
        if (step % tau == 0 || step == steps)
            c->merge(s);
    }
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

TEST(every_rule_follows_its_recurrence)
{
    for (int i = 0; i < N_CASES; i++)
        for (int n = 1; n <= MOST_RANKS; n++)
            for (int tau = 3; tau <= 5; tau += 2) { /* 5: they meet in mid-block, at the end */
                const rule_case *c = &CASES[i];
                run u;
                start_case(&u, c, tau);
                ranks_run(n, NULL, body, &u);
                sim s = {.n = n, .a = c->value[0], .b = c->value[1]};
                simulate(&u, c, tau, &s);
                for (int p = 0; p < P; p++) {
                    double want = c->centre ? s.c[p] : s.x[0][p], got = (double)u.last[p];
                    CHECK(fabs(got - want) < 1e-5 && fabs((double)u.first[p] - want) > 1e-3,
                          "%s, %d ranks, tau %d: param %d is %.9g, not %.9g", c->rule, n, tau, p,
                          got, want);
                }
                td__data_close(u.data);
            }
}

/* D-PSGD: a step begins with the mean of the neighbourhood, and its gradient is of before. */
static void gossip(sim *s, int graph, const td__batch *b)
{
    sim old = *s;
    for (int r = 0; r < s->n; r++)
        for (int p = 0; p < P; p++) {
            bool near[MOST_RANKS] = {[0] = false};
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
        descend(&moved, r, b);
        for (int p = 0; p < P; p++)
            s->x[r][p] += moved.x[r][p] - old.x[r][p];
    }
}

TEST(gossip_follows_its_recurrence_on_every_graph)
{
    for (int graph = 0; graph < 3; graph++)
        for (int n = 1; n <= MOST_RANKS; n++) {
            run u;
            start(&u, "dpsgd");
            set(&u, "graph", graph);
            ranks_run(n, n == 3 ? &(ranks_opts){.transport = "tcp"} : NULL, body, &u);
            td__dataset *d = train_model_data(&QUADRATIC, SAMPLES, 3);
            td__loader_opts o = {
                .batch = BATCH, .shuffle = true, .augment = true, .seed = SEED, .prefetch = -1};
            td__loader *l;
            sim s = {.n = n};
            CHECK_OK(td__loader_create(d, &o, &l));
            for (int r = 0; r < n; r++)
                for (int p = 0; p < P; p++)
                    s.x[r][p] = (double)u.first[p];
            for (int step = 1; step <= (int)u.opts.steps; step++) {
                const td__batch *b;
                CHECK_OK(td__loader_next(l, &b));
                gossip(&s, graph, b);
            }
            for (int p = 0; p < P; p++)
                CHECK(fabs((double)u.last[p] - mean_of(&s, p)) < 1e-5,
                      "graph %d, %d ranks: param %d is %.9g, not %.9g", graph, n, p,
                      (double)u.last[p], mean_of(&s, p));
            td__loader_destroy(l);
            td__dataset_destroy(d);
            td__data_close(u.data);
        }
}

/* ---- Bits ------------------------------------------------------------------------------------ */

TEST(one_rank_that_averages_after_every_step_has_the_weights_of_exact)
{
    static const char *const RULES[] = {"ma", "local-sgd", "ssgd", "dpsgd"};
    run exact;
    start(&exact, NULL);
    ranks_run(1, NULL, body, &exact);
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        run u;
        start(&u, RULES[i]);
        if (i < 2)
            set(&u, "tau", 1);
        ranks_run(1, NULL, body, &u);
        CHECK(strcmp(u.got.digest, exact.got.digest) == 0, "%s: other weights", RULES[i]);
        td__data_close(u.data);
    }
    td__data_close(exact.data);
}

/* Synchronous SGD is the exact rule but for the order of sums. */
TEST(synchronous_sgd_is_near_exact)
{
    run exact, u;
    start(&exact, NULL);
    ranks_run(1, NULL, body, &exact);
    for (int n = 2; n <= MOST_RANKS; n++)
        for (int tcp = 0; tcp < 2; tcp++) {
            start(&u, "ssgd");
            ranks_run(n, tcp ? &(ranks_opts){.transport = "tcp"} : NULL, body, &u);
            for (int p = 0; p < P; p++)
                CHECK(fabsf(u.last[p] - exact.last[p]) < 1e-6f, "%d ranks: param %d is %g, not %g",
                      n, p, (double)u.last[p], (double)exact.last[p]);
            td__data_close(u.data);
        }
    td__data_close(exact.data);
}

/* A run that is resumed ends like one that was not, on as many ranks; on others it goes on from the
 * centre. On a device the bits are the same. */
TEST(what_a_rule_keeps_is_in_the_checkpoint)
{
    for (int i = 0; i < N_CASES; i++) {
        run whole, u, far;
        start_case(&whole, &CASES[i], 4);
        whole.opts.checkpoint_dir = check_tmpdir();
        whole.opts.checkpoint_every = 6;
        ranks_run(2, NULL, body, &whole);
        start_case(&u, &CASES[i], 4);
        u.opts.checkpoint_dir = check_tmpdir();
        u.opts.checkpoint_every = 6;
        u.opts.steps = 6;
        ranks_run(2, NULL, body, &u);
        u.opts.steps = 12;
        u.resume = true;
        ranks_run(2, NULL, body, &u);
        CHECK(strcmp(u.got.digest, whole.got.digest) == 0, "%s: other weights when resumed",
              CASES[i].rule);
        u.opts.steps = 18;
        ranks_run(3, NULL, body, &u);
        CHECK(u.got.end == TD_TRAIN_DONE && u.got.step == 18, "%s: not on three ranks",
              CASES[i].rule);
        start_case(&far, &CASES[i], 4);
        far.opts.backend = "far";
        far.opts.checkpoint_dir = check_tmpdir();
        far.opts.checkpoint_every = 6;
        ranks_run(2, NULL, body, &far);
        CHECK(strcmp(far.got.digest, whole.got.digest) == 0, "%s: other weights on far",
              CASES[i].rule);
        td__data_close(whole.data);
        td__data_close(u.data);
        td__data_close(far.data);
    }
}

/* Optimizers with a state of their own; a batch whose row is one rank's, so that the other makes
 * fewer updates; and training that goes on in the same process. */
TEST(a_resumed_run_has_the_bits_of_one_that_went_on)
{
    static const rule_case GOSSIP = {"dpsgd", NULL, false, {NULL}, {0}};
    static const td_optim_opts OPTIMS[] = {{.name = "sgd", .lr = 0.05, .momentum = 0.9},
                                           {.name = "adam", .lr = 0.05}};
    for (int i = 0; i <= N_CASES; i++)
        for (int k = 0; k < 2; k++) {
            const rule_case *c = i < N_CASES ? &CASES[i] : &GOSSIP;
            const char *digest[3];
            run u[3]; /* whole, resumed, stopped and gone on */
            for (int j = 0; j < 3; j++) {
                start(&u[j], c->rule);
                if (i < N_CASES)
                    set(&u[j], "tau", 4);
                for (int o = 0; o < 3 && c->option[o]; o++)
                    set(&u[j], c->option[o], c->value[o]);
                u[j].opts.batch = SAMPLES / 5; /* and one row */
                u[j].opts.optim = OPTIMS[k];
                u[j].opts.checkpoint_dir = check_tmpdir();
                u[j].opts.checkpoint_every = 6;
                if (j == 1) {
                    u[j].opts.steps = 6;
                    ranks_run(3, NULL, body, &u[j]);
                    u[j].opts.steps = 12;
                    u[j].resume = true;
                }
                u[j].stop_after = j == 2 ? 6 : 0;
                ranks_run(3, NULL, body, &u[j]);
                digest[j] = u[j].got.digest;
                td__data_close(u[j].data);
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
    start(&u, "ma");
    u.opts.micro_batches = 0;
    ranks_run(4, NULL, body, &u); /* which says so if it has to: 24 rows are one micro-batch */
    sim s = {.n = 4};
    simulate(&u, &CASES[0], 16, &s);
    for (int p = 0; p < P; p++)
        CHECK(fabs((double)u.last[p] - s.x[0][p]) < 1e-5, "param %d is %g, not %g", p,
              (double)u.last[p], s.x[0][p]);
    td__data_close(u.data);
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
        cmocka_unit_test(gossip_follows_its_recurrence_on_every_graph),
        cmocka_unit_test(one_rank_that_averages_after_every_step_has_the_weights_of_exact),
        cmocka_unit_test(synchronous_sgd_is_near_exact),
        cmocka_unit_test(what_a_rule_keeps_is_in_the_checkpoint),
        cmocka_unit_test(a_resumed_run_has_the_bits_of_one_that_went_on),
        cmocka_unit_test(rules_go_on_in_mid_block),
        cmocka_unit_test(every_rank_has_rows_of_its_own),
        cmocka_unit_test(verification_needs_the_same_params),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
