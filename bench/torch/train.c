/* train.c -- one of the benchmark models trained with Tandem for a while: the counterpart of
 * train.py, which does the same with PyTorch. Prints one JSON object with what was measured.
 *
 *     train --model gpt --precision bf16 --seconds 5 --started NS [--profile]
 *
 * NS is the monotonic clock when the process was started, so that "seconds to the first step"
 * counts everything: loading, building the graph, planning, initialising, one step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "tandem/tandem.h"

enum { MAX_STEPS = 100000, CLASSES = 10 };

typedef struct model {
    const char *name;
    int samples; /* per step: images or tokens */
    const char *optimizer;
    double lr;
    td_node *(*build)(td_graph *g); /* the loss; inputs are "x" and "y" */
    int n_classes, n_ids;           /* y < n_classes; x < n_ids if it holds indices */
} model;

static td_node *classify(td_graph *g, td_node *logits, int batch)
{
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(batch));
    return td_softmax_cross_entropy(g, logits, y, NULL);
}

static td_node *build_mlp(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(64, 784));
    return classify(g, td_model_mlp(g, x, NULL), 64);
}

static td_node *build_cnn(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(64, 1, 28, 28));
    return classify(g, td_model_cnn(g, x, NULL), 64);
}

static td_node *build_resnet18(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(32, 3, 32, 32));
    return classify(g, td_model_resnet(g, x, &(td_resnet_opts){.depth = 18, .cifar_stem = true}),
                    32);
}

static td_node *build_lstm(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(64, 32));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(64, 32));
    td_node *logits = td_model_lstm_lm(
        g, x, &(td_lstm_lm_opts){.vocab = 96, .width = 256, .hidden = 256, .layers = 2});
    return td_softmax_cross_entropy(g, logits, y, NULL);
}

static td_node *build_gpt(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(8, 256));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(8, 256));
    td_node *logits = td_model_gpt2(
        g, x,
        &(td_gpt2_opts){.layers = 6, .heads = 6, .width = 384, .vocab = 4096, .context = 256});
    return td_softmax_cross_entropy(g, logits, y, NULL);
}

static const model MODELS[] = {
    {"mlp", 64, "sgd", 0.01, build_mlp, CLASSES, 0},
    {"cnn", 64, "sgd", 0.01, build_cnn, CLASSES, 0},
    {"resnet18", 32, "sgd", 0.01, build_resnet18, CLASSES, 0},
    {"lstm", 64 * 32, "sgd", 0.1, build_lstm, 96, 96},
    {"gpt", 8 * 256, "adamw", 3e-4, build_gpt, 4096, 4096},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(td_status st)
{
    if (!st)
        return;
    fprintf(stderr, "train: %s\n", td_last_error());
    exit(1);
}

static void fill(td_runner *r, const model *m)
{
    size_t nbytes;
    uint32_t random = 12345;
    void *x = td_runner_input(r, "x", &nbytes);
    for (size_t i = 0; i < nbytes / 4; i++) {
        random = random * 1664525u + 1013904223u;
        if (m->n_ids)
            ((int32_t *)x)[i] = (int32_t)((random >> 8) % (uint32_t)m->n_ids);
        else
            ((float *)x)[i] = (float)(random >> 8) / (float)(1 << 23) - 1;
    }
    int32_t *y = td_runner_input(r, "y", &nbytes);
    for (size_t i = 0; i < nbytes / 4; i++) {
        random = random * 1664525u + 1013904223u;
        y[i] = (int32_t)((random >> 8) % (uint32_t)m->n_classes);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_profile(td_runner *r)
{
    int n = td_runner_profile_count(r);
    for (int i = 0; i < n; i++) {
        td_node_time t = td_runner_profile(r, i);
        fprintf(stderr, "%9.1f us  %-22s %-28s %s\n",
                (double)t.total_ns * 1e-3 / (double)(t.calls ? t.calls : 1), t.op, t.impl, t.name);
    }
}

typedef struct args {
    const char *model, *precision;
    double seconds, started;
    bool profile;
} args;

static args parse(int argc, char **argv)
{
    args a = {"mlp", "f32", 3, now(), false};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--profile") == 0) {
            a.profile = true;
            continue;
        }
        if (strcmp(argv[i], "--model") == 0)
            a.model = value;
        else if (strcmp(argv[i], "--precision") == 0)
            a.precision = value;
        else if (strcmp(argv[i], "--seconds") == 0)
            a.seconds = strtod(value, NULL);
        else if (strcmp(argv[i], "--started") == 0)
            a.started = strtod(value, NULL) * 1e-9;
        else {
            fprintf(stderr, "usage: train --model NAME --precision f32|bf16 --seconds S "
                            "--started NS [--profile]\n");
            exit(2);
        }
        i++;
    }
    return a;
}

int main(int argc, char **argv)
{
    args a = parse(argc, argv);
    const model *m = NULL;
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strcmp(MODELS[i].name, a.model) == 0)
            m = &MODELS[i];
    td_dtype precision;
    if (!m) {
        fprintf(stderr, "train: unknown model '%s'\n", a.model);
        return 2;
    }
    if (!td_dtype_parse(a.precision, &precision)) {
        fprintf(stderr, "train: unknown precision '%s'\n", a.precision);
        return 2;
    }

    td_graph *g;
    td_program *p;
    td_params *ps;
    td_runner *r;
    td_optimizer *o;
    check(td_graph_create(&g));
    td_node *loss = m->build(g);
    check(td_program_create(g, loss, &(td_program_opts){.precision = precision}, &p));
    td_graph_destroy(g);
    check(td_params_create(p, 1, &ps));
    check(td_runner_create(p, ps, &r));
    bool sgd = strcmp(m->optimizer, "sgd") == 0;
    check(td_optimizer_create(
        &(td_optim_opts){.name = m->optimizer, .lr = m->lr, .momentum = sgd ? 0.9 : 0}, ps, &o));
    fill(r, m);

    static double times[MAX_STEPS];
    double first = 0, first_loss = 0;
    int steps = 0, warm_up = 2;
    double begin = now();
    while (steps < MAX_STEPS && (steps < 5 || now() - begin < a.seconds)) {
        if (steps == warm_up && a.profile)
            td_runner_set_profile(r, true);
        double t = now();
        check(td_runner_run(r, (td_run_key){.seed = 1, .step = (uint32_t)steps}));
        check(td_optimizer_step(o, r, m->lr));
        times[steps] = now() - t;
        if (steps++ == 0) {
            first = now() - a.started;
            first_loss = (double)td_runner_loss(r);
        }
    }
    if (a.profile)
        print_profile(r);
    qsort(times + warm_up, (size_t)(steps - warm_up), sizeof *times, by_value);
    double median = times[warm_up + (steps - warm_up) / 2];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"step_ms\": %.4f, \"best_ms\": %.4f, \"per_second\": %.1f, \"rss_mb\": %.1f, "
           "\"first_step_s\": %.4f, \"steps\": %d, \"loss_first\": %.6f, \"loss_last\": %.6f}\n",
           median * 1e3, times[warm_up] * 1e3, m->samples / median, (double)usage.ru_maxrss / 1024,
           first, steps, first_loss, (double)td_runner_loss(r));
    td_optimizer_destroy(o);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    return 0;
}
