/* bench_trainer.c -- what the training loop costs beside its arithmetic: the trainer (loader,
 * micro-batches, sum in the tree, update; no observers) against a bare loop of td_runner_run and
 * td_optimizer_step on the same batch in place, one compute thread each.
 *
 * With one micro-batch the two do the same arithmetic; with more, micro-batches are smaller
 * matrices, and their gradients are added up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench_report.h"
#include "tandem/tandem.h"
#include "train/trainer.h"

enum { BATCH = 64, SAMPLES = 6400, STEPS = 300, ROUNDS = 7 };

/* Time of this thread, which computes: what others do on the machine does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(td_status st)
{
    if (!st)
        return;
    fprintf(stderr, "bench_trainer: %s\n", td_last_error());
    exit(1);
}

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 1, 28, 28));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *logits = td_model_mlp(g, td_reshape(g, x, TD_SHAPE(rows, 784)), NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static const td_optim_opts OPTIM = {.name = "sgd", .lr = 0.01, .momentum = 0.9};

/* Seconds per step of the trainer. */
static double trainer(td__data *d, int micro_batches, td_dtype precision)
{
    td__trainer *t;
    td__train_result r;
    td__train_opts o = {.batch = BATCH,
                        .steps = STEPS,
                        .micro_batches = micro_batches,
                        .threads = 1,
                        .precision = precision,
                        .optim = OPTIM,
                        .seed = 1,
                        .valid_every = -1};
    check(td__trainer_create(&o, &(td__model){.build = build}, d, &t));
    double begin = now();
    check(td__trainer_run(t, NULL, &r));
    double seconds = (now() - begin) / STEPS;
    td__trainer_destroy(t);
    return seconds;
}

/* Seconds per step of the bare loop. */
static double bare(td__data *d, td_dtype precision)
{
    td_graph *g;
    td_program *p;
    td_params *ps;
    td_runner *r;
    td_optimizer *o;
    td__model_nodes n;
    int64_t index[BATCH];
    void *field[2];

    check(td_graph_create(&g));
    check(build(NULL, g, BATCH, &n));
    check(td_program_create(g, n.loss, &(td_program_opts){.precision = precision}, &p));
    check(td_params_create(p, 1, &ps));
    check(td_runner_create(p, ps, &r));
    check(td_optimizer_create(&OPTIM, ps, &o));
    for (int64_t i = 0; i < BATCH; i++)
        index[i] = i;
    field[0] = td_runner_input(r, "x", NULL);
    field[1] = td_runner_input(r, "y", NULL);
    check(td__dataset_read(td__data_part(d, TD_PART_TRAIN), index, BATCH, NULL, field));
    double begin = now();
    for (uint32_t i = 0; i < STEPS; i++) {
        check(td_runner_run(r, (td_run_key){.seed = 1, .step = i}));
        check(td_optimizer_step(o, r, OPTIM.lr));
    }
    double seconds = (now() - begin) / STEPS;
    td_optimizer_destroy(o);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
    return seconds;
}

int main(int argc, char **argv)
{
    static const int MICRO_BATCHES[] = {1, 4};
    static const td_dtype PRECISIONS[] = {TD_F32, TD_BF16};
    td__data *d;
    td__data_opts o = {
        .source = "digits", .source_opts = {.count = SAMPLES}, .cache = "memory", .seed = 1};

    bench_begin(argc, argv);
    check(td__data_open(&o, &d));
    trainer(d, 1, TD_F32); /* fills the cache */
    for (int k = 0; k < 2; k++)
        for (int v = 0; v < 2; v++) {
            double ours = 1e9, peer = 1e9;
            for (int i = 0; i < ROUNDS; i++) {
                double a = bare(d, PRECISIONS[k]), b = trainer(d, MICRO_BATCHES[v], PRECISIONS[k]);
                peer = a < peer ? a : peer;
                ours = b < ours ? b : ours;
            }
            char name[64];
            snprintf(name, sizeof name, "mlp 64 %s, %d micro-batches, against a bare loop",
                     td_dtype_name(PRECISIONS[k]), MICRO_BATCHES[v]);
            bench_row(name, ours * 1e3, peer * 1e3, "ms", false);
        }
    td__data_close(d);
    return bench_end();
}
