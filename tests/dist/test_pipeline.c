/* Pipelines end with the bits of one rank, also where many values go from chunk to chunk and where
 * stages update one after the other.
 *
 * Those that are not emptied between steps follow their recurrence, to the bit: a rule of this test
 * computes it on one rank, which keeps the last versions of all weights,
 *
 *     w(t+1) = update of w(t) with the gradient at w(max(t - delay, t0))
 *
 * where t0 is the step after which the pipeline was last empty: every so many steps, and wherever
 * params are evaluated or saved. With one stage it is the exact rule. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/params.h"
#include "graph/phases.h"
#include "graph/place_by_cost.h"
#include "optim/optimizer.h"
#include "parallel/sync.h"
#include "pipeline/sync_pipeline_impl.h"
#include "plan/schedule.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/train_models.h"
#include "tandem/place.h"
#include "tandem/tandem.h"
#include "train/trainer.h"

/* ---- The recurrence -------------------------------------------------------------------------- */

enum { MOST_VERSIONS = 8 };

static int delay_of_test, window_of_test;

typedef struct behind {
    td__sync base;
    size_t count;
    float *live, *version[MOST_VERSIONS]; /* (count) */
    int begun;                            /* steps since the pipeline was empty */
} behind;

static td_status behind_create(td__sync *s)
{
    behind *b = (behind *)s;
    b->count = td__params_total(s->x.step.params);
    b->live = td__calloc(b->count, sizeof *b->live);
    for (int v = 0; v <= delay_of_test; v++)
        b->version[v] = td__calloc(b->count, sizeof **b->version);
    return TD_OK;
}

static void behind_destroy(td__sync *s)
{
    behind *b = (behind *)s;
    td__free(b->live);
    for (int v = 0; v <= delay_of_test; v++)
        td__free(b->version[v]);
}

static void copy(behind *b, float *to, const float *from)
{
    memcpy(to, from, b->count * sizeof *to);
    td_params_touch(b->base.x.step.params);
}

static td_status behind_begin(td__sync *s, const td__sync_place *at)
{
    behind *b = (behind *)s;
    float *params = td_params_block(s->x.step.params, NULL);
    (void)at;
    for (int v = 0; !b->begun && v <= delay_of_test; v++)
        copy(b, b->version[v], params);
    copy(b, b->live, params);
    copy(b, params, b->version[b->begun % (delay_of_test + 1)]);
    return TD_OK;
}

static td_status behind_step(td__sync *s, double lr, td__step_result *out)
{
    behind *b = (behind *)s;
    float *params = td_params_block(s->x.step.params, NULL);
    copy(b, params, b->live);
    td_status st = td__step_update(s->engine, lr, NULL);
    td__step_done(s->engine, out);
    copy(b, b->version[b->begun % (delay_of_test + 1)], params);
    b->begun = (b->begun + 1) % window_of_test;
    return st;
}

static td_status behind_meet(td__sync *s, td__sync_meet why)
{
    if (why != TD_MEET_BEGIN)
        ((behind *)s)->begun = 0;
    return TD_OK;
}

static const td__sync_ops BEHIND = {.name = "behind",
                                    .help = "gradients of old weights",
                                    .promise = "a recurrence",
                                    .size = sizeof(behind),
                                    .create = behind_create,
                                    .destroy = behind_destroy,
                                    .begin = behind_begin,
                                    .step = behind_step,
                                    .meet = behind_meet};

/* Instead of the library's own list (parallel/sync_rules.c). */
const td__sync_ops *const td__sync_rules[] = {&BEHIND,
#define TD_SYNC(id) &td__sync_##id,
#include "parallel/sync.def"
#undef TD_SYNC
                                              NULL};

/* ---- Runs ------------------------------------------------------------------------------------ */

enum { SAMPLES = 90, BATCH = 24 }; /* the last batch of an epoch is smaller */

typedef struct run {
    const train_model *m;
    td__train_opts opts;
    td__data *data;
    bool resume;
    td__train_result got; /* of rank 0 */
} run;

static td_status open_part(void *user, td__part part, td__dataset **out)
{
    const run *u = user;
    *out = NULL;
    if (part == TD_PART_TEST)
        return TD_ENOTSUP;
    *out = train_model_data(u->m, part == TD_PART_TRAIN ? SAMPLES : 20, 3 + (unsigned)part);
    return TD_OK;
}

static td_status run_rank(const run *u, td_comm *comm, int rank, td__train_result *out)
{
    td__model model = {.build = u->m->build};
    td__train_opts o = u->opts;
    td__trainer *t = NULL;
    bool found;
    o.comm = comm;
    if (rank)
        o.checkpoint_dir = NULL;
    td_status st = td__trainer_create(&o, &model, u->data, &t);
    if (!st && u->resume && rank == 0)
        st = td__trainer_resume(t, &found);
    if (!st)
        st = td__trainer_run(t, NULL, out);
    td__trainer_destroy(t);
    return st;
}

static void body(ranks_ctx *r)
{
    run *u = r->arg;
    td__train_result got = {0};
    RANK_OK(r, run_rank(u, r->comm, r->rank, &got));
    if (r->rank == 0)
        u->got = got;
}

static const train_model *model_of(const char *name)
{
    for (int i = 0; i < N_TRAIN_MODELS; i++)
        if (strcmp(TRAIN_MODELS[i].name, name) == 0)
            return &TRAIN_MODELS[i];
    fail_msg("no model %s", name);
    return NULL;
}

static void start(run *u, const char *model, const char *optimizer, int micro_batches, int steps)
{
    *u = (run){.m = model_of(model)};
    u->opts = (td__train_opts){.batch = BATCH,
                               .steps = (uint64_t)steps,
                               .threads = 1,
                               .micro_batches = micro_batches,
                               .valid_every = 7,
                               .seed = 7,
                               .optim = {.name = optimizer, .lr = 0.01},
                               .checkpoint_every = -1};
    CHECK_OK(td__data_open(
        &(td__data_opts){.source = "digits", .open_part = open_part, .open_user = u}, &u->data));
}

static void pipeline(run *u, const char *schedule, int stages)
{
    u->opts.sync.rule = NULL;
    u->opts.sync.schedule = schedule;
    u->opts.sync.mesh.size[TD_AXIS_PIPELINE] = stages;
}

/* ---- The bits of one rank -------------------------------------------------------------------- */

enum { MANY = 40 };

/* Many layers on the first rank whose outputs are all read by the second. */
static td_status wide(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    td_node *h = NULL, *each[MANY];
    char name[16];
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 20));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "narrow%d", i);
        each[i] = td_tanh(g, td_nn_linear(g, name, x, 3 + i % 5, NULL));
        td_node_place(g, each[i], 0);
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "wide%d", i);
        td_node *part = td_nn_linear(g, name, each[i], 6, NULL);
        td_node_place(g, part, 1);
        h = h ? td_add(g, h, part) : part;
    }
    td_node *logits = td_nn_linear(g, "last", td_tanh(g, h), 5, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static void check_same(run *u, int ranks, const char *what)
{
    td__train_result one;
    run alone = *u;
    alone.opts.sync.mesh.size[TD_AXIS_PIPELINE] = 0;
    CHECK_OK(run_rank(&alone, NULL, 0, &one));
    ranks_run(ranks, NULL, body, u);
    CHECK(strcmp(u->got.digest, one.digest) == 0, "%s: other weights than on one rank", what);
}

TEST(any_number_of_values_goes_from_chunk_to_chunk)
{
    static const train_model WIDE = {"wide", "sgd", TD_F32, wide, {1, {20}}, false, 5, true};
    run u;
    start(&u, "mlp", "adamw", 4, 6);
    u.m = &WIDE;
    pipeline(&u, "1f1b", 2);
    check_same(&u, 2, "40 values");
    td__data_close(u.data);
}

TEST(stages_update_together_or_in_order)
{
    static const struct {
        const char *model, *schedule;
        int stages, replicas;
        double clip;
    } CASES[] = {{"mlp", "1f1b", 3, 1, 0},
                 {"gpt", "zb-v", 2, 2, 0.5}, /* the norm of all stages comes before the turn */
                 {"cnn", "gpipe", 2, 2, 0},
                 {"gpt", "interleaved", 2, 1, 0}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        run u;
        start(&u, CASES[i].model, "adamw", 4, 6);
        u.opts.optim.clip_norm = CASES[i].clip;
        u.opts.sync.in_order = 1;
        pipeline(&u, CASES[i].schedule, CASES[i].stages);
        check_same(&u, CASES[i].stages * CASES[i].replicas, CASES[i].schedule);
        td__data_close(u.data);
    }
}

/* ---- Schedules with several chunks per stage, on three and four stages ----------------------- */

enum { LAYERS = 9 };

static td_status deep(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    char name[16];
    (void)user;
    td_node *h = td_input(g, "x", TD_F32, TD_SHAPE(rows, 20));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "deep%d", i);
        h = td_tanh(g, td_nn_linear(g, name, h, 8 + 3 * (i % 4), NULL));
    }
    td_node *logits = td_nn_linear(g, "last", h, 5, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}
static const train_model DEEP = {"deep", "sgd", TD_F32, deep, {1, {20}}, false, 5, true};

/* With fewer micro-batches than stages, as many, and more; where they are no multiple of the
 * stages; with replicas that have unlike numbers of them. */
TEST(several_chunks_on_several_stages)
{
    static const char *const SCHEDULES[] = {"interleaved", "zb-v", "dualpipe-v"};
    static const struct {
        int stages, replicas, micro_batches;
    } CASES[] = {{3, 1, 2}, {3, 1, 8}, {4, 1, 1}, {4, 1, 3}, {4, 1, 8}, {3, 2, 3}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__train_result one;
        run u;
        start(&u, "mlp", "adamw", CASES[i].micro_batches, 5);
        u.m = &DEEP;
        CHECK_OK(run_rank(&u, NULL, 0, &one));
        for (size_t k = 0; k < sizeof SCHEDULES / sizeof *SCHEDULES; k++) {
            const char *transport = (i + k) % 2 ? "tcp" : NULL;
            pipeline(&u, SCHEDULES[k], CASES[i].stages);
            ranks_run(CASES[i].stages * CASES[i].replicas, &(ranks_opts){.transport = transport},
                      body, &u);
            CHECK(strcmp(u.got.digest, one.digest) == 0,
                  "%s, %d stages, %d replicas, %d micro-batches: other weights than on one rank",
                  SCHEDULES[k], CASES[i].stages, CASES[i].replicas, CASES[i].micro_batches);
        }
        td__data_close(u.data);
    }
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static td_status cut_deep(int chunks, td__cut **out)
{
    td__model_nodes nodes = {0};
    td_program *p = NULL;
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_status st = deep(NULL, g, 4, &nodes);
    st = st ? st : td__graph_place_by_cost(g, nodes.loss, &(td__stages){.places = chunks});
    st = st ? st : td__program_create_phased(g, nodes.loss, NULL, &p);
    st = st ? st : td__program_cut(p, out);
    td_program_destroy(p);
    td_graph_destroy(g);
    return st;
}

/* However many a run has asked for, the last two stay where they are. */
TEST(the_last_two_plans_stay)
{
    const td__pipeline_planned *one, *all;
    td_optimizer *optimizer;
    td_params *ps;
    double cost[6];
    td__sync_config config = {.rule = NULL};
    td__pipeline_rule p = {.mesh = {{1, 2, 1}}, .shape = {.stages = 2, .replicas = 1}, .chunks = 2};
    CHECK_OK(td__schedule_find("1f1b", &p.schedule));
    CHECK_OK(cut_deep(2, &p.cut));
    CHECK_OK(td_params_create(p.cut->pieces[0].program, 1, &ps));
    CHECK_OK(td_optimizer_create(&(td_optim_opts){.name = "sgd", .lr = 1}, ps, &optimizer));
    td__pipeline_costs(p.cut, cost);
    p.costs = cost;
    p.base.x.config = &config;
    p.base.x.step.optimizer = optimizer;
    for (int first = 1; first <= TD__PIPELINE_PLANS; first++) {
        for (int n = 1; n <= TD__PIPELINE_PLANS; n++)
            CHECK_OK(td__pipeline_plan_for(&p, n, &all));
        CHECK_OK(td__pipeline_plan_for(&p, first, &one));
        CHECK_OK(td__pipeline_plan_for(&p, 10 + first, &all));
        CHECK(one != all && one->micro_batches == first && one->plan,
              "the plan of %d micro-batches has given way to the next one", first);
        CHECK_OK(td__pipeline_plan_through(&p, 3, 2, &one)); /* 1f1b takes no more for more */
        CHECK(one && one->micro_batches == 6, "no list of two batches");
    }
    td__pipeline_drop_plans(&p);
    td_optimizer_destroy(optimizer);
    td_params_destroy(ps);
    td__cut_destroy(p.cut);
}

/* ---- Recurrences ----------------------------------------------------------------------------- */

/* The digest of the recurrence, on one rank. */
static void expect(run *u, const char *schedule, int stages, char digest[65])
{
    const td__schedule_def *d;
    td__train_result got;
    run one = *u;
    CHECK_OK(td__schedule_find(schedule, &d));
    delay_of_test = d->delay(stages);
    window_of_test = d->window;
    one.opts.checkpoint_dir = u->opts.checkpoint_dir ? check_tmpdir() : NULL;
    one.opts.sync.rule = "behind";
    CHECK_OK(run_rank(&one, NULL, 0, &got));
    snprintf(digest, 65, "%s", got.digest);
}

static void check_case(const char *model, const char *optimizer, const char *schedule, int stages,
                       int replicas, int micro_batches, int steps)
{
    run u;
    char want[65];
    start(&u, model, optimizer, micro_batches, steps);
    expect(&u, schedule, stages, want);
    pipeline(&u, schedule, stages);
    ranks_run(stages * replicas, NULL, body, &u);
    CHECK(strcmp(u.got.digest, want) == 0,
          "%s, %s: %s with %d stages, %d replicas, %d micro-batches does not follow its recurrence",
          model, optimizer, schedule, stages, replicas, micro_batches);
    td__data_close(u.data);
}

TEST(pipedream_follows_its_recurrence)
{
    check_case("mlp", "sgd", "pipedream", 2, 1, 4, 10);
    check_case("mlp", "adamw", "pipedream", 3, 1, 1, 20);
    check_case("mlp", "adamw", "pipedream", 3, 2, 6, 16);
    check_case("gpt", "adamw", "pipedream", 3, 1, 2, 10); /* tied weights */
    check_case("cnn", "sgd", "pipedream", 2, 1, 3, 10);   /* states */
}

TEST(two_versions_follow_their_recurrence)
{
    check_case("mlp", "sgd", "pipedream-2bw", 2, 1, 4, 10);
    check_case("mlp", "adamw", "pipedream-2bw", 3, 1, 1, 20);
    check_case("mlp", "adamw", "pipedream-2bw", 3, 2, 6, 16);
    check_case("gpt", "adamw", "pipedream-2bw", 3, 1, 4, 10);
    check_case("words", "adam", "pipedream-2bw", 2, 1, 8, 10);
}

/* Longer than a window, with nothing else that empties the pipeline. */
TEST(a_window_ends)
{
    for (int i = 0; i < 2; i++) {
        run u;
        char want[65];
        const char *schedule = i ? "pipedream-2bw" : "pipedream";
        start(&u, "mlp", "sgd", 2, 70);
        u.opts.valid_every = -1;
        expect(&u, schedule, 2, want);
        pipeline(&u, schedule, 2);
        ranks_run(2, &(ranks_opts){.transport = "tcp"}, body, &u);
        assert_string_equal(u.got.digest, want);
        td__data_close(u.data);
    }
}

/* The weights are old, so the bits are others; with one stage they are not. */
TEST(one_stage_is_exact)
{
    run u;
    td__train_result exact;
    start(&u, "mlp", "sgd", 4, 10);
    CHECK_OK(run_rank(&u, NULL, 0, &exact));
    for (int i = 0; i < 2; i++) {
        const char *schedule = i ? "pipedream-2bw" : "pipedream";
        char want[65];
        expect(&u, schedule, 1, want);
        assert_string_equal(want, exact.digest);
        pipeline(&u, schedule, 1);
        ranks_run(2, NULL, body, &u);
        assert_string_equal(u.got.digest, exact.digest);
        pipeline(&u, schedule, 2);
        ranks_run(2, NULL, body, &u);
        CHECK(strcmp(u.got.digest, exact.digest) != 0, "%s has the bits of one rank", schedule);
        u.opts.sync.mesh.size[TD_AXIS_PIPELINE] = 0;
    }
    td__data_close(u.data);
}

/* A checkpoint is of an empty pipeline, and the run that goes on with it does what the one that
 * wrote it did. */
TEST(a_checkpoint_is_of_an_empty_pipeline)
{
    run u;
    char whole[65];
    start(&u, "mlp", "adamw", 4, 12);
    u.opts.checkpoint_every = 4;
    u.opts.checkpoint_dir = check_tmpdir();
    pipeline(&u, "pipedream", 3);
    ranks_run(3, NULL, body, &u);
    snprintf(whole, sizeof whole, "%s", u.got.digest);
    u.opts.checkpoint_dir = check_tmpdir();
    u.opts.steps = 8;
    ranks_run(3, NULL, body, &u);
    u.opts.steps = 12;
    u.resume = true;
    ranks_run(3, NULL, body, &u);
    assert_string_equal(u.got.digest, whole);
    td__data_close(u.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_values_goes_from_chunk_to_chunk),
        cmocka_unit_test(stages_update_together_or_in_order),
        cmocka_unit_test(several_chunks_on_several_stages),
        cmocka_unit_test(the_last_two_plans_stay),
        cmocka_unit_test(pipedream_follows_its_recurrence),
        cmocka_unit_test(two_versions_follow_their_recurrence),
        cmocka_unit_test(a_window_ends),
        cmocka_unit_test(one_stage_is_exact),
        cmocka_unit_test(a_checkpoint_is_of_an_empty_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
