/* Ignored targets (loss.ignore) leave loss, gradients and accuracy as means over the other targets,
 * and targets weigh by their classes (loss.class_weights), with label smoothing too, however the
 * samples are cut: in micro-batches, batches, accumulated batches, ranks, evaluation batches. Held
 * against softmax regression in double. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/nn.h"
#include "tandem/train.h"

enum { SAMPLES = 24, WIDTH = 4, CLASSES = 3, STEPS = 3, PLACES = 2, NONE = 999 };
static const double LR = 0.5;

static float X[SAMPLES][PLACES][WIDTH];
static int32_t Y[SAMPLES][PLACES];
static const td_field FIELDS[] = {{.name = "x", .dtype = TD_F32, .shape = {2, {PLACES, WIDTH}}},
                                  {.name = "y", .dtype = TD_I32, .shape = {1, {PLACES}}}};

/* Most targets of the first samples are ignored, none of the last: any mean of means is off. */
static td_dataset *samples(int32_t ignore)
{
    static const void *const data[] = {X, Y};
    uint32_t state = 1;
    td_dataset *d;

    for (int i = 0; i < SAMPLES; i++)
        for (int p = 0; p < PLACES; p++) {
            for (int j = 0; j < WIDTH; j++) {
                state = state * 1664525u + 1013904223u;
                X[i][p][j] = (float)(state >> 8) / (float)(1 << 24) - 0.5F;
            }
            state = state * 1664525u + 1013904223u;
            Y[i][p] = (int32_t)((state >> 16) % CLASSES);
            if (Y[i][p] == ignore)
                Y[i][p] = (ignore + 1) % CLASSES;
            state = state * 1664525u + 1013904223u;
            if ((int)((state >> 16) % SAMPLES) > i + 2 && ignore != NONE)
                Y[i][p] = ignore;
        }
    CHECK_OK(td_dataset_memory(FIELDS, data, 2, SAMPLES, &d));
    return d;
}

static td_status build(void *user, td_build *b)
{
    (void)user;
    b->output = td_nn_linear(b->g, "fc", td_build_input(b, "x"), CLASSES, NULL);
    return TD_OK;
}

typedef struct regression {
    double w[CLASSES][WIDTH], b[CLASSES];
} regression;

static regression weights_of(td_trainer *t)
{
    td_params *ps = td_trainer_params(t);
    const float *block = td_params_block(ps, NULL);
    regression m;

    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        bool bias = strcmp(info.name, "fc.bias") == 0;
        for (int c = 0; c < CLASSES; c++) {
            if (bias)
                m.b[c] = (double)block[info.offset + (size_t)c];
            for (int j = 0; !bias && j < WIDTH; j++)
                m.w[c][j] = (double)block[info.offset + (size_t)(c * WIDTH + j)];
        }
    }
    return m;
}

/* How targets count. */
typedef struct meaning {
    int32_t ignore;
    bool weighted, mean; /* by WEIGHT; over the sum of weights, not the number of targets */
    double smoothing;
} meaning;

static const double WEIGHT[CLASSES] = {0.5, 3, 1.25}, ALIKE[CLASSES] = {1, 1, 1};

static td_loss_opts loss_of(const meaning *by)
{
    return (td_loss_opts){.use_ignore = by->ignore != NONE,
                          .ignore = by->ignore,
                          .class_weights = by->weighted ? WEIGHT : NULL,
                          .n_class_weights = by->weighted ? CLASSES : 0,
                          .weighted_mean = by->mean,
                          .label_smoothing = by->smoothing};
}

/* What -log p of class c counts in the loss of a target. */
static double part_of(const meaning *by, int target, int c)
{
    const double *w = by->weighted ? WEIGHT : ALIKE;
    double spread = by->smoothing / CLASSES * (by->mean ? w[c] : w[target]);
    return spread + (c == target ? w[target] * (1 - by->smoothing) : 0);
}

/* Loss and accuracy; with lr > 0 also a step of gradient descent. */
static double look(regression *m, const meaning *by, double lr, double *accuracy)
{
    regression g = {0};
    double loss = 0, right = 0, number = 0, counted = 0;

    for (int i = 0; i < SAMPLES; i++)
        for (int p = 0; p < PLACES; p++) {
            double z[CLASSES], sum = 0;
            int best = 0;
            if (Y[i][p] == by->ignore)
                continue;
            for (int c = 0; c < CLASSES; c++) {
                z[c] = m->b[c];
                for (int j = 0; j < WIDTH; j++)
                    z[c] += m->w[c][j] * (double)X[i][p][j];
                sum += exp(z[c]);
                best = z[c] > z[best] ? c : best;
            }
            double whole = 0; /* of the parts */
            for (int c = 0; c < CLASSES; c++)
                whole += part_of(by, Y[i][p], c);
            number++;
            counted += by->mean ? WEIGHT[Y[i][p]] : 1;
            right += best == Y[i][p];
            for (int c = 0; c < CLASSES; c++) {
                loss += part_of(by, Y[i][p], c) * (log(sum) - z[c]);
                double d = whole * exp(z[c]) / sum - part_of(by, Y[i][p], c);
                g.b[c] += d;
                for (int j = 0; j < WIDTH; j++)
                    g.w[c][j] += d * (double)X[i][p][j];
            }
        }
    for (int c = 0; c < CLASSES; c++) {
        m->b[c] -= lr * g.b[c] / counted;
        for (int j = 0; j < WIDTH; j++)
            m->w[c][j] -= lr * g.w[c][j] / counted;
    }
    *accuracy = right / number;
    return loss / counted;
}

typedef struct run {
    meaning by;
    int64_t batch;
    int accumulate, micro_batches, zero;
    td_dataset *data;
} run;

static void train(ranks_ctx *r)
{
    const run *c = r->arg;
    td_compile_opts o = {.loss = "cross_entropy",
                         .loss_opts = loss_of(&c->by),
                         .batch = c->batch,
                         .accumulate = c->accumulate,
                         .micro_batches = c->micro_batches,
                         .steps = STEPS,
                         .epochs = STEPS,
                         .seed = 5,
                         .zero = c->zero,
                         .optimizer = {.name = "sgd", .lr = LR},
                         .comm = td_comm_size(r->comm) > 1 ? r->comm : NULL};
    td_run_result result = {0};
    td_trainer *t = NULL;
    double accuracy, want = 0;

    RANK_OK(r, td_trainer_compile(build, NULL, c->data, NULL, &o, &t));
    regression m = weights_of(t);
    for (int k = 0; k < STEPS; k++)
        want = look(&m, &c->by, LR, &accuracy);
    RANK_OK(r, td_trainer_fit(t, &result));
    RANK_CHECK(r, fabs(result.train_loss - want) < 1e-6, "loss %.9g, expected %.9g",
               result.train_loss, want);
    if (!c->zero) {
        regression got = weights_of(t);
        for (int i = 0; i < CLASSES; i++)
            RANK_CHECK(r, fabs(got.b[i] - m.b[i]) < 1e-6 && fabs(got.w[i][1] - m.w[i][1]) < 1e-6,
                       "bias %d: %.9g, expected %.9g", i, got.b[i], m.b[i]);
    }
    td_trainer_destroy(t);
}

TEST(training)
{
    static const run RUNS[] = {
        {{.ignore = -1}, 24, 1, 1, 0, NULL},           {{.ignore = -100}, 24, 1, 8, 0, NULL},
        {{.ignore = 2}, 24, 1, 24, 0, NULL},           {{.ignore = -100}, 8, 3, 4, 0, NULL},
        {{.ignore = -100}, 7, 4, 3, 0, NULL},          {{.ignore = -100}, 8, 3, 4, 1, NULL},
        {{.ignore = -1}, 12, 2, 4, 2, NULL},           {{.ignore = 0}, 24, 1, 8, 3, NULL},
        {{.ignore = -100}, 24, 1, 5, 0, NULL},         {{-100, true, false, 0}, 8, 3, 4, 0, NULL},
        {{-100, true, true, 0}, 8, 3, 4, 0, NULL},     {{1, true, true, 0}, 24, 1, 24, 1, NULL},
        {{-1, true, false, 0.2}, 7, 4, 3, 0, NULL},    {{-1, true, true, 0.2}, 7, 4, 3, 0, NULL},
        {{0, true, true, 0.1}, 24, 1, 8, 3, NULL},     {{NONE, true, true, 0}, 24, 1, 8, 0, NULL},
        {{NONE, true, true, 0.3}, 8, 3, 4, 0, NULL},   {{NONE, true, false, 0.3}, 8, 3, 4, 0, NULL},
        {{-100, false, false, 0.3}, 8, 3, 4, 0, NULL},
    };

    for (int i = 0; i < TD_LEN(RUNS); i++)
        for (int size = 1; size <= 3; size++) {
            run c = RUNS[i];
            c.zero = size > 1 ? c.zero : 0;
            c.data = samples(c.by.ignore);
            ranks_run(size, NULL, train, &c);
            td_dataset_destroy(c.data);
        }
}

/* The same numbers for any evaluation batch, those of the mean over counted targets. */
TEST(evaluation)
{
    static const int64_t BATCHES[] = {1, 3, 5, 7, 16, 24};
    static const meaning BY[] = {
        {.ignore = -1},           {.ignore = -100},        {.ignore = 0},         {.ignore = 2},
        {-100, true, false, 0.1}, {-100, true, true, 0.1}, {NONE, true, true, 0},
    };

    for (int k = 0; k < TD_LEN(BY); k++)
        for (int i = 0; i < TD_LEN(BATCHES); i++) {
            td_dataset *d = samples(BY[k].ignore);
            td_compile_opts o = {.loss = "cross_entropy",
                                 .loss_opts = loss_of(&BY[k]),
                                 .batch = 8,
                                 .steps = 1,
                                 .seed = 5,
                                 .eval_batch = BATCHES[i]};
            td_trainer *t;
            td_metrics e;
            double accuracy;
            CHECK_OK(td_trainer_compile(build, NULL, d, d, &o, &t));
            CHECK_OK(td_trainer_evaluate(t, d, &e));
            regression m = weights_of(t);
            double want = look(&m, &BY[k], 0, &accuracy);
            CHECK(fabs(e.value[0] - want) < 1e-6, "batch %d: loss %.9g, expected %.9g",
                  (int)BATCHES[i], e.value[0], want);
            CHECK(fabs(e.value[1] - accuracy) < 1e-7, "batch %d: accuracy %.9g, expected %.9g",
                  (int)BATCHES[i], e.value[1], accuracy);
            td_trainer_destroy(t);
            td_dataset_destroy(d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(training), cmocka_unit_test(evaluation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
