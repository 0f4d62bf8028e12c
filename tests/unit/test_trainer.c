/* The trainer: the same bits for any number of threads and for any interruption; validation, early
 * stopping, stopping on request; evaluation and prediction; bad numbers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/micro_batch_count.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "support/check.h"
#include "support/train_models.h"
#include "tandem/alloc.h"
#include "tandem/log.h"
#include "tandem/ops.h"
#include "checkpoint/checkpoint.h"

enum { TRAIN = 49, SAMPLES = 100, BATCH = 16 }; /* 16, 16, 16 and 1; the source's 100 to validate */

static td__data *open_data(void)
{
    td__data *d;
    td__data_opts o = {.source = "spirals", .source_opts = {.count = TRAIN, .seed = 4}, .seed = 4};
    CHECK_OK(td__data_open(&o, &d));
    return d;
}

static td__train_opts base_opts(void)
{
    return (td__train_opts){.batch = BATCH,
                            .epochs = 3,
                            .threads = 2,
                            .seed = 7,
                            .optim = {.name = "adam", .lr = 0.02},
                            .schedule = {.name = "cosine", .warmup_steps = 2}};
}

static const td__model MODEL = {.build = spirals_build};

/* ---- An observer that writes down and may ask to stop ---------------------------------------- */

typedef struct notes {
    td__observer head;
    int begins, steps, evals, checkpoints, ends, bests;
    uint64_t last_step;
    double loss, lr;
    int64_t samples;
    uint64_t stop_after; /* 0: never */
    atomic_int stop;
    td__train_info info;
} notes;

static td_status on_begin(td__observer *o, const td__train_info *info)
{
    ((notes *)o)->begins++;
    ((notes *)o)->info = *info;
    return TD_OK;
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    notes *n = (notes *)o;
    CHECK(n->last_step == 0 || e->step == n->last_step + 1, "step %d", (int)e->step);
    n->steps++;
    n->last_step = e->step;
    n->loss = e->loss;
    n->lr = e->lr;
    n->samples += e->samples;
    CHECK(isfinite(e->loss) && e->seconds >= e->data_wait && e->elapsed >= e->seconds, "times");
    if (e->step == n->stop_after)
        atomic_store(&n->stop, 1);
    return TD_OK;
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    ((notes *)o)->evals++;
    ((notes *)o)->bests += e->best;
    CHECK(e->n == 2 && strcmp(e->name[0], "loss") == 0 && strcmp(e->name[1], "accuracy") == 0,
          "%d values", e->n);
    CHECK(strcmp(e->part, "valid") == 0, "%s", e->part);
    return TD_OK;
}

static td_status on_checkpoint(td__observer *o, const td__checkpoint_event *e)
{
    ((notes *)o)->checkpoints++;
    CHECK(e->nbytes > 0 && e->seconds > 0 && e->path, "a checkpoint of %zu bytes", e->nbytes);
    return TD_OK;
}

static td_status on_end(td__observer *o, const td__train_result *r)
{
    ((notes *)o)->ends++;
    CHECK(strlen(r->digest) == 64, "digest %s", r->digest);
    return TD_OK;
}

static notes new_notes(void)
{
    return (notes){.head = {.begin = on_begin,
                            .step = on_step,
                            .eval = on_eval,
                            .checkpoint = on_checkpoint,
                            .end = on_end}};
}

/* Run with these options, resuming if there is something to resume from. */
static td__train_result run(const td__train_opts *o, td__data *d, notes *n, bool *resumed)
{
    td__trainer *t;
    td__train_result r;
    CHECK_OK(td__trainer_create(o, &MODEL, d, &t));
    CHECK_OK(td__trainer_observe(t, &n->head));
    CHECK_OK(td__trainer_resume(t, resumed));
    CHECK_OK(td__trainer_run(t, &n->stop, &r));
    td__trainer_destroy(t);
    return r;
}

/* ---- Training -------------------------------------------------------------------------------- */

TEST(any_number_of_threads_gives_the_same_bits)
{
    static const int THREADS[] = {1, 2, 3, 5};
    td__data *d = open_data();
    for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
        td__train_result want = {0};
        for (size_t i = 0; i < sizeof THREADS / sizeof *THREADS; i++) {
            td__train_opts o = base_opts();
            notes n = new_notes();
            bool resumed;
            o.threads = THREADS[i];
            o.micro_batches = 4;
            o.accumulate = accumulate;
            td__train_result r = run(&o, d, &n, &resumed);
            int steps = accumulate == 1 ? 12 : 6;
            CHECK_EQ_INT(r.end, TD_TRAIN_DONE);
            CHECK_EQ_INT(r.step, steps);
            CHECK_EQ_INT(n.steps, steps);
            CHECK_EQ_INT(n.samples, 3 * TRAIN);
            CHECK_EQ_INT(n.begins, 1);
            CHECK_EQ_INT(n.ends, 1);
            CHECK_EQ_INT(n.evals, 3);
            CHECK_EQ_INT(n.info.steps, steps);
            CHECK_EQ_INT(n.info.micro_batches, 4);
            CHECK_EQ_INT(n.info.params, 2 * 32 + 32 + 32 * 3 + 3);
            if (!i)
                want = r;
            CHECK(strcmp(r.digest, want.digest) == 0, "%d threads differ", o.threads);
            CHECK(r.best == want.best && r.train_loss == want.train_loss, "%d threads: best %g %g",
                  o.threads, r.best, want.best);
        }
    }
    td__data_close(d);
}

/* Stopped after any step, once and again, then resumed: the digest of the run that went through,
 * with a schedule that depends on validations. */
TEST(resumed_runs_are_uninterrupted_runs)
{
    td__data *d = open_data();
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        td__train_opts o = base_opts();
        notes n = new_notes();
        bool resumed;
        o.accumulate = accumulate;
        o.valid_every = 2;
        o.watch = "accuracy";
        o.schedule = (td_schedule_opts){.name = "plateau", .patience = -1};
        td__train_result want = run(&o, d, &n, &resumed);
        double lr = n.lr;
        CHECK(!resumed && want.end == TD_TRAIN_DONE, "end %d", want.end);
        for (uint64_t k = 1; k < want.step; k++) {
            td__train_result r;
            int parts = 0, evals = 0;
            double last_lr = 0;
            o.checkpoint_dir = check_tmpdir();
            o.checkpoint_every = -1;
            do {
                n = new_notes();
                n.stop_after = (uint64_t)(parts + 1) * k;
                o.threads = 1 + parts % 3;
                r = run(&o, d, &n, &resumed);
                CHECK_EQ_INT(resumed, parts > 0);
                evals += n.evals;
                last_lr = n.steps ? n.lr : last_lr;
            } while (++parts < 100 && r.end == TD_TRAIN_INTERRUPTED);
            CHECK(strcmp(r.digest, want.digest) == 0 && r.best == want.best &&
                      r.best_step == want.best_step && last_lr == lr,
                  "stopped every %d steps: another result (best %g, %g; lr %g, %g)", (int)k, r.best,
                  want.best, n.lr, lr);
            CHECK_EQ_INT(r.step, want.step);
            CHECK_EQ_INT(evals, (int)want.step / 2);
            run(&o, d, &n, &resumed); /* once more: nothing to do */
            check_tmpdir_remove();
        }
    }
    td__data_close(d);
}

/* Checkpoints are taken while training goes on; whichever is the newest, it leads to the end. */
TEST(every_checkpoint_leads_to_the_same_end)
{
    td__data *d = open_data();
    td__train_opts o = base_opts();
    notes n = new_notes();
    bool resumed;
    o.checkpoint_dir = check_tmpdir();
    o.checkpoint_every = 1;
    o.checkpoint_keep = 100;
    td__train_result want = run(&o, d, &n, &resumed);
    CHECK(n.checkpoints >= 12, "%d checkpoints", n.checkpoints);
    for (int k = 1; k < 12; k++) {
        char latest[64];
        snprintf(latest, sizeof latest, "step-%08d\n", k);
        check_write_file(check_path("latest"), latest, strlen(latest));
        n = new_notes();
        td__train_result r = run(&o, d, &n, &resumed);
        CHECK(resumed && n.steps == 12 - k, "%d steps after step %d", n.steps, k);
        CHECK(strcmp(r.digest, want.digest) == 0, "from step %d: another result", k);
    }
    check_tmpdir_remove();
    td__data_close(d);
}

/* `--set train.steps=N` to look at a job: the warm-up must not be in the way. */
TEST(a_run_shorter_than_its_warm_up)
{
    td__data *d = open_data();
    for (int steps = 1; steps <= 4; steps++) {
        td__train_opts o = base_opts();
        notes n = new_notes();
        bool resumed;
        o.steps = steps;
        o.schedule.warmup_steps = 100;
        td__train_result r = run(&o, d, &n, &resumed);
        CHECK_EQ_INT(r.step, steps);
        /* Warmed up as it says, with any schedule: the run may become longer later. */
        double want = 0.02 * (0.01 + 0.99 * (steps - 1) / 100);
        CHECK(fabs(n.lr - want) < 1e-12, "step %d of cosine: rate %g, not %g", steps, n.lr, want);
        n = new_notes();
        o.schedule.name = "constant";
        run(&o, d, &n, &resumed);
        CHECK(fabs(n.lr - want) < 1e-12, "step %d of constant: rate %g, not %g", steps, n.lr, want);
    }
    td__data_close(d);
}

TEST(a_batch_larger_than_the_data)
{
    td__data *d = open_data();
    td__train_opts o = base_opts();
    notes n = new_notes();
    bool resumed;
    o.batch = 1000000000; /* no memory is taken for samples that never come */
    td__train_result r = run(&o, d, &n, &resumed);
    CHECK_EQ_INT(r.step, 3);
    CHECK_EQ_INT(n.samples, 3 * TRAIN);
    td__data_close(d);
}

TEST(patience_ends_the_run)
{
    td__data *d = open_data();
    td__train_opts o = base_opts();
    notes n = new_notes();
    bool resumed;
    o.epochs = 50;
    o.patience = 3;
    o.min_delta = 10; /* nothing is ever that much better */
    o.checkpoint_dir = check_tmpdir();
    td__train_result r = run(&o, d, &n, &resumed);
    CHECK_EQ_INT(r.end, TD_TRAIN_EARLY);
    CHECK_EQ_INT(r.epoch, 4); /* the first validation is the best, then three bad ones */
    CHECK_EQ_INT(r.best_step, 4);
    CHECK_EQ_INT(n.bests, 1);
    n = new_notes();
    td__train_result again = run(&o, d, &n, &resumed);
    CHECK(resumed && again.end == TD_TRAIN_EARLY && n.steps == 0, "goes on after its end");
    CHECK(strcmp(again.digest, r.digest) == 0, "another digest");
    td__checkpoint_info info;
    CHECK_OK(td__checkpoint_find(o.checkpoint_dir, "best", &info));
    CHECK_EQ_INT(info.state.step, 4);
    CHECK_OK(td__checkpoint_find(o.checkpoint_dir, NULL, &info));
    CHECK_EQ_INT(info.state.step, 16);
    check_tmpdir_remove();
    td__data_close(d);
}

/* ---- Bad numbers ----------------------------------------------------------------------------- */

/* The loss is log(sum of a param, which falls by 1 in each step): NaN from the fourth on. */
static td_status falling_build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 2));
    td_init three = {.kind = TD_INIT_CONSTANT, .a = 3.5};
    td_node *w = td_param(g, "w", TD_SHAPE(1), three);
    td_node *keep = td_affine(g, td_mean(g, x, NULL, 0, false), 0, 0);
    td_node *sum = td_sum(g, w, NULL, 0, false);
    td_node *log = td_log(g, sum);
    *out = (td__model_nodes){
        .loss = td_add(g, td_add(g, sum, td_affine(g, log, 0, 0)), keep),
        .inputs = {"x"},
        .n_inputs = 1,
    };
    return TD_OK;
}

TEST(a_bad_loss_ends_the_run_and_keeps_the_last_checkpoint)
{
    static const td__model FALLING = {.build = falling_build};
    td__data *d = open_data();
    td__train_opts o = base_opts();
    td__train_result r;
    td__trainer *t;
    notes n = new_notes();
    o.optim = (td_optim_opts){.name = "sgd", .lr = 1};
    o.schedule = (td_schedule_opts){0};
    o.valid_every = -1;
    o.checkpoint_every = 1;
    o.checkpoint_dir = check_tmpdir();
    for (o.threads = 1; o.threads <= 3; o.threads++) {
        n = new_notes();
        CHECK_OK(td__trainer_create(&o, &FALLING, d, &t));
        CHECK_OK(td__trainer_observe(t, &n.head));
        CHECK_STATUS(td__trainer_run(t, NULL, &r), TD_EINVAL);
        CHECK(strstr(td_last_error(), "at step 5, micro-batch 0") &&
                  strstr(td_last_error(), "is in '"),
              "%s", td_last_error());
        CHECK(n.steps == 4 && n.ends == 0, "%d steps", n.steps);
        td__trainer_destroy(t);
        td__checkpoint_info info;
        CHECK_OK(td__checkpoint_find(o.checkpoint_dir, NULL, &info));
        CHECK_EQ_INT(info.state.step, 4);
    }
    check_tmpdir_remove();
    td__data_close(d);
}

TEST(bad_options_are_refused)
{
    td__data *d = open_data();
    td__trainer *t;
    static const struct {
        td__train_opts o;
        const char *text;
    } CASES[] = {
        {{.batch = 0}, "batch of 0"},
        {{.batch = 4, .micro_batches = 5}, "5 micro-batches"},
        {{.batch = 4, .accumulate = -1}, "-1 batches"},
        {{.batch = 4, .watch = "acuracy"}, "did you mean 'accuracy'?"},
        {{.batch = 4, .optim = {.name = "none"}}, "none"},
        {{.batch = 4, .steps = 1LL << 40}, "steps"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        CHECK_STATUS(td__trainer_create(&CASES[i].o, &MODEL, d, &t), TD_EINVAL);
        CHECK(!t && strstr(td_last_error(), CASES[i].text), "%s", td_last_error());
    }
    td__train_opts o = base_opts();
    td__train_result r;
    o.checkpoint_dir = "/proc/nowhere";
    CHECK_OK(td__trainer_create(&o, &MODEL, d, &t));
    CHECK(td__trainer_run(t, NULL, &r) && strstr(td_last_error(), "/proc/nowhere"), "%s",
          td_last_error());
    td__trainer_destroy(t);
    td__data_close(d);
}

/* ---- Evaluation and prediction --------------------------------------------------------------- */

typedef struct rows {
    float value[SAMPLES][3];
    int64_t n;
} rows;

static td_status keep_rows(void *user, int64_t first, int64_t count, const void *output,
                           size_t row_nbytes)
{
    rows *r = user;
    CHECK(first == r->n && row_nbytes == sizeof r->value[0], "rows from %d", (int)first);
    memcpy(r->value[first], output, (size_t)count * row_nbytes);
    r->n += count;
    return TD_OK;
}

/* Predictions agree with the metrics, for any batch size and number of threads. */
TEST(evaluation_is_the_mean_over_samples)
{
    td__data *d = open_data();
    td__dataset *part = td__data_part(d, TD_PART_VALID);
    static const struct {
        int threads;
        int64_t batch;
    } CASES[] = {{1, 16}, {2, 16}, {5, 16}, {1, 1}, {3, 1}, {1, 100}, {2, 100}, {1, 5}, {3, 5}};
    td__eval_result all[sizeof CASES / sizeof *CASES];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__train_opts o = base_opts();
        td__eval_result e;
        td__trainer *t;
        rows r = {.n = 0};
        td_dtype dtype;
        td_shape shape;
        float x[SAMPLES][2];
        int32_t y[SAMPLES];
        int64_t index[SAMPLES];
        double right = 0;

        o.threads = CASES[i].threads;
        o.eval_batch = CASES[i].batch;
        CHECK_OK(td__trainer_create(&o, &MODEL, d, &t));
        CHECK_OK(td__trainer_evaluate(t, part, &e));
        CHECK_OK(td__trainer_predict(t, part, keep_rows, &r, &dtype, &shape));
        CHECK(dtype == TD_F32 && shape.ndim == 1 && shape.dim[0] == 3, "rows of the output");
        CHECK(e.n == 2 && e.samples == part->count && r.n == part->count, "%d samples",
              (int)e.samples);
        for (int64_t k = 0; k < part->count; k++)
            index[k] = k;
        CHECK_OK(td__dataset_read(part, index, part->count, NULL, (void *[]){x, y}));
        for (int64_t k = 0; k < part->count; k++) {
            const float *v = r.value[k];
            int most = v[1] > v[0] ? 1 : 0;
            right += (v[2] > v[most] ? 2 : most) == y[k];
        }
        CHECK(fabs(e.value[1] - right / (double)part->count) < 1e-6, "accuracy %g, %g", e.value[1],
              right / (double)part->count);
        all[i] = e;
        CHECK(fabs(e.value[0] - all[0].value[0]) < 1e-5, "loss %g, %g", e.value[0],
              all[0].value[0]);
        for (size_t k = 0; k < i; k++)
            CHECK(CASES[k].batch != CASES[i].batch || all[k].value[0] == e.value[0],
                  "%d threads: other bits", o.threads);
        td__trainer_destroy(t);
    }
    td__data_close(d);
}

TEST(nothing_leaks)
{
    uint64_t before = td_alloc_get_stats().live;
    td__data *d = open_data();
    td__train_opts o = base_opts();
    notes n = new_notes();
    bool resumed;
    o.checkpoint_dir = check_tmpdir();
    run(&o, d, &n, &resumed);
    run(&o, d, &n, &resumed);
    td__data_close(d);
    check_tmpdir_remove();
    CHECK_EQ_INT(td_alloc_get_stats().live, before);
}

/* Create, resume, train, evaluate, save: whichever allocation fails is one status, and no leak. */
TEST(no_memory_at_any_point)
{
    td__data *d = open_data();
    td__train_opts o = base_opts();
    uint64_t n = 1, calls;
    td_status st;

    o.epochs = 1;
    o.checkpoint_dir = check_tmpdir();
    do {
        td__trainer *t = NULL;
        td__train_result r;
        bool found;
        td_alloc_stats before = td_alloc_get_stats();
        td_alloc_fail_at(n);
        st = td__trainer_create(&o, &MODEL, d, &t);
        if (!st)
            st = td__trainer_resume(t, &found);
        if (!st)
            st = td__trainer_run(t, NULL, &r);
        td_alloc_fail_at(0);
        td__trainer_destroy(t);
        td_alloc_stats after = td_alloc_get_stats();
        CHECK(!st || st == TD_ENOMEM, "allocation %d: %s", (int)n, td_last_error());
        CHECK_EQ_INT(after.live, before.live);
        calls = after.calls - before.calls;
        n += 1 + n / 40; /* all of the first ones, then fewer */
    } while (st && n < 100000);
    CHECK(!st && calls > 200, "%d allocations", (int)calls);
    check_tmpdir_remove();
    td__data_close(d);
}

TEST(micro_batches_are_chosen_by_model_and_batch)
{
    static const struct {
        int64_t batch;
        double uses;
        int micro_batches;
    } CASES[] = {{1, 1, 1},     {2, 1, 2},    {3, 1000, 2},  {64, 1, 2},      {128, 1, 2},
                 {256, 1, 4},   {1000, 1, 8}, {1024, 1, 16}, {100000, 1, 64}, {128, 10, 2},
                 {64, 50, 4},   {16, 256, 8}, {16, 1e6, 16}, {1024, 256, 64}, {7, 1e6, 4},
                 {512, 0.1, 8}, {60, 20, 2}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        CHECK_EQ_INT(td__micro_batch_count(CASES[i].batch, CASES[i].uses, false),
                     CASES[i].micro_batches);
    int micro_batches;
    CHECK_OK(
        td__micro_batch_count_of(&(td__model){.build = spirals_build}, 256, false, &micro_batches));
    CHECK_EQ_INT(td__micro_batch_count(64, 1100, true), 2); /* a GPU is given more at once */
    CHECK_EQ_INT(td__micro_batch_count(512, 1100, true), 16);
    CHECK_EQ_INT(td__micro_batch_count(256, 160, true), 2);
    CHECK_EQ_INT(td__micro_batch_count(1, 160, true), 1);
    CHECK_EQ_INT(micro_batches, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(resumed_runs_are_uninterrupted_runs),
        cmocka_unit_test(every_checkpoint_leads_to_the_same_end),
        cmocka_unit_test(a_run_shorter_than_its_warm_up),
        cmocka_unit_test(a_batch_larger_than_the_data),
        cmocka_unit_test(patience_ends_the_run),
        cmocka_unit_test(a_bad_loss_ends_the_run_and_keeps_the_last_checkpoint),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(micro_batches_are_chosen_by_model_and_batch),
        cmocka_unit_test(evaluation_is_the_mean_over_samples),
        cmocka_unit_test(nothing_leaks),
        cmocka_unit_test(no_memory_at_any_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
