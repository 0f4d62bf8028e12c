/* A sharded optimizer: at every stage, on any number of ranks, the digest is that of one rank.
 * Uneven slices, ranks without work, batches with fewer rows than shards, accumulation, clipping,
 * optimizers that look at whole tensors, row-sparse params; and that slices really are held in
 * slices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/train_models.h"
#include "tandem/ops.h"
#include "tandem/tandem.h"
#include "train/step.h"
#include "train/trainer.h"

enum { BATCH = 12, SAMPLES = 40, THREADS = 1 }; /* three full batches and one of four */

/* Tensors of many chunks, so that slices cut them. */
static td_status build_wide(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 20));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_relu(g, td_nn_linear(g, "one", x, 600, NULL));
    h = td_nn_dropout(g, td_relu(g, td_nn_linear(g, "two", h, 90, NULL)), 0.1);
    td_node *logits = td_nn_linear(g, "three", h, 5, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static const train_model WIDE = {"wide", "adamw", TD_F32, build_wide, {1, {20}}, false, 5, false};

typedef struct setup {
    const train_model *m;
    const char *optimizer;
    int shards, accumulate, stage;
    size_t bucket;
    double clip_norm;
    char digest[65]; /* what is expected; "" while it is being made */
    double loss;
} setup;

typedef struct rig {
    td__dataset *data;
    td__loader *loader;
    td__pool *pool;
    td__shard_set *set;
    td_params *ps;
    td__zero *zero;
    td_optimizer *o;
    td__step_engine *e;
} rig;

static td_status make_optimizer(const setup *s, td_comm *comm, rig *p)
{
    td_optim_opts o = {.name = s->optimizer, .lr = 0.05, .clip_norm = s->clip_norm};
    td__optim_range *own;
    int n;

    if (strcmp(s->optimizer, "sgd") == 0 && strcmp(s->m->name, "words") != 0)
        o.momentum = 0.9;
    if (!s->stage || !comm || td_comm_size(comm) == 1)
        return td_optimizer_create(&o, p->ps, &p->o);
    td__zero_opts z = {.comm = comm,
                       .params = p->ps,
                       .stage = s->stage,
                       .shards = s->shards,
                       .accumulate = s->accumulate,
                       .bucket_nbytes = s->bucket};
    TD_TRY(td__zero_create(&z, &p->zero));
    TD_TRY(td__zero_ranges(td__zero_map_of(p->zero), p->ps, td_comm_rank(comm), &own, &n));
    td_status st = td__optim_create_own(&o, p->ps, own, n, &p->o);
    td__free(own);
    if (s->stage == 3)
        td__zero_drop_all(p->zero);
    return st;
}

static td_status make_rig(const setup *s, td_comm *comm, rig *p)
{
    int64_t rows = (BATCH + s->shards - 1) / s->shards;
    const td_program *program;
    td__loader_opts l = {.batch = BATCH, .shuffle = true, .seed = 9, .prefetch = -1};
    td__shard_set_opts so = {.model = {.build = s->m->build},
                             .use = TD__USE_TRAIN,
                             .precision = s->m->precision,
                             .seed = 9};
    p->data = train_model_data(s->m, SAMPLES, 3);
    TD_TRY(td__loader_create(p->data, &l, &p->loader));
    TD_TRY(td__pool_create(s->stage == 1 ? 2 : THREADS, &p->pool));
    so.pool = p->pool;
    TD_TRY(td__shard_set_create(&so, &p->set));
    TD_TRY(td__shard_program(p->set, rows, &program, NULL));
    TD_TRY(td_params_create(program, 9, &p->ps));
    td__shard_set_params(p->set, p->ps);
    TD_TRY(td__shard_set_dataset(p->set, p->data, rows));
    TD_TRY(make_optimizer(s, comm, p));
    td__step_opts e = {.set = p->set,
                       .pool = p->pool,
                       .params = p->ps,
                       .optimizer = p->o,
                       .program = program,
                       .shards = s->shards,
                       .accumulate = s->accumulate,
                       .zero = p->zero,
                       .comm = comm};
    return td__step_engine_create(&e, &p->e);
}

static void drop_rig(rig *p)
{
    td__step_engine_destroy(p->e);
    td_optimizer_destroy(p->o);
    td__zero_destroy(p->zero);
    td__shard_set_destroy(p->set);
    td_params_destroy(p->ps);
    td__pool_destroy(p->pool);
    td__loader_destroy(p->loader);
    td__dataset_destroy(p->data);
}

/* Two passes over the data; losses become one number. */
static td_status run_steps(const setup *s, rig *p, double *losses)
{
    int64_t batches = td__loader_batches(p->loader);
    uint32_t step = 0;
    *losses = 0;
    for (int epoch = 0; epoch < 2; epoch++)
        for (int64_t k = 0; k < batches; k += s->accumulate) {
            int64_t end = k + s->accumulate < batches ? k + s->accumulate : batches;
            int64_t stop = end * BATCH < SAMPLES ? end * BATCH : SAMPLES;
            td__step_result r;
            td__step_begin(p->e, ++step, (int)(end - k), stop - k * BATCH);
            for (int64_t b = k; b < end; b++) {
                const td__batch *batch;
                td__loader_seek(p->loader, (uint64_t)epoch, b);
                TD_TRY(td__loader_next(p->loader, &batch));
                TD_TRY(td__step_batch(p->e, batch));
            }
            TD_TRY(td__step_end(p->e, 0.05, (td__step_say){0}, &r));
            *losses = *losses * 3 + r.loss;
        }
    return TD_OK;
}

static void body(ranks_ctx *r)
{
    const setup *s = r->arg;
    rig p = {0};
    char digest[65] = "";
    double loss = 0;
    td_status st = make_rig(s, r->comm, &p);
    if (!st)
        st = run_steps(s, &p, &loss);
    if (!st && p.zero && s->stage == 3)
        st = td__zero_gather_all(p.zero);
    if (!st)
        st = td_params_digest(p.ps, digest);
    drop_rig(&p);
    RANK_OK(r, st);
    RANK_CHECK(r, strcmp(digest, s->digest) == 0, "%s, %s, stage %d, %d shards x %d: other weights",
               s->m->name, s->optimizer, s->stage, s->shards, s->accumulate);
    RANK_CHECK(r, loss == s->loss, "%s, stage %d, %d shards x %d: loss %a, not %a", s->m->name,
               s->stage, s->shards, s->accumulate, loss, s->loss);
}

/* ---- What is held ---------------------------------------------------------------------------- */

/* Elements of optimizer state on this rank. */
static double held_elements(rig *p)
{
    size_t first, n, sum = 0, end = td_params_trainable(p->ps);
    float *state;
    for (size_t x = 0; (n = td__optim_state_part(p->o, 0, x, end, &first, &state)); x = first + n)
        sum += n;
    return (double)sum;
}

/* Elements in the middle of others' slices that are not 0, though weights are not 0. */
static int known_of_others(const rig *p, int rank)
{
    enum { MIDDLE = 2048 }; /* two pages from either end, so that they are given back */
    const td__zero_map *m = td__zero_map_of(p->zero);
    size_t all;
    const float *block = td_params_block(p->ps, &all);
    int n = 0;
    for (int b = 0; b < m->params; b++)
        for (int r = 0; r < m->size; r++)
            for (size_t i = td__zero_cut(m, b)[r] + MIDDLE;
                 r != rank && i + MIDDLE < td__zero_cut(m, b)[r + 1]; i++)
                n += block[i] != 0;
    return n;
}

static void held_body(ranks_ctx *r)
{
    const setup *s = r->arg;
    rig p = {0};
    double loss, held = 0, all = 0;
    int known = 0;
    td_status st = make_rig(s, r->comm, &p);
    if (!st)
        st = run_steps(s, &p, &loss);
    if (!st)
        held = all = held_elements(&p);
    if (!st)
        st = td_allreduce(r->comm, &all, &all, 1, TD_F64, TD_REDUCE_SUM, NULL);
    double want = st ? 0 : (double)td_params_trainable(p.ps);
    if (!st && s->stage == 3)
        known = known_of_others(&p, r->rank);
    drop_rig(&p);
    RANK_OK(r, st);
    RANK_CHECK(r, all == want, "%g elements of state on all ranks, not %g", all, want);
    RANK_CHECK(r, held < 1.5 * want / r->size, "%g of %g elements on rank %d", held, want, r->rank);
    RANK_CHECK(r, known == 0, "%d weights of others are still known", known);
}

TEST(slices_are_held_by_their_owners_alone)
{
    for (int stage = 1; stage <= 3; stage++) {
        setup s = {&WIDE, "adam", 4, 1, stage, 1 << 14, 0, "", 0};
        for (int n = 2; n <= 4; n++)
            ranks_run(n, NULL, held_body, &s);
    }
}

/* ---- The same bits --------------------------------------------------------------------------- */

/* What one rank alone makes of it. */
static void expect(setup *s)
{
    rig p = {0};
    CHECK_OK(make_rig(s, NULL, &p));
    CHECK_OK(run_steps(s, &p, &s->loss));
    CHECK_OK(td_params_digest(p.ps, s->digest));
    drop_rig(&p);
}

static void run_stages(setup s, int from, int to, const ranks_opts *opts)
{
    s.stage = 0;
    expect(&s);
    for (s.stage = 1; s.stage <= 3; s.stage++)
        for (int n = from; n <= to; n++)
            ranks_run(n, opts, body, &s);
}

TEST(every_model_has_the_same_bits_at_every_stage)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++)
        run_stages((setup){&TRAIN_MODELS[m], TRAIN_MODELS[m].optimizer, 4 + m % 2 * 3, 1 + m % 3, 0,
                           m % 2 ? 1024 : 0, m % 3 ? 0 : 0.5, "", 0},
                   1, 5, NULL);
}

TEST(every_optimizer_has_the_same_bits_at_every_stage)
{
    for (int i = 0; td_optimizer_list(i); i++)
        run_stages((setup){&WIDE, td_optimizer_list(i), 4, 1, 0, 1 << 14, i % 2 ? 0.3 : 0, "", 0},
                   2 + i % 2, 3 + i % 2, NULL);
}

TEST(shards_and_accumulation)
{
    static const int SHARDS[] = {1, 2, 3, 5, 8, 12};
    for (size_t i = 0; i < sizeof SHARDS / sizeof *SHARDS; i++)
        for (int accumulate = 1 + (int)i % 2; accumulate <= 4; accumulate += 2)
            run_stages((setup){i % 2 ? &WIDE : &TRAIN_MODELS[3], "adam", SHARDS[i], accumulate, 0,
                               2048, 0, "", 0},
                       3 - (int)i % 2, 4, NULL);
}

TEST(every_transport_has_the_same_bits)
{
    static const ranks_opts WAYS[] = {{.transport = "shm"},
                                      {.transport = "tcp"},
                                      {.transport = "shm", .per_host = 2},
                                      {.transport = "shm", .processes = true},
                                      {.transport = "tcp", .processes = true}};
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        run_stages((setup){i % 2 ? &WIDE : &TRAIN_MODELS[5], "lamb", 7, 1, 0, 1 << 13, 1, "", 0}, 3,
                   3, &WAYS[i]);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

typedef struct running {
    td__data *data;
    td__train_opts opts;
    uint64_t stop_after;   /* 0: never */
    uint64_t fail_at;      /* on rank 1; 0: never */
    td__train_result want; /* digest "": nothing is expected */
} running;

typedef struct watcher {
    td__observer head;
    atomic_int stop;
    uint64_t stop_after, fail_at;
} watcher;

static td_status on_step(td__observer *o, const td__step_event *e)
{
    watcher *w = (watcher *)o;
    if (e->step == w->stop_after)
        atomic_store(&w->stop, 1);
    if (e->step == w->fail_at)
        return TD_FAIL(TD_EIO, "the disk is full of sand");
    return TD_OK;
}

static td_status run_trainer(const running *u, td_comm *comm, int rank, td__train_result *out)
{
    static const td__model MODEL = {.build = spirals_build};
    td__train_opts o = u->opts;
    td__trainer *t;
    bool resumed;
    watcher w = {.head = {.step = on_step},
                 .stop_after = u->stop_after,
                 .fail_at = rank == 1 ? u->fail_at : 0};

    o.comm = comm;
    if (rank) {
        o.checkpoint_dir = NULL;
        o.blank = true;
    }
    TD_TRY(td__trainer_create(&o, &MODEL, u->data, &t));
    td_status st = td__trainer_observe(t, &w.head);
    if (!st)
        st = td__trainer_resume(t, &resumed);
    if (!st)
        st = td__trainer_run(t, &w.stop, out);
    td__trainer_destroy(t);
    return st;
}

static void run_body(ranks_ctx *r)
{
    const running *u = r->arg;
    td__train_result got;
    RANK_OK(r, run_trainer(u, r->comm, r->rank, &got));
    if (!u->want.digest[0])
        return;
    RANK_CHECK(r, strcmp(got.digest, u->want.digest) == 0, "stage %d: other weights", u->opts.zero);
    RANK_CHECK(r, got.best == u->want.best && got.train_loss == u->want.train_loss,
               "stage %d: best %a, not %a; loss %a, not %a", u->opts.zero, got.best, u->want.best,
               got.train_loss, u->want.train_loss);
}

static running new_run(void)
{
    running u = {.opts = {.batch = 24,
                          .steps = 9,
                          .threads = 1,
                          .shards = 6,
                          .eval_batch = 20,
                          .valid_every = 4,
                          .seed = 7,
                          .bucket_nbytes = 128,
                          .optim = {.name = "adam", .lr = 0.02, .clip_norm = 0.7},
                          .checkpoint_every = -1}};
    td__data_opts d = {.source = "spirals", .source_opts = {.count = 120, .seed = 4}, .seed = 4};
    CHECK_OK(td__data_open(&d, &u.data));
    CHECK_OK(run_trainer(&u, NULL, 0, &u.want));
    return u;
}

/* Saved at one stage on some ranks, gone on with at another on others. */
TEST(runs_go_on_at_another_stage)
{
    running u = new_run();
    td__train_result want = u.want;
    for (int from = 0; from <= 3; from++)
        for (int to = 0; to <= 3; to++) {
            u.opts.checkpoint_dir = check_tmpdir();
            u.opts.zero = from;
            u.want = (td__train_result){.digest = ""};
            u.stop_after = 5;
            ranks_run(2 + (from + to) % 3, NULL, run_body, &u);
            u.opts.zero = to;
            u.want = want;
            u.stop_after = 0;
            ranks_run(1 + (from + 2 * to) % 4, NULL, run_body, &u);
            check_tmpdir_remove();
        }
    td__data_close(u.data);
}

static void fail_body(ranks_ctx *r)
{
    td__train_result got;
    td_status st = run_trainer(r->arg, r->comm, r->rank, &got);
    RANK_CHECK(r,
               st == (r->rank == 1 ? TD_EIO : TD_EPEER) && strstr(td_last_error(), "full of sand"),
               "%s: %s", td_status_name(st), td_last_error());
}

TEST(a_rank_that_fails_ends_all)
{
    running u = new_run();
    u.fail_at = 3;
    for (u.opts.zero = 1; u.opts.zero <= 3; u.opts.zero++)
        ranks_run(3, u.opts.zero == 2 ? &(ranks_opts){.transport = "tcp"} : NULL, fail_body, &u);
    td__data_close(u.data);
}

static void refuse_body(ranks_ctx *r)
{
    running u = *(const running *)r->arg;
    td__train_result got;
    u.opts.threads = 2;
    RANK_STATUS(r, run_trainer(&u, r->comm, r->rank, &got), TD_EINVAL);
    u.opts.threads = 1;
    u.opts.reducer = "bf16";
    RANK_STATUS(r, run_trainer(&u, r->comm, r->rank, &got), TD_EINVAL);
}

TEST(what_does_not_go_together_is_refused)
{
    running u = new_run();
    u.opts.zero = 2;
    ranks_run(2, NULL, refuse_body, &u);
    td__data_close(u.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_has_the_same_bits_at_every_stage),
        cmocka_unit_test(every_optimizer_has_the_same_bits_at_every_stage),
        cmocka_unit_test(shards_and_accumulation),
        cmocka_unit_test(every_transport_has_the_same_bits),
        cmocka_unit_test(slices_are_held_by_their_owners_alone),
        cmocka_unit_test(runs_go_on_at_another_stage),
        cmocka_unit_test(a_rank_that_fails_ends_all),
        cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
