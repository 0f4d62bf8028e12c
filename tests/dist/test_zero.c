/* A sharded optimizer: at every stage, on any number of ranks, the digest is that of one rank.
 * Uneven shards, ranks without work, batches with fewer rows than micro-batches, accumulation,
 * clipping, optimizers that look at whole tensors, row-sparse params; and that shards really are
 * held in shards. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "support/check.h"
#include "support/step_rig.h"
#include "tandem/ops.h"
#include "tandem/tandem.h"
#include "parallel/sync.h"
#include "train/trainer.h"

/* Tensors of many chunks, so that shards cut them. */
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

/* ---- What is held ---------------------------------------------------------------------------- */

/* Elements of optimizer state on this rank. */
static double held_elements(step_rig *p)
{
    size_t first, n, sum = 0, end = td_params_trainable(p->ps);
    float *state;
    for (size_t x = 0; (n = td__optim_state_part(p->o, 0, x, end, &first, &state)); x = first + n)
        sum += n;
    return (double)sum;
}

/* Elements in the middle of others' shards that are not 0, though weights are not 0. */
static int known_of_others(const step_rig *p, int rank)
{
    enum { MIDDLE = 2048 }; /* two pages from either end, so that they are given back */
    const td__ownership *m = td__shards_ownership(p->shards);
    size_t all;
    const float *block = td_params_block(p->ps, &all);
    int n = 0;
    for (int b = 0; b < m->params; b++)
        for (int r = 0; r < m->ranks; r++)
            for (size_t i = td__shards_of(m, b)[r] + MIDDLE;
                 r != rank && i + MIDDLE < td__shards_of(m, b)[r + 1]; i++)
                n += block[i] != 0;
    return n;
}

static void held_body(ranks_ctx *r)
{
    const step_case *s = r->arg;
    step_rig p = {0};
    double loss, held = 0, all = 0;
    int known = 0;
    td_status st = step_rig_make(s, r->comm, &p);
    if (!st)
        st = step_rig_run(s, r->rank, &p, &loss);
    if (!st)
        held = all = held_elements(&p);
    if (!st)
        st = td_allreduce(r->comm, &all, &all, 1, TD_F64, TD_REDUCE_SUM, NULL);
    double want = st ? 0 : (double)td_params_trainable(p.ps);
    if (!st && s->stage == 3)
        known = known_of_others(&p, r->rank);
    step_rig_drop(&p);
    RANK_OK(r, st);
    RANK_CHECK(r, all == want, "%g elements of state on all ranks, not %g", all, want);
    RANK_CHECK(r, held < 1.5 * want / r->size, "%g of %g elements on rank %d", held, want, r->rank);
    RANK_CHECK(r, known == 0, "%d weights of others are still known", known);
}

TEST(shards_are_held_by_their_owners_alone)
{
    for (int stage = 1; stage <= 3; stage++) {
        step_case s = {.m = &WIDE,
                       .optimizer = "adam",
                       .micro_batches = 4,
                       .accumulate = 1,
                       .stage = stage,
                       .threads = stage == 1 ? 2 : 1,
                       .bucket_nbytes = 1 << 14};
        for (int n = 2; n <= 4; n++)
            ranks_run(n, NULL, held_body, &s);
    }
}

/* ---- The same bits --------------------------------------------------------------------------- */

static void run_stages(step_case s, int from, int to, const ranks_opts *opts)
{
    s.stage = 0;
    step_case_expect(&s);
    for (s.stage = 1; s.stage <= 3; s.stage++) {
        s.threads = s.stage == 1 ? 2 : 1; /* the others have one */
        for (int n = from; n <= to; n++) {
            s.mirrors = (n + s.stage) % 2;
            ranks_run(n, opts, step_case_body, &s);
        }
    }
}

TEST(every_model_has_the_same_bits_at_every_stage)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++)
        run_stages((step_case){.m = &TRAIN_MODELS[m],
                               .micro_batches = 4 + m % 2 * 3,
                               .accumulate = 1 + m % 3,
                               .bucket_nbytes = m % 2 ? 1024 : 0,
                               .clip_norm = m % 3 ? 0 : 0.5},
                   1, 5, NULL);
}

TEST(every_optimizer_has_the_same_bits_at_every_stage)
{
    for (int i = 0; td_optimizer_list(i); i++)
        run_stages((step_case){.m = &WIDE,
                               .optimizer = td_optimizer_list(i),
                               .micro_batches = 4,
                               .accumulate = 1,
                               .bucket_nbytes = 1 << 14,
                               .clip_norm = i % 2 ? 0.3 : 0},
                   2 + i % 2, 3 + i % 2, NULL);
}

TEST(micro_batches_and_accumulation)
{
    static const int MICRO_BATCHES[] = {1, 2, 3, 5, 8, 12};
    for (size_t i = 0; i < sizeof MICRO_BATCHES / sizeof *MICRO_BATCHES; i++)
        for (int accumulate = 1 + (int)i % 2; accumulate <= 4; accumulate += 2)
            run_stages((step_case){.m = i % 2 ? &WIDE : &TRAIN_MODELS[3],
                                   .optimizer = "adam",
                                   .micro_batches = MICRO_BATCHES[i],
                                   .accumulate = accumulate,
                                   .bucket_nbytes = 2048},
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
        run_stages((step_case){.m = i % 2 ? &WIDE : &TRAIN_MODELS[5],
                               .optimizer = "lamb",
                               .micro_batches = 7,
                               .accumulate = 1,
                               .bucket_nbytes = 1 << 13,
                               .clip_norm = 1},
                   3, 3, &WAYS[i]);
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
    RANK_CHECK(r, strcmp(got.digest, u->want.digest) == 0, "stage %d: other weights",
               u->opts.sync.zero);
    RANK_CHECK(r, got.best == u->want.best && got.train_loss == u->want.train_loss,
               "stage %d: best %a, not %a; loss %a, not %a", u->opts.sync.zero, got.best,
               u->want.best, got.train_loss, u->want.train_loss);
}

static running new_run(void)
{
    running u = {.opts = {.batch = 24,
                          .steps = 9,
                          .threads = 1,
                          .micro_batches = 6,
                          .eval_batch = 20,
                          .valid_every = 4,
                          .seed = 7,
                          .sync.bucket_nbytes = 128,
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
            u.opts.sync.zero = from;
            u.want = (td__train_result){.digest = ""};
            u.stop_after = 5;
            ranks_run(2 + (from + to) % 3, NULL, run_body, &u);
            u.opts.sync.zero = to;
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
    for (u.opts.sync.zero = 1; u.opts.sync.zero <= 3; u.opts.sync.zero++)
        ranks_run(3, u.opts.sync.zero == 2 ? &(ranks_opts){.transport = "tcp"} : NULL, fail_body,
                  &u);
    td__data_close(u.data);
}

static void refuse_body(ranks_ctx *r)
{
    running u = *(const running *)r->arg;
    td__train_result got;
    u.opts.threads = 2;
    RANK_STATUS(r, run_trainer(&u, r->comm, r->rank, &got), TD_EINVAL);
    u.opts.threads = 1;
    u.opts.sync.compressor = "bf16";
    RANK_STATUS(r, run_trainer(&u, r->comm, r->rank, &got), TD_EINVAL);
}

TEST(what_does_not_go_together_is_refused)
{
    running u = new_run();
    u.opts.sync.zero = 2;
    ranks_run(2, NULL, refuse_body, &u);
    td__data_close(u.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_has_the_same_bits_at_every_stage),
        cmocka_unit_test(every_optimizer_has_the_same_bits_at_every_stage),
        cmocka_unit_test(micro_batches_and_accumulation),
        cmocka_unit_test(every_transport_has_the_same_bits),
        cmocka_unit_test(shards_are_held_by_their_owners_alone),
        cmocka_unit_test(runs_go_on_at_another_stage),
        cmocka_unit_test(a_rank_that_fails_ends_all),
        cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
