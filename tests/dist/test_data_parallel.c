/* Synchronous data parallelism: the digest of a run does not depend on the number of ranks, nor on
 * how they reach each other; uneven ranges, ranks without work, batches with fewer rows than
 * micro-batches, accumulation, resuming with another number of ranks, stopping, failures. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "graph/runner.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/sanitized.h"
#include "support/step_rig.h"
#include "tandem/ops.h"
#include "tandem/tandem.h"
#include "checkpoint/checkpoint.h"
#include "parallel/sync.h"
#include "train/trainer.h"

/* Races and bad memory show on few ranks as well as on many. */
enum { MOST_RANKS = SANITIZED ? 5 : 9 };

/* ---- Steps ----------------------------------------------------------------------------------- */

TEST(every_model_has_the_same_bits_on_any_number_of_ranks)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        step_case s = {.m = &TRAIN_MODELS[m],
                       .micro_batches = 4 + m % 2 * 3,
                       .accumulate = 1 + m % 4,
                       .threads = 1,
                       .clip_norm = m % 3 ? 0 : 0.5};
        step_case_expect(&s);
        for (int n = 1; n <= MOST_RANKS; n++)
            ranks_run(n, NULL, step_case_body, &s);
        if (m % 4 == 1)
            ranks_run(16, NULL, step_case_body, &s);
    }
}

TEST(micro_batches_and_accumulation)
{
    static const int MICRO_BATCHES[] = {1, 2, 3, 5, 8, 12};
    for (size_t i = 0; i < sizeof MICRO_BATCHES / sizeof *MICRO_BATCHES; i++)
        for (int accumulate = 1; accumulate <= 4; accumulate++) {
            step_case s = {.m = &TRAIN_MODELS[i % 2 ? 3 : 0],
                           .micro_batches = MICRO_BATCHES[i],
                           .accumulate = accumulate,
                           .threads = 2};
            step_case_expect(&s);
            for (int n = 2; n <= 7 && n <= MOST_RANKS; n += 1 + accumulate % 2)
                ranks_run(n, NULL, step_case_body, &s);
        }
}

/* Shared memory, messages, and both: two hosts of unequal size. */
TEST(every_transport_has_the_same_bits)
{
    static const ranks_opts WAYS[] = {{.transport = "shm"},
                                      {.transport = "tcp"},
                                      {.transport = "shm", .per_host = 3},
                                      {.transport = "shm", .processes = true},
                                      {.transport = "tcp", .processes = true}};
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        for (int m = 0; m < N_TRAIN_MODELS; m += 1 + (int)i % 2) {
            step_case s = {.m = &TRAIN_MODELS[m],
                           .micro_batches = 7,
                           .accumulate = 1 + (int)i % 3,
                           .threads = 1,
                           .clip_norm = 1};
            step_case_expect(&s);
            ranks_run(2 + (m + (int)i) % 4, &WAYS[i], step_case_body, &s);
        }
}

/* Buckets of one cache line up to the whole block; threads that are through at different times; an
 * update that waits for all of them. The largest models have not quite as many of them: messages by
 * the ten thousand take minutes where ranks share one busy core. */
TEST(buckets_of_any_size_have_the_same_bits)
{
    static const size_t NBYTES[] = {1, 256, 2000, 20000, 1 << 30};
    for (int i = 0; i < (int)(sizeof NBYTES / sizeof *NBYTES); i++)
        for (int m = i % 2; m < N_TRAIN_MODELS; m += 2) {
            step_case s = {.m = &TRAIN_MODELS[m],
                           .micro_batches = 3 + 2 * i,
                           .accumulate = 1 + (i + m) % 3,
                           .threads = 1 + m % 3};
            step_case_expect(&s);
            bool large = strncmp(s.m->name, "gpt", 3) == 0;
            s.bucket_nbytes = large && NBYTES[i] < 1000 ? 1000 : NBYTES[i];
            s.late = (i + m) % 2;
            ranks_run(2 + (i + m) % 4, &(ranks_opts){.transport = "tcp"}, step_case_body, &s);
        }
}

/* One after the other, in pairs, all at once; micro-batches of two sizes and empty ones among them,
 * and others before them on the same thread. */
TEST(micro_batches_side_by_side_have_the_same_bits)
{
    static const int IN_FLIGHT[] = {1, 2, 3, 16}, MICRO_BATCHES[] = {4, 7, 9, 16, 26};
    for (int i = 0; i < (int)(sizeof MICRO_BATCHES / sizeof *MICRO_BATCHES); i++)
        for (int m = i % 2; m < N_TRAIN_MODELS; m += 2) {
            step_case s = {.m = &TRAIN_MODELS[m],
                           .micro_batches = MICRO_BATCHES[i],
                           .accumulate = 1 + m % 2,
                           .threads = 1 + (i + m) % 2,
                           .bucket_nbytes = 500};
            step_case_expect(&s);
            for (int k = 0; k < (int)(sizeof IN_FLIGHT / sizeof *IN_FLIGHT); k++) {
                s.in_flight = IN_FLIGHT[k];
                ranks_run(2 + (k + m) % 2, &(ranks_opts){.transport = k % 2 ? "tcp" : NULL},
                          step_case_body, &s);
            }
        }
}

/* A world that changes has another engine, and the same runners. Micro-batches of two sizes run
 * side by side: the runner that the usual size has first is not the first to run, and lent a block.
 * */
static void engine_goes_body(ranks_ctx *r)
{
    const step_case *c = r->arg;
    step_rig rig = {0};
    double loss = 0;
    float *grads = NULL, *own = NULL;
    td_status st = step_rig_make(c, r->comm, &rig);
    if (!st)
        st = step_rig_run(c, r->rank, &rig, &loss);
    td__sync_destroy(rig.sync);
    rig.sync = NULL;
    if (!st) {
        td_runner *runner = td__micro_batch_any_runner(rig.set);
        grads = td_runner_grads(runner, NULL);
        td__runner_set_grads(runner, NULL);
        own = td_runner_grads(runner, NULL);
    }
    step_rig_drop(&rig);
    RANK_OK(r, st);
    RANK_CHECK(r, grads == own, "gradients would go to a block that is gone");
}

TEST(no_runner_writes_to_what_an_engine_has_freed)
{
    step_case s = {.m = &TRAIN_MODELS[0], .micro_batches = 7, .accumulate = 1, .in_flight = 4};
    ranks_run(2, &(ranks_opts){.transport = "tcp"}, engine_goes_body, &s);
}

/* With a compressor there is no promise beyond this: all ranks end with the same weights, which are
 * nearly those of the tree. */
static void reduce_body(ranks_ctx *r)
{
    const step_case *s = r->arg;
    step_rig p = {0};
    char mine[65] = "", first[65];
    double loss = 0;
    td_status st = step_rig_make(s, r->comm, &p);
    if (!st)
        st = step_rig_run(s, r->rank, &p, &loss);
    if (!st)
        st = td_params_digest(p.ps, mine);
    step_rig_drop(&p);
    RANK_OK(r, st);
    memcpy(first, mine, sizeof first);
    RANK_OK(r, td_broadcast(r->comm, first, sizeof first, TD_U8, 0, NULL));
    RANK_CHECK(r, strcmp(first, mine) == 0, "%s: weights differ from rank 0's", s->m->name);
    double within = strcmp(s->compressor, "allreduce") ? 0.3 : 1e-3;
    RANK_CHECK(r, fabs(loss - s->loss) <= within * fabs(s->loss), "%s, %s: loss %g, not %g",
               s->m->name, s->compressor, loss, s->loss);
}

TEST(a_compressor_keeps_ranks_together)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        step_case s = {.m = &TRAIN_MODELS[m],
                       .micro_batches = 4 + m % 3,
                       .accumulate = 1 + m % 2,
                       .threads = 1 + m % 2,
                       .clip_norm = m % 3 ? 0 : 0.5};
        if (s.m->precision == TD_BF16)
            continue; /* a last bit more or less becomes a step of bf16 */
        step_case_expect(&s);
        s.compressor = "allreduce";
        s.bucket_nbytes = m % 2 ? 2000 : 0;
        ranks_run(2 + m % 4, NULL, reduce_body, &s);
        ranks_run(2, &(ranks_opts){.transport = m % 2 ? "tcp" : "shm"}, reduce_body, &s);
    }
}

/* Also one rank alone: it may be left over of several. */
TEST(compressed_gradients_keep_ranks_together)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++)
        for (int i = 0; td__compressor_list(i); i++) {
            step_case s = {.m = &TRAIN_MODELS[m],
                           .micro_batches = 4,
                           .accumulate = 1 + i % 2,
                           .threads = 1 + m % 2,
                           .bucket_nbytes = m % 2 ? 2000 : 0};
            if (i == 0 || m % 3 != i % 3)
                continue;
            step_case_expect(&s);
            s.compressor = td__compressor_list(i);
            ranks_run(1, NULL, reduce_body, &s);
            ranks_run(3, &(ranks_opts){.transport = i % 2 ? "tcp" : NULL}, reduce_body, &s);
        }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Pixels (1, side, side) -> digits: convolution, batch norm, dropout. */
enum { SIDE = 10, TRAIN = 49 };

static td_status build_cnn(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 1, SIDE, SIDE));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_nn_conv2d(g, "conv", x, 4, 3, NULL);
    h = td_relu(g, td_nn_batch_norm(g, "norm", h, NULL));
    h = td_nn_dropout(g, td_reshape(g, h, TD_SHAPE(rows, -1)), 0.25);
    td_node *logits = td_nn_linear(g, "fc", h, 10, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .metrics = {{"accuracy", td_accuracy(g, logits, y, 1), true}},
                             .n_metrics = 1,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

/* Augmented (a random window) and cut in train and valid. */
static td__data *open_data(void)
{
    static const td__map_opts CROP = {.name = "crop", .field = "x", .size = SIDE};
    td__data *d;
    td__data_opts o = {.source = "digits",
                       .source_opts = {.count = TRAIN, .seed = 4},
                       .maps = &CROP,
                       .n_maps = 1,
                       .seed = 4};
    CHECK_OK(td__data_open(&o, &d));
    return d;
}

typedef struct running {
    td__data *data;
    td__train_opts opts;
    uint64_t stop_after; /* on this rank: */
    int stopper;
    uint64_t fail_at; /* in the last rank's observer */
    bool resumed;
    td__train_result want; /* digest "": nothing is expected, result is noted */
    td__train_result got;
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

static td_status run_trainer(const running *u, td_comm *comm, int rank, int size,
                             td__train_result *out)
{
    static const td__model MODEL = {.build = build_cnn};
    td__train_opts o = u->opts;
    td__trainer *t;
    bool resumed;
    watcher w = {.head = {.step = on_step},
                 .stop_after = rank == u->stopper ? u->stop_after : 0,
                 .fail_at = rank == size - 1 ? u->fail_at : 0};

    o.comm = comm;
    if (rank)
        o.checkpoint_dir = NULL;
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
    running *u = r->arg;
    td__train_result got;
    td_status st = run_trainer(u, r->comm, r->rank, r->size, &got);
    RANK_OK(r, st);
    if (r->rank == 0)
        u->got = got;
    if (!u->want.digest[0])
        return;
    RANK_CHECK(r, strcmp(got.digest, u->want.digest) == 0, "other weights");
    RANK_CHECK(r, got.best == u->want.best && got.train_loss == u->want.train_loss,
               "best %a, not %a; loss %a, not %a", got.best, u->want.best, got.train_loss,
               u->want.train_loss);
    RANK_CHECK(r, got.end == u->want.end && got.step == u->want.step && got.epoch == u->want.epoch,
               "end %d at %d", got.end, (int)got.step);
}

static running new_run(int accumulate)
{
    running u = {.data = open_data()};
    u.opts = (td__train_opts){.batch = 16,
                              .epochs = 2,
                              .threads = 1,
                              .micro_batches = accumulate % 2 ? 4 : 6,
                              .accumulate = accumulate,
                              .eval_batch = 24,
                              .valid_every = 2,
                              .prefetch = accumulate % 2 ? 0 : -1,
                              .seed = 7,
                              .optim = {.name = "adam", .lr = 0.02, .clip_norm = 0.7},
                              .schedule = {.name = "plateau", .patience = -1},
                              .checkpoint_every = -1};
    return u;
}

TEST(whole_runs_have_the_same_bits)
{
    for (int accumulate = 1; accumulate <= 3; accumulate++) {
        running u = new_run(accumulate);
        u.opts.precision = accumulate == 2 ? TD_BF16 : TD_F32;
        CHECK_OK(run_trainer(&u, NULL, 0, 1, &u.want));
        CHECK(isfinite(u.want.best), "there was no validation");
        for (int n = 1; n <= MOST_RANKS; n += accumulate)
            ranks_run(n, NULL, run_body, &u);
        ranks_run(3, &(ranks_opts){.transport = "shm"}, run_body, &u);
        ranks_run(2, &(ranks_opts){.transport = "tcp"}, run_body, &u);
        td__data_close(u.data);
    }
}

/* Not reproducible: any algorithm, other numbers (batch norm sees other micro-batches), the same on
 * all ranks, which the trainer makes sure of. */
static void loose_body(ranks_ctx *r)
{
    const running *u = r->arg;
    td__train_result got;
    RANK_OK(r, run_trainer(u, r->comm, r->rank, r->size, &got));
    RANK_CHECK(r, got.step == u->want.step && got.train_loss < 2 * u->want.train_loss, "loss %g",
               got.train_loss);
}

TEST(runs_that_are_not_reproducible)
{
    static const char *const ALGOS[] = {NULL, "ring", "star"};
    running u = new_run(1);
    u.opts.micro_batches = 0;
    u.opts.valid_every = -1;
    u.opts.schedule = (td_schedule_opts){.name = "constant"};
    CHECK_OK(run_trainer(&u, NULL, 0, 1, &u.want));
    u.opts.nondeterministic = true;
    for (int i = 0; i < (int)(sizeof ALGOS / sizeof *ALGOS); i++) {
        u.opts.threads = 1 + i % 2;
        u.opts.sync.bucket_nbytes = i ? 1000 : 0;
        ranks_opts o = {.transport = "tcp", .comm = {.algo = ALGOS[i]}};
        ranks_run(2 + i, &o, loose_body, &u);
        o.transport = "shm";
        ranks_run(4 - i, &o, loose_body, &u);
    }
    ranks_run(1, NULL, loose_body, &u);
    u.opts.micro_batches = 4;
    td__train_result got;
    CHECK_EQ_INT(run_trainer(&u, NULL, 0, 1, &got), TD_EINVAL);
    td__data_close(u.data);
}

/* Some rank is asked to stop; all stop after that step, and any number of ranks goes on. */
TEST(runs_are_resumed_with_another_number_of_ranks)
{
    static const int RANKS[] = {1, 2, 3, 5, 8};
    enum { N = sizeof RANKS / sizeof *RANKS };
    running u = new_run(1);
    CHECK_OK(run_trainer(&u, NULL, 0, 1, &u.want));
    td__train_result want = u.want;
    for (int i = 0; i < N && RANKS[i] <= MOST_RANKS; i++)
        for (int k = 0; k < N && RANKS[k] <= MOST_RANKS; k++) {
            u.opts.checkpoint_dir = check_tmpdir();
            u.want = (td__train_result){.digest = ""};
            u.stop_after = (uint64_t)(1 + (i + k) % 6);
            u.stopper = (i * 7 + k) % RANKS[i];
            ranks_run(RANKS[i], NULL, run_body, &u);
            CHECK_EQ_INT(u.got.end, TD_TRAIN_INTERRUPTED);
            /* A rank's wish is known to the others one step later, unless it is rank 0's own. */
            CHECK(u.got.step >= u.stop_after && u.got.step <= u.stop_after + 1, "step %d",
                  (int)u.got.step);
            u.want = want;
            u.stop_after = 0;
            ranks_run(RANKS[k], NULL, run_body, &u);
            check_tmpdir_remove();
        }
    td__data_close(u.data);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void fail_body(ranks_ctx *r)
{
    const running *u = r->arg;
    td__train_result got;
    td_status st = run_trainer(u, r->comm, r->rank, r->size, &got);
    if (r->rank == r->size - 1) {
        RANK_CHECK(r, st == TD_EIO, "%s", td_status_name(st));
        return;
    }
    RANK_CHECK(r, st == TD_EPEER && strstr(td_last_error(), "full of sand"), "%s: %s",
               td_status_name(st), td_last_error());
}

TEST(a_rank_that_fails_ends_all)
{
    running u = new_run(1);
    u.fail_at = 3;
    for (int n = 2; n <= 5; n++)
        ranks_run(n, n % 2 ? NULL : &(ranks_opts){.transport = "tcp"}, fail_body, &u);
    td__data_close(u.data);
}

/* Buckets have left before the rank finds that its loss is not a number. */
static void spoilt_body(ranks_ctx *r)
{
    const step_case *s = r->arg;
    step_rig p = {0};
    char text[512] = "";
    double loss;
    td_status st = step_rig_make(s, r->comm, &p);
    if (!st)
        st = step_rig_run(s, r->rank, &p, &loss);
    snprintf(text, sizeof text, "%s", td_last_error());
    if (st && r->rank == s->bad_rank)
        td_comm_abort(r->comm, text); /* as the trainer does; buckets do it by themselves */
    td__sync_abandon(p.sync, text);
    step_rig_drop(&p);
    RANK_CHECK(r, st == (r->rank == s->bad_rank ? TD_EINVAL : TD_EPEER) && strstr(text, "the loss"),
               "%s: %s", td_status_name(st), text);
}

TEST(a_rank_that_fails_in_the_middle_of_a_step_ends_all)
{
    for (int n = 2; n <= 4; n++)
        for (int k = 0; k < 4; k++) {
            step_case s = {.m = &TRAIN_MODELS[0],
                           .micro_batches = 8,
                           .accumulate = 1 + k % 2,
                           .threads = 1 + k % 2};
            s.bucket_nbytes = k % 2 ? 64 : 0;
            s.late = k == 3;
            s.bad_rank = n - 1;
            s.bad_step = 3;
            ranks_run(n, k < 2 ? NULL : &(ranks_opts){.transport = "tcp"}, spoilt_body, &s);
        }
}

/* What rank 1 has different, and what it is told. */
typedef struct difference {
    const char *text, *compressor, *digest;
    int zero;
    int64_t steps;
    size_t bucket_nbytes;
    double verify, beta1;
    bool even, profile;
} difference;

typedef struct differing {
    running u;
    const difference *d;
} differing;

static void differ_body(ranks_ctx *r)
{
    const differing *all = r->arg;
    running u = all->u;
    td__train_result got;
    td_status st = td_barrier(r->comm, NULL); /* all are there when rank 1 gives up */
    u.opts.job_digest = "cd";
    if (r->rank == 1) {
        const difference *d = all->d;
        u.opts.job_digest = d->digest ? d->digest : "cd";
        u.opts.sync.compressor = d->compressor;
        u.opts.sync.zero = d->zero;
        u.opts.steps = d->steps;
        u.opts.sync.bucket_nbytes = d->bucket_nbytes;
        u.opts.verify = d->verify;
        u.opts.even = d->even;
        if (d->beta1 != 0)
            u.opts.optim.beta1 = d->beta1;
        u.opts.profile = d->profile;
    }
    if (!st) /* or it has given up while this one was on its way out */
        st = run_trainer(&u, r->comm, r->rank, r->size, &got);
    RANK_CHECK(r,
               st == (r->rank == 1 ? TD_EINVAL : TD_EPEER) && strstr(td_last_error(), all->d->text),
               "%s: %s", td_status_name(st), td_last_error());
}

TEST(ranks_with_different_jobs_are_refused)
{
    static const difference ALL[] = {
        {"rank 1: digest of the job is ab, but rank 0 has cd; start all ranks with the same job, "
         "options and data",
         .digest = "ab"},
        {"rank 1: parallel.compress is bf16, but rank 0 has none;", .compressor = "bf16"},
        {"rank 1: parallel.zero is 2, but rank 0 has 0;", .zero = 2},
        {"rank 1: train.steps is 1, but rank 0 has ", .steps = 1},
        {"rank 1: parallel.bucket_mb is 0.5, but rank 0 has 0;", .bucket_nbytes = 1 << 19},
        {"rank 1: train.verify is 0.25, but rank 0 has 0;", .verify = 0.25},
        {"rank 1: parallel.balance is off, but rank 0 has auto;", .even = true},
        {"rank 1: train.optimizer.beta1 is 0.5, but rank 0 has the default;", .beta1 = 0.5},
        {"rank 1: --profile is 1, but rank 0 has 0;", .profile = true},
    };
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        differing all = {new_run(1), &ALL[i]};
        ranks_run(3, i % 2 ? &(ranks_opts){.transport = "tcp"} : NULL, differ_body, &all);
        td__data_close(all.u.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_has_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(micro_batches_and_accumulation),
        cmocka_unit_test(every_transport_has_the_same_bits),
        cmocka_unit_test(buckets_of_any_size_have_the_same_bits),
        cmocka_unit_test(micro_batches_side_by_side_have_the_same_bits),
        cmocka_unit_test(no_runner_writes_to_what_an_engine_has_freed),
        cmocka_unit_test(a_compressor_keeps_ranks_together),
        cmocka_unit_test(compressed_gradients_keep_ranks_together),
        cmocka_unit_test(whole_runs_have_the_same_bits),
        cmocka_unit_test(runs_that_are_not_reproducible),
        cmocka_unit_test(runs_are_resumed_with_another_number_of_ranks),
        cmocka_unit_test(a_rank_that_fails_ends_all),
        cmocka_unit_test(a_rank_that_fails_in_the_middle_of_a_step_ends_all),
        cmocka_unit_test(ranks_with_different_jobs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
