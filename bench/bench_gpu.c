/* bench_gpu.c -- training steps of whole models on a backend: GPT-2 124M, as PyTorch's users train
 * it, and the small models whose steps are mostly launches.
 *
 *     bench_gpu MODEL [--backend cuda] [--precision bf16] [--batch N] [--steps N] [--profile]
 *                     [--nodes N] [--any-bits]
 *
 * Prints one line: model, batch, ms a step, what of it the host worked (microseconds in which it
 * did not wait for the GPU), samples (tokens) a second, the most memory that was in use, the losses
 * of the first and the last step; with --profile also the nodes by operator and implementation,
 * longest first, and with --nodes the N longest nodes. --any-bits: as train.reproducible: false.
 * Exit status 1 if the first loss is not what a net knows that has learned nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/device.h"
#include "graph/params.h"
#include "tandem/tandem.h"

typedef struct model {
    const char *name;
    td_node *(*build)(td_graph *g, td_node *x); /* the logits */
    int ndim;
    int64_t x[4]; /* behind the batch */
    int y_ndim;
    int64_t y; /* targets per sample */
    int tokens, classes, batch;
} model;

static td_node *gpt2(td_graph *g, td_node *x)
{
    td_gpt2_opts o = {.layers = 12, .heads = 12, .width = 768, .vocab = 50304, .context = 1024};
    return td_model_gpt2(g, x, &o);
}

static td_node *mlp(td_graph *g, td_node *x)
{
    static const int64_t WIDTHS[] = {512, 512, 10};
    return td_model_mlp(g, x, &(td_mlp_opts){.widths = WIDTHS, .n_widths = 3});
}

static td_node *resnet18(td_graph *g, td_node *x)
{
    return td_model_resnet(g, x, &(td_resnet_opts){.depth = 18, .cifar_stem = true});
}

static td_node *resnet50(td_graph *g, td_node *x)
{
    return td_model_resnet(g, x, &(td_resnet_opts){.depth = 50});
}

static td_node *lstm(td_graph *g, td_node *x)
{
    td_lstm_lm_opts o = {.vocab = 256, .width = 256, .hidden = 512, .layers = 2};
    return td_model_lstm_lm(g, x, &o);
}

static const model MODELS[] = {
    {"gpt2", gpt2, 1, {1024}, 1, 1024, 50257, 50257, 32},
    {"mlp", mlp, 1, {784}, 0, 1, 0, 10, 128},
    {"resnet18", resnet18, 3, {3, 32, 32}, 0, 1, 0, 10, 256},
    {"resnet50", resnet50, 3, {3, 224, 224}, 0, 1, 0, 1000, 128},
    {"lstm", lstm, 1, {64}, 1, 64, 256, 256, 32},
};

static void die(const char *what)
{
    fprintf(stderr, "bench_gpu: %s: %s\n", what, td_last_error());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t next_random(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* Data that stay where the steps are, as those of PyTorch's benchmarks do. */
static void fill(td_runner *r, const char *input, size_t count, int below)
{
    uint32_t s = 7;
    float *values = calloc(count, sizeof *values);
    for (size_t i = 0; values && i < count; i++) {
        uint32_t v = next_random(&s);
        if (below)
            ((int32_t *)(void *)values)[i] = (int32_t)(v % (uint32_t)below);
        else
            values[i] = (float)(v % 2001) / 1000 - 1;
    }
    if (!values || td_runner_set_input(r, input, values, count * sizeof *values))
        die("an input");
    free(values);
}

typedef struct row {
    const char *op, *impl;
    double ms;
    int nodes;
} row;

static int longer(const void *a, const void *b)
{
    double x = ((const row *)a)->ms, y = ((const row *)b)->ms;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_profile(const td_runner *r)
{
    static row rows[512];
    int n = 0;
    double total = 0;
    for (int i = 0; i < td_runner_profile_count(r); i++) {
        td_node_time t = td_runner_profile(r, i);
        double ms = t.calls ? (double)t.total_ns / (double)t.calls * 1e-6 : 0;
        int k = 0;
        while (k < n && (strcmp(rows[k].op, t.op) != 0 || strcmp(rows[k].impl, t.impl) != 0))
            k++;
        if (k == n && n < 512)
            rows[n++] = (row){.op = t.op, .impl = t.impl};
        if (k < n) {
            rows[k].ms += ms;
            rows[k].nodes++;
        }
        total += ms;
    }
    qsort(rows, (size_t)n, sizeof *rows, longer);
    printf("  %-28s %-24s %6s %9s   (by the GPU's clock: %.2f ms in all)\n", "operator", "kernel",
           "nodes", "ms", total);
    for (int k = 0; k < n; k++)
        printf("  %-28s %-24s %6d %9.3f\n", rows[k].op, rows[k].impl, rows[k].nodes, rows[k].ms);
}

static void print_nodes(const td_runner *r, int most)
{
    static row rows[4096];
    int n = 0;
    for (int i = 0; i < td_runner_profile_count(r) && n < 4096; i++) {
        td_node_time t = td_runner_profile(r, i);
        double ms = t.calls ? (double)t.total_ns / (double)t.calls * 1e-6 : 0;
        rows[n++] = (row){.op = t.op, .impl = t.name, .ms = ms};
    }
    qsort(rows, (size_t)n, sizeof *rows, longer);
    for (int k = 0; k < n && k < most; k++)
        printf("  %-28s %-40s %9.3f\n", rows[k].op, rows[k].impl, rows[k].ms);
}

static td_program *make_program(const model *m, int64_t batch, const td_program_opts *o)
{
    td_graph *g;
    td_program *p;
    td_shape xs = {.ndim = 1 + m->ndim, .dim = {batch, m->x[0], m->x[1], m->x[2]}};
    td_shape ys = {.ndim = 1 + m->y_ndim, .dim = {batch, m->y}};
    if (td_graph_create(&g))
        die("graph");
    td_node *x = td_input(g, "x", m->tokens ? TD_I32 : TD_F32, xs);
    td_node *y = td_input(g, "y", TD_I32, ys);
    td_node *loss = td_softmax_cross_entropy(g, m->build(g, x), y, NULL);
    if (td_program_create(g, loss, o, &p))
        die("program");
    td_graph_destroy(g);
    return p;
}

static void bench(const model *m, int64_t batch, int steps, bool profile, int nodes,
                  const td_program_opts *o)
{
    double begin = now();
    td_program *p = make_program(m, batch, o);
    double planned = now();
    td_params *ps;
    td_runner *r;
    td_optimizer *opt;
    td_optim_opts adamw = {.name = "adamw", .weight_decay = 0.1};
    if (td_params_create(p, 1, &ps) || td_runner_create(p, ps, &r) ||
        td_optimizer_create(&adamw, ps, &opt))
        die("set-up");
    size_t each = (size_t)m->x[0];
    for (int i = 1; i < m->ndim; i++)
        each *= (size_t)m->x[i];
    fill(r, "x", (size_t)batch * each, m->tokens);
    fill(r, "y", (size_t)(batch * m->y), m->classes);
    double set_up = now();
    double first = 0, loss = 0, first_loss = 0, run_s = 0, start = 0;
    uint64_t waited = 0;
    for (int i = 0; i < steps + 3; i++) {
        if (i == 3) {
            start = now();
            waited = td__stream_waited_ns();
        }
        double before = now();
        if (td_runner_run(r, (td_run_key){.seed = 1, .step = (uint32_t)i}))
            die("a step");
        double after = now();
        if (td_optimizer_step(opt, r, 1e-4))
            die("an update");
        loss = (double)td_runner_loss(r);
        first_loss = i == 0 ? loss : first_loss;
        run_s += i >= 3 ? after - before : 0;
        first = i == 0 ? now() - begin : first;
    }
    double step_s = (now() - start) / steps;
    double waited_s = 1e-9 * (double)(td__stream_waited_ns() - waited) / steps;
    td__device_counters memory = td__device_count(td__params_device(ps));
    printf("%-10s batch %4lld  %9.3f ms a step (update %.3f, host %.1f us)  %11.1f samples/s  "
           "%11.1f targets/s  peak %.2f GiB  first loss %.4f last loss %.4f  ",
           m->name, (long long)batch, step_s * 1e3, (step_s - run_s / steps) * 1e3,
           (step_s - waited_s) * 1e6, (double)batch / step_s, (double)(batch * m->y) / step_s,
           (double)memory.peak / (1024.0 * 1024 * 1024), first_loss, loss);
    printf("first step after %.2f s (program %.2f, memory and weights %.2f, step %.2f)\n", first,
           planned - begin, set_up - planned, begin + first - set_up);
    double knows = log(m->classes);
    if (!(fabs(first_loss - knows) <= 0.3 * knows) || !(loss < first_loss * 1.1)) {
        fprintf(stderr,
                "bench_gpu: %s: the losses are %g and %g; a net that has learned nothing "
                "has %g\n",
                m->name, first_loss, loss, knows);
        exit(1);
    }
    if (profile) {
        td_runner_set_profile(r, true);
        for (int i = 0; i < 3; i++)
            if (td_runner_run(r, (td_run_key){.seed = 1, .step = (uint32_t)i}))
                die("a step");
        print_profile(r);
        print_nodes(r, nodes);
    }
    td_optimizer_destroy(opt);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
}

int main(int argc, char **argv)
{
    td_program_opts o = {.backend = "cuda", .precision = TD_BF16};
    int64_t batch = 0;
    int steps = 20, nodes = 0;
    bool profile = false;
    const char *name = argc > 1 ? argv[1] : "gpt2";
    for (int i = 2; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--profile"))
            profile = true;
        else if (!strcmp(argv[i], "--any-bits"))
            o.nondeterministic = true;
        else if (more && !strcmp(argv[i], "--backend"))
            o.backend = argv[++i];
        else if (more && !strcmp(argv[i], "--precision"))
            o.precision = strcmp(argv[++i], "f32") ? TD_BF16 : TD_F32;
        else if (more && !strcmp(argv[i], "--batch"))
            batch = strtol(argv[++i], NULL, 10);
        else if (more && !strcmp(argv[i], "--steps"))
            steps = (int)strtol(argv[++i], NULL, 10);
        else if (more && !strcmp(argv[i], "--nodes"))
            nodes = (int)strtol(argv[++i], NULL, 10);
        else
            return fprintf(stderr, "bench_gpu: unknown argument %s\n", argv[i]), 2;
    }
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (!strcmp(MODELS[i].name, name)) {
            bench(&MODELS[i], batch ? batch : MODELS[i].batch, steps, profile, nodes, &o);
            return 0;
        }
    return fprintf(stderr, "bench_gpu: no model %s\n", name), 2;
}
