/* Training through tandem/train.h, with a model built in C: results, callbacks, stopping, files,
 * and the same bits on any number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/alloc.h"
#include "tandem/nn.h"
#include "tandem/train.h"

enum { SAMPLES = 210, WIDTH = 6, CLASSES = 3, STEPS = 14 };

/* Which of three sums of features is the largest. */
static float X[SAMPLES][WIDTH];
static int32_t Y[SAMPLES];
static const td_field FIELDS[] = {{.name = "x", .dtype = TD_F32, .shape = {1, {WIDTH}}},
                                  {.name = "y", .dtype = TD_I32, .classes = CLASSES}};

static td_dataset *samples(void)
{
    static const void *const data[] = {X, Y};
    uint32_t state = 1;
    td_dataset *d;

    for (int i = 0; i < SAMPLES; i++) {
        double best = -1;
        for (int j = 0; j < WIDTH; j++) {
            state = state * 1664525u + 1013904223u;
            X[i][j] = (float)(state >> 8) / (float)(1 << 24);
        }
        for (int c = 0; c < CLASSES; c++)
            if ((double)X[i][2 * c] + (double)X[i][2 * c + 1] > best) {
                best = (double)X[i][2 * c] + (double)X[i][2 * c + 1];
                Y[i] = c;
            }
    }
    CHECK_OK(td_dataset_memory(FIELDS, data, 2, SAMPLES, &d));
    return d;
}

static td_status build_mlp(void *user, td_build *b)
{
    td_node *x = td_build_input(b, "x");

    (void)user;
    x = td_nn_linear(b->g, "fc1", x, 16, &(td_nn_linear_opts){.act = TD_ACT_RELU});
    x = td_dropout(b->g, x, 0.1);
    b->output = td_nn_linear(b->g, "fc2", x, CLASSES, NULL);
    return TD_OK;
}

static td_compile_opts options(void)
{
    return (td_compile_opts){.loss = "cross_entropy",
                             .batch = 32,
                             .epochs = 2,
                             .seed = 3,
                             .threads = 1,
                             .micro_batches = 8,
                             .optimizer = {.name = "adamw", .lr = 0.02},
                             .schedule = {.name = "cosine"}};
}

/* The digest of a run alone. */
static void train_alone(td_compile_opts o, td_run_result *r)
{
    td_dataset *d = samples();
    td_trainer *t;

    CHECK_OK(td_trainer_compile(build_mlp, NULL, d, d, &o, &t));
    CHECK_OK(td_trainer_fit(t, r));
    td_trainer_destroy(t);
    td_dataset_destroy(d);
}

TEST(a_model_learns_and_predicts)
{
    static float out[SAMPLES * CLASSES];
    td_compile_opts o = options();
    td_dataset *d = samples();
    td_metrics before, after;
    td_run_result r;
    td_shape row;
    td_trainer *t;
    int right = 0;

    o.epochs = 30;
    CHECK_OK(td_trainer_compile(build_mlp, NULL, d, d, &o, &t));
    CHECK_OK(td_trainer_evaluate(t, d, &before));
    CHECK_EQ_INT(before.n, 2);
    CHECK(!strcmp(before.name[1], "accuracy"), "%s", before.name[1]);
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK_EQ_INT(r.end, TD_RUN_DONE);
    CHECK_EQ_INT(r.step, 30 * 7);
    CHECK_EQ_INT(td_trainer_step(t), r.step);
    CHECK_EQ_INT(strlen(r.digest), 64);
    CHECK_OK(td_trainer_evaluate(t, d, &after));
    CHECK(after.value[0] < 0.6 * before.value[0] && after.value[1] > 0.85, "%g, %g", after.value[0],
          after.value[1]);
    CHECK_OK(td_trainer_predict(t, d, NULL, 0, &row));
    CHECK_EQ_INT(row.ndim, 1);
    CHECK_EQ_INT(row.dim[0], CLASSES);
    CHECK_OK(td_trainer_predict(t, d, out, SAMPLES * CLASSES, NULL));
    for (int i = 0; i < SAMPLES; i++) {
        int c = 0;
        for (int k = 1; k < CLASSES; k++)
            c = out[i * CLASSES + k] > out[i * CLASSES + c] ? k : c;
        right += c == Y[i];
    }
    CHECK(fabs((double)right / SAMPLES - after.value[1]) < 1e-6, "%d right", right);
    CHECK_STATUS(td_trainer_predict(t, d, out, SAMPLES, NULL), TD_EINVAL);
    td_trainer_destroy(t);
    td_dataset_destroy(d);
}

/* Two steps of training, the same weights from a file, then the rest of it. */
TEST(weights_are_saved_and_loaded)
{
    td_compile_opts o = options();
    td_dataset *d = samples();
    td_trainer *a, *b;
    td_metrics one, other;
    char digest[65], loaded[65];

    check_tmpdir();
    CHECK_OK(td_trainer_compile(build_mlp, NULL, d, NULL, &o, &a));
    CHECK_OK(td_trainer_fit(a, NULL));
    CHECK_OK(td_trainer_save(a, check_path("w.safetensors")));
    CHECK_STATUS(td_trainer_save(a, check_path("w.bin")), TD_EINVAL);
    o.seed = 99;
    CHECK_OK(td_trainer_compile(build_mlp, NULL, d, NULL, &o, &b));
    CHECK_OK(td_trainer_load(b, check_path("w.safetensors")));
    CHECK_STATUS(td_trainer_load(b, check_path("none.safetensors")), TD_EINVAL);
    CHECK_OK(td_params_digest(td_trainer_params(a), digest));
    CHECK_OK(td_params_digest(td_trainer_params(b), loaded));
    CHECK(!strcmp(digest, loaded), "%s and %s", digest, loaded);
    CHECK_OK(td_trainer_evaluate(a, d, &one));
    CHECK_OK(td_trainer_evaluate(b, d, &other));
    CHECK(one.value[0] == other.value[0], "%.9g and %.9g", one.value[0], other.value[0]);
    td_trainer_destroy(a);
    td_trainer_destroy(b);
    td_dataset_destroy(d);
    check_tmpdir_remove();
}

/* What callbacks were told. */
typedef struct heard {
    int begins, steps, evals, checkpoints, ends;
    uint64_t stop_at; /* 0: never */
    double last_loss;
} heard;

static td_answer on_begin(void *user, const td_run_info *info)
{
    ((heard *)user)->begins++;
    return info->batch == 32 && info->ranks >= 1 ? TD_CONTINUE : TD_STOP;
}
static td_answer on_step(void *user, const td_step_info *e)
{
    heard *h = user;
    h->steps++;
    h->last_loss = e->loss;
    return e->step == h->stop_at ? TD_STOP : TD_CONTINUE;
}
static td_answer on_eval(void *user, const td_eval_info *e)
{
    ((heard *)user)->evals += !strcmp(e->part, "valid") && e->metrics.n == 2;
    return TD_CONTINUE;
}
static td_answer on_checkpoint(void *user, const td_checkpoint_info *e)
{
    ((heard *)user)->checkpoints += e->nbytes > 0;
    return TD_CONTINUE;
}
static void on_end(void *user, const td_run_result *r)
{
    ((heard *)user)->ends += r->step > 0;
}

static td_callbacks listening(heard *h)
{
    return (td_callbacks){.user = h,
                          .begin = on_begin,
                          .step = on_step,
                          .eval = on_eval,
                          .checkpoint = on_checkpoint,
                          .end = on_end};
}

TEST(callbacks_hear_of_everything)
{
    td_compile_opts o = options();
    heard h = {0};
    td_run_result r;

    o.callbacks = listening(&h);
    o.checkpoint_dir = check_tmpdir();
    train_alone(o, &r);
    CHECK_EQ_INT(h.begins, 1);
    CHECK_EQ_INT(h.steps, STEPS);
    CHECK_EQ_INT(h.evals, 2);
    CHECK(h.checkpoints >= 1, "%d checkpoints", h.checkpoints);
    CHECK_EQ_INT(h.ends, 1);
    CHECK(h.last_loss == r.train_loss, "%g and %g", h.last_loss, r.train_loss);
    check_tmpdir_remove();
}

/* Stopped by a callback, then by fit again, or by another trainer from the checkpoint. */
TEST(a_run_that_was_stopped_goes_on_with_the_same_bits)
{
    td_compile_opts o = options();
    td_dataset *d = samples();
    td_run_result whole, r;
    heard h = {.stop_at = 5};
    td_trainer *t;

    train_alone(o, &whole);
    o.callbacks = listening(&h);
    o.checkpoint_dir = check_tmpdir();
    CHECK_OK(td_trainer_compile(build_mlp, NULL, d, d, &o, &t));
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK_EQ_INT(r.end, TD_RUN_STOPPED);
    CHECK_EQ_INT(r.step, 5);
    h.stop_at = 9;
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK_EQ_INT(r.step, 9);
    td_trainer_destroy(t);
    o.resume = true;
    h.stop_at = 0;
    CHECK_OK(td_trainer_compile(build_mlp, NULL, d, d, &o, &t));
    CHECK_EQ_INT(td_trainer_step(t), 9);
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK_EQ_INT(r.end, TD_RUN_DONE);
    CHECK(!strcmp(r.digest, whole.digest), "%s and %s", r.digest, whole.digest);
    td_trainer_destroy(t);
    td_dataset_destroy(d);
    check_tmpdir_remove();
}

typedef struct many {
    td_dataset *data;
    const td_run_result *want;
    double first; /* loss of the first weights */
    int zero;
    const char *key;  /* of a job; NULL: none */
    bool own_bits;    /* the key's rule has others than one rank */
    const char *path; /* of a file of weights */
} many;

static void one_of_many(ranks_ctx *r)
{
    const many *m = r->arg;
    td_compile_opts o = options();
    td_run_result got;
    heard h = {0};
    td_trainer *t = NULL;
    td_metrics e;

    o.comm = r->comm;
    o.zero = m->zero;
    o.keys = &m->key;
    o.n_keys = m->key ? 1 : 0;
    o.callbacks = listening(&h);
    td_status st = td_trainer_compile(build_mlp, NULL, m->data, m->data, &o, &t);
    td_status before = st ? st : td_trainer_evaluate(t, m->data, &e);
    RANK_OK(r, before);
    RANK_CHECK(r, e.value[0] == m->first, "%a and %a", e.value[0], m->first);
    if (!st)
        st = td_trainer_fit(t, &got);
    if (!st)
        st = td_trainer_evaluate(t, m->data, &e);
    if (!st)
        st = td_trainer_save(t, m->path);
    if (!st)
        st = td_trainer_load(t, m->path);
    td_metrics again;
    if (!st)
        st = td_trainer_evaluate(t, m->data, &again);
    RANK_CHECK(r, st || again.value[0] == e.value[0], "saved and loaded: %a and %a", again.value[0],
               e.value[0]);
    td_trainer_destroy(t);
    RANK_OK(r, st);
    bool same = !strcmp(got.digest, m->want->digest);
    RANK_CHECK(r, same != m->own_bits, "%s: %s and %s", m->key ? m->key : "", got.digest,
               m->want->digest);
    RANK_CHECK(r, m->own_bits || got.best == m->want->best, "%g and %g", got.best, m->want->best);
    RANK_CHECK(r, h.steps == STEPS && h.evals == 2 && h.ends == 1, "%d, %d, %d", h.steps, h.evals,
               h.ends);
}

/* What several ranks have saved is what one has trained. */
static void check_saved(const many *m)
{
    td_compile_opts o = options();
    td_trainer *t;
    char digest[65];

    CHECK_OK(td_trainer_compile(build_mlp, NULL, m->data, m->data, &o, &t));
    CHECK_OK(td_trainer_load(t, m->path));
    CHECK_OK(td_params_digest(td_trainer_params(t), digest));
    CHECK(strstr(m->want->digest, digest), "%s and %s", digest, m->want->digest);
    td_trainer_destroy(t);
    CHECK_EQ_INT(unlink(m->path), 0);
}

static double first_loss(td_dataset *data)
{
    td_compile_opts o = options();
    td_trainer *t;
    td_metrics e;

    CHECK_OK(td_trainer_compile(build_mlp, NULL, data, data, &o, &t));
    CHECK_OK(td_trainer_evaluate(t, data, &e));
    td_trainer_destroy(t);
    return e.value[0];
}

TEST(any_number_of_ranks_gives_the_same_bits)
{
    td_run_result want;
    many m = {.data = samples(), .want = &want};

    train_alone(options(), &want);
    m.first = first_loss(m.data);
    check_tmpdir();
    m.path = check_path("model.safetensors");
    for (int size = 1; size <= 4; size++)
        ranks_run(size, NULL, one_of_many, &m);
    ranks_run(2, &(ranks_opts){.transport = "shm", .processes = true}, one_of_many, &m);
    check_saved(&m);
    for (m.zero = 1; m.zero <= 3; m.zero++) {
        ranks_run(2, NULL, one_of_many, &m);
        check_saved(&m);
    }
    m.zero = 0;
    static const char *const KEYS[] = {"parallel.zero=3", "parallel.pipeline=2", "train.sync=ma",
                                       "parallel.compress=bf16"};
    for (int i = 0; i < TD_LEN(KEYS); i++) {
        m.key = KEYS[i];
        m.own_bits = i > 1;
        ranks_run(2, NULL, one_of_many, &m);
        CHECK_EQ_INT(unlink(m.path), 0);
    }
    check_tmpdir_remove();
    td_dataset_destroy(m.data);
}

/* A loss and a metric of one's own; the target is read by the model itself. */
static td_status build_own(void *user, td_build *b)
{
    td_node *y = td_build_input(b, "y");

    (void)user;
    b->output = td_nn_linear(b->g, "fc", td_build_input(b, "x"), CLASSES, NULL);
    b->loss = td_softmax_cross_entropy(b->g, b->output, y, NULL);
    b->metrics[b->n_metrics++] = (td_build_metric){
        .name = "right", .node = td_accuracy(b->g, b->output, y, 1), .higher_is_better = true};
    return TD_OK;
}

TEST(models_bring_losses_of_their_own)
{
    td_compile_opts o = options();
    td_dataset *d = samples();
    td_run_result r;
    td_metrics m;
    td_trainer *t;

    o.watch = "right";
    o.loss = NULL;
    CHECK_OK(td_trainer_compile(build_own, NULL, d, d, &o, &t));
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK_OK(td_trainer_evaluate(t, d, &m));
    CHECK_EQ_INT(m.n, 2);
    CHECK(!strcmp(m.name[1], "right") && r.best == m.value[1], "%s: %g and %g", m.name[1], r.best,
          m.value[1]);
    td_trainer_destroy(t);
    td_dataset_destroy(d);
}

static td_status build_nothing(void *user, td_build *b)
{
    (void)b;
    return user ? TD_ENOTSUP : TD_OK;
}
static td_status build_blind(void *user, td_build *b)
{
    (void)user;
    b->output = td_nn_linear(b->g, "fc", td_build_input(b, "pixels"), CLASSES, NULL);
    return TD_OK;
}

static void refused(td_build_fn build, void *user, const td_compile_opts *o, td_status want,
                    const char *words)
{
    td_dataset *d = samples();
    td_trainer *t;

    CHECK_STATUS(td_trainer_compile(build, user, d, NULL, o, &t), want);
    CHECK(!t && strstr(td_last_error(), words), "%s", td_last_error());
    td_dataset_destroy(d);
}

TEST(mistakes_are_one_line)
{
    const char *const names[] = {"accuracy", "accuracy"};
    td_compile_opts o = options();

    refused(build_nothing, NULL, NULL, TD_EINVAL, "no output");
    refused(build_nothing, &o, NULL, TD_ENOTSUP, "build function failed");
    refused(build_blind, NULL, NULL, TD_EINVAL, "'pixels'");
    o.loss = "cross_entropie";
    refused(build_mlp, NULL, &o, TD_EINVAL, "no loss 'cross_entropie'");
    o.loss = "mse";
    refused(build_mlp, NULL, &o, TD_EINVAL, "compile");
    o = options();
    o.metrics = names;
    o.n_metrics = 2;
    refused(build_mlp, NULL, &o, TD_EINVAL, "two metrics");
    o = options();
    o.target = "label";
    refused(build_mlp, NULL, &o, TD_EINVAL, "'label'");
    o = options();
    o.optimizer.name = "adem";
    refused(build_mlp, NULL, &o, TD_EINVAL, "adem");
    o = options();
    const char *key = "train.batch=8";
    o.keys = &key;
    o.n_keys = 1;
    refused(build_mlp, NULL, &o, TD_EINVAL, "train.batch=8");
    key = "train.sync=easgt";
    refused(build_mlp, NULL, &o, TD_EINVAL, "easgd");
    key = "parallel.pipelin=2";
    refused(build_mlp, NULL, &o, TD_EINVAL, "parallel.pipelin=2");
    key = "parallel.timeout=3";
    refused(build_mlp, NULL, &o, TD_EINVAL, "parallel.timeout=3");
    key = "parallel.pipeline";
    refused(build_mlp, NULL, &o, TD_EINVAL, "KEY=VALUE");
    o = options();
    o.resume = true;
    refused(build_mlp, NULL, &o, TD_EINVAL, "checkpoint_dir");
    td_trainer_destroy(NULL);
}

/* A whole training, or a failure, and nothing left behind. */
static td_status train_two_steps(td_dataset *d)
{
    static float out[SAMPLES * CLASSES];
    td_compile_opts o = options();
    td_trainer *t = NULL;

    o.steps = 2;
    o.prefetch = -1;
    td_status st = td_trainer_compile(build_mlp, NULL, d, d, &o, &t);
    if (!st)
        st = td_trainer_fit(t, NULL);
    if (!st)
        st = td_trainer_predict(t, d, out, SAMPLES * CLASSES, NULL);
    td_trainer_destroy(t);
    return st;
}

TEST(out_of_memory_is_a_status)
{
    td_dataset *d = samples();

    CHECK_OK(train_two_steps(d)); /* what is made once in a process is made */
    uint64_t before = td_alloc_get_stats().live;
    for (uint64_t n = 1;; n += 1 + n / 16) {
        td_alloc_fail_at(n);
        td_status st = train_two_steps(d);
        td_alloc_fail_at(0);
        CHECK(td_alloc_get_stats().live == before, "allocation %llu: something is left",
              (unsigned long long)n);
        if (!st)
            break;
        CHECK(st == TD_ENOMEM, "allocation %llu: %s: %s", (unsigned long long)n, td_status_name(st),
              td_last_error());
        CHECK(n < 1000000, "never enough");
    }
    td_dataset_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_learns_and_predicts),
        cmocka_unit_test(weights_are_saved_and_loaded),
        cmocka_unit_test(callbacks_hear_of_everything),
        cmocka_unit_test(a_run_that_was_stopped_goes_on_with_the_same_bits),
        cmocka_unit_test(any_number_of_ranks_gives_the_same_bits),
        cmocka_unit_test(models_bring_losses_of_their_own),
        cmocka_unit_test(mistakes_are_one_line),
        cmocka_unit_test(out_of_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
