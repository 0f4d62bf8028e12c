/* test_golden_train.c -- training runs of ours against PyTorch's.
 *
 * Five small models, 20 steps with SGD and with AdamW each, from the same weights on the same
 * batches: every loss, and the loss in evaluation mode at the end, within 1e-5 of PyTorch's in f32
 * (1e-4 on the backend that TD_TEST_BACKEND names) and within 1e-2 in bf16 (against the f32
 * losses). tests/golden/train/make.py made the files, says what is in them and how inputs come
 * about, and trains the same models; the table below repeats its sizes and rates. With
 * TD_KEEP_FILES=DIR the trained f32 weights stay in DIR for `make.py verify DIR`. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/golden.h"

enum { STEPS = 20, BATCHES = 4 };

static td_node *mlp(td_graph *g, td_node *x)
{
    static const int64_t WIDTHS[] = {32, 16, 5};

    return td_model_mlp(g, x, &(td_mlp_opts){.widths = WIDTHS, .n_widths = 3});
}

static td_node *cnn(td_graph *g, td_node *x)
{
    return td_model_cnn(g, x, NULL);
}

static td_node *resnet(td_graph *g, td_node *x)
{
    return td_model_resnet(g, x, &(td_resnet_opts){.depth = 18, .cifar_stem = true, .width = 16});
}

static td_node *lstm(td_graph *g, td_node *x)
{
    td_lstm_lm_opts o = {.vocab = 40, .width = 16, .hidden = 24, .layers = 2};

    return td_model_lstm_lm(g, x, &o);
}

static td_node *gpt(td_graph *g, td_node *x)
{
    td_gpt2_opts o = {.layers = 2, .heads = 2, .width = 32, .vocab = 48, .context = 32};

    return td_model_gpt2(g, x, &o);
}

typedef struct model {
    const char *name;
    td_node *(*build)(td_graph *g, td_node *x); /* the logits */
    td_shape x, y;
    int tokens;  /* x holds integers below this; 0: numbers of [-1, 1) */
    int classes; /* y holds integers below this */
    bool stored; /* the first weights are in a file */
    double lr_sgd, lr_adamw;
} model;

static const model MODELS[] = {
    {"mlp", mlp, {2, {16, 20}}, {1, {16}}, 0, 5, true, 0.2, 0.01},
    {"cnn", cnn, {4, {8, 1, 10, 10}}, {1, {8}}, 0, 10, true, 0.05, 0.0007},
    {"resnet", resnet, {4, {16, 3, 16, 16}}, {1, {16}}, 0, 10, false, 0.002, 0.0001},
    {"lstm", lstm, {2, {12, 5}}, {2, {12, 5}}, 40, 40, true, 2, 0.02},
    {"gpt", gpt, {2, {4, 24}}, {2, {4, 24}}, 48, 48, true, 0.1, 0.005},
};

/* Batch k of input "x" or "y" into memory of that input: integers below n, or numbers if n is 0. */
static void fill(td_runner *r, const char *input, int k, int n)
{
    char name[] = {input[0], (char)('0' + k), '\0'};
    size_t nbytes;
    void *at = td_runner_input(r, input, &nbytes);

    CHECK(at, "no input '%s'", input);
    golden_fill(name, n, at, nbytes / 4);
}

static td_program *program(const model *m, td_dtype precision, bool evaluate)
{
    td_program_opts o = {
        .precision = precision, .evaluate = evaluate, .backend = getenv("TD_TEST_BACKEND")};
    td_graph *g;
    td_program *p;

    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", m->tokens ? TD_I32 : TD_F32, m->x);
    td_node *y = td_input(g, "y", TD_I32, m->y);
    td_node *loss = td_softmax_cross_entropy(g, m->build(g, x), y, NULL);
    CHECK_OK(td_program_create(g, loss, &o, &p));
    td_graph_destroy(g);
    return p;
}

static float run(td_runner *r, const model *m, int step)
{
    fill(r, "x", step % BATCHES, m->tokens);
    fill(r, "y", step % BATCHES, m->classes);
    CHECK_OK(td_runner_run(r, (td_run_key){.step = (uint32_t)step}));
    return td_runner_loss(r);
}

/* The losses of the steps, then the one of batch 0 in evaluation mode. */
static void train(const model *m, const char *optimizer, td_dtype precision, double out[STEPS + 1])
{
    bool sgd = !strcmp(optimizer, "sgd");
    double lr = sgd ? m->lr_sgd : m->lr_adamw;
    td_optim_opts o = {
        .name = optimizer, .momentum = sgd ? 0.9 : 0, .weight_decay = sgd ? 1e-3 : 0.01};
    td_program *p = program(m, precision, false), *e = program(m, precision, true);
    td_params *ps;
    td_runner *r, *re;
    td_optimizer *opt;
    char path[512];

    CHECK_OK(td_params_create(p, 1, &ps));
    snprintf(path, sizeof path, "tests/golden/train/%s.safetensors", m->name);
    if (m->stored)
        CHECK_OK(td_params_load(ps, path));
    else
        golden_params(ps);
    CHECK_OK(td_runner_create(p, ps, &r));
    CHECK_OK(td_runner_create(e, ps, &re));
    CHECK_OK(td_optimizer_create(&o, ps, &opt));
    for (int step = 0; step < STEPS; step++) {
        out[step] = (double)run(r, m, step);
        CHECK_OK(td_optimizer_step(opt, r, lr));
    }
    out[STEPS] = (double)run(re, m, 0);
    const char *keep = getenv("TD_KEEP_FILES");
    if (keep && precision == TD_F32) {
        snprintf(path, sizeof path, "%s/%s.%s.safetensors", keep, m->name, optimizer);
        CHECK_OK(td_params_save(ps, path));
    }
    td_optimizer_destroy(opt);
    td_runner_destroy(re);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(e);
    td_program_destroy(p);
}

/* All models and optimizers in one precision; every run is made before the verdict. */
static void check_runs(td_dtype precision, double tol)
{
    static const char *const OPTIMIZERS[] = {"sgd", "adamw"};
    const char *only = getenv("TD_TEST_MODELS"); /* "mlp gpt": these alone */
    int bad = 0;

    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        for (size_t k = 0; k < 2 && (!only || strstr(only, MODELS[i].name)); k++) {
            double got[STEPS + 1], want[STEPS + 1], worst = 0;
            int at = 0;
            char name[64];

            snprintf(name, sizeof name, "%s.%s", MODELS[i].name, OPTIMIZERS[k]);
            golden_losses("tests/golden/train/losses.safetensors", name, want, STEPS + 1);
            train(&MODELS[i], OPTIMIZERS[k], precision, got);
            for (int step = 0; step <= STEPS; step++) {
                double d = fabs(got[step] - want[step]) / want[step];
                if (!(d <= worst)) {
                    worst = d;
                    at = step;
                }
            }
            printf("%-13s %s  largest deviation %.1e at step %2d: %.7f, PyTorch %.7f%s\n", name,
                   precision == TD_F32 ? "f32 " : "bf16", worst, at, got[at], want[at],
                   worst <= tol ? "" : "  TOO LARGE");
            bad += !(worst <= tol);
        }
    CHECK(bad == 0, "%d runs deviate by more than %.0e", bad, tol);
}

TEST(f32_losses_are_pytorchs)
{
    check_runs(TD_F32, getenv("TD_TEST_BACKEND") ? 1e-4 : 1e-5);
}

TEST(bf16_losses_are_near_pytorchs_f32)
{
    check_runs(TD_BF16, 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_losses_are_pytorchs),
        cmocka_unit_test(bf16_losses_are_near_pytorchs_f32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
