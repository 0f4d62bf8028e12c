/* Ignored targets (loss.ignore) leave loss, gradients and accuracy as means over the other targets,
 * however the samples are cut: in micro-batches, batches, accumulated batches, ranks, evaluation
 * batches. Held against softmax regression in double. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/nn.h"
#include "tandem/train.h"

enum { SAMPLES = 24, WIDTH = 4, CLASSES = 3, STEPS = 3, PLACES = 2 };
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
            if ((int)((state >> 16) % SAMPLES) > i + 2)
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

/* Loss and accuracy; with lr > 0 also a step of gradient descent. */
static double look(regression *m, int32_t ignore, double lr, double *accuracy)
{
    regression g = {0};
    double loss = 0, right = 0, counted = 0;

    for (int i = 0; i < SAMPLES; i++)
        for (int p = 0; p < PLACES; p++) {
            double z[CLASSES], sum = 0;
            int best = 0;
            if (Y[i][p] == ignore)
                continue;
            for (int c = 0; c < CLASSES; c++) {
                z[c] = m->b[c];
                for (int j = 0; j < WIDTH; j++)
                    z[c] += m->w[c][j] * (double)X[i][p][j];
                sum += exp(z[c]);
                best = z[c] > z[best] ? c : best;
            }
            counted++;
            right += best == Y[i][p];
            loss += log(sum) - z[Y[i][p]];
            for (int c = 0; c < CLASSES; c++) {
                double d = exp(z[c]) / sum - (c == Y[i][p]);
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
    *accuracy = right / counted;
    return loss / counted;
}

typedef struct run {
    int32_t ignore;
    int64_t batch;
    int accumulate, micro_batches, zero;
    td_dataset *data;
} run;

static void train(ranks_ctx *r)
{
    const run *c = r->arg;
    td_compile_opts o = {.loss = "cross_entropy",
                         .loss_opts = {.use_ignore = true, .ignore = c->ignore},
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
        want = look(&m, c->ignore, LR, &accuracy);
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
        {-1, 24, 1, 1, 0, NULL},  {-100, 24, 1, 8, 0, NULL}, {2, 24, 1, 24, 0, NULL},
        {-100, 8, 3, 4, 0, NULL}, {-100, 7, 4, 3, 0, NULL},  {-100, 8, 3, 4, 1, NULL},
        {-1, 12, 2, 4, 2, NULL},  {0, 24, 1, 8, 3, NULL},    {-100, 24, 1, 5, 0, NULL},
    };

    for (int i = 0; i < TD_LEN(RUNS); i++)
        for (int size = 1; size <= 3; size++) {
            run c = RUNS[i];
            c.zero = size > 1 ? c.zero : 0;
            c.data = samples(c.ignore);
            ranks_run(size, NULL, train, &c);
            td_dataset_destroy(c.data);
        }
}

/* The same numbers for any evaluation batch, those of the mean over counted targets. */
TEST(evaluation)
{
    static const int64_t BATCHES[] = {1, 3, 5, 7, 16, 24};
    static const int32_t IGNORED[] = {-1, -100, 0, 2};

    for (int k = 0; k < TD_LEN(IGNORED); k++)
        for (int i = 0; i < TD_LEN(BATCHES); i++) {
            td_dataset *d = samples(IGNORED[k]);
            td_compile_opts o = {.loss = "cross_entropy",
                                 .loss_opts = {.use_ignore = true, .ignore = IGNORED[k]},
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
            double want = look(&m, IGNORED[k], 0, &accuracy);
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
