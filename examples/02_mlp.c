/* 02 -- a multi-layer perceptron tells two spirals apart.
 *
 * New here: a ready-made model, cross entropy, AdamW with a warm-up and cosine schedule, and a
 * second program for evaluation that shares the params. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tandem/tandem.h"

enum { BATCH = 128, STEPS = 400 };

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

/* Points (x, y) on two arms, one per class. */
static void make_batch(float *x, int32_t *target)
{
    for (int i = 0; i < BATCH; i++) {
        double t = 0.1 + 0.9 * (double)rand() / RAND_MAX, turn = 9.0 * t + (i % 2) * 3.14159265;
        double noise = 0.04 * ((double)rand() / RAND_MAX - 0.5);
        x[2 * i] = (float)(t * cos(turn) + noise);
        x[2 * i + 1] = (float)(t * sin(turn) - noise);
        target[i] = i % 2;
    }
}

int main(void)
{
    static const int64_t WIDTHS[] = {64, 64, 2};
    td_graph *g;
    td_program *train, *eval;
    td_params *params;
    td_runner *runner, *judge;
    td_optimizer *optimizer;
    td_schedule *schedule;

    check(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(BATCH, 2));
    td_node *target = td_input(g, "target", TD_I32, TD_SHAPE(BATCH));
    td_node *logits = td_model_mlp(g, x, &(td_mlp_opts){.widths = WIDTHS, .n_widths = 3});
    td_node *loss = td_softmax_cross_entropy(g, logits, target, NULL);
    td_node *accuracy = td_accuracy(g, logits, target, 1);
    check(td_program_create(g, loss, NULL, &train));
    check(td_program_create(
        g, NULL, &(td_program_opts){.evaluate = true, .outputs = &accuracy, .n_outputs = 1},
        &eval));
    check(td_params_create(train, 1, &params));
    check(td_runner_create(train, params, &runner));
    check(td_runner_create(eval, params, &judge));
    check(td_optimizer_create(&(td_optim_opts){.name = "adamw"}, params, &optimizer));
    check(td_schedule_create(
        &(td_schedule_opts){.name = "cosine", .lr = 0.01, .warmup_steps = 20, .total_steps = STEPS},
        &schedule));

    float first = 0, last = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        make_batch(td_runner_input(runner, "x", NULL), td_runner_input(runner, "target", NULL));
        check(td_runner_run(runner, (td_run_key){.step = step}));
        last = td_runner_loss(runner);
        first = step ? first : last;
        if (step % 50 == 0)
            printf("step %3u  loss %.4f\n", step, (double)last);
        check(td_optimizer_step(optimizer, runner, td_schedule_lr(schedule, step)));
    }

    make_batch(td_runner_input(judge, "x", NULL), td_runner_input(judge, "target", NULL));
    check(td_runner_run(judge, (td_run_key){.step = 0}));
    float share = *(const float *)td_runner_output(judge, 0, NULL);
    printf("accuracy on new points %.1f %%\n", 100.0 * (double)share);

    td_schedule_destroy(schedule);
    td_optimizer_destroy(optimizer);
    td_runner_destroy(judge);
    td_runner_destroy(runner);
    td_params_destroy(params);
    td_program_destroy(eval);
    td_program_destroy(train);
    td_graph_destroy(g);
    return share > 0.97f && last < 0.2f * first ? 0 : 1;
}
