/* 01 -- the smallest training program: find the line behind noisy points.
 *
 * Describe (graph), plan (program), make the numbers (params), execute (runner), improve
 * (optimizer). Every program that trains something has these five objects. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tandem/tandem.h"

enum { BATCH = 64, FEATURES = 3, STEPS = 200 };
static const float TRUE_W[FEATURES] = {2.0f, -3.0f, 0.5f};
static const float TRUE_B = 4.0f;

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

/* Points on the plane y = w x + b, with a little noise. */
static void make_batch(float *x, float *y)
{
    for (int i = 0; i < BATCH; i++) {
        y[i] = TRUE_B + 0.01f * ((float)rand() / (float)RAND_MAX - 0.5f);
        for (int k = 0; k < FEATURES; k++) {
            x[i * FEATURES + k] = 2.0f * (float)rand() / (float)RAND_MAX - 1.0f;
            y[i] += TRUE_W[k] * x[i * FEATURES + k];
        }
    }
}

int main(void)
{
    td_graph *g;
    td_program *program;
    td_params *params;
    td_runner *runner;
    td_optimizer *sgd;

    check(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(BATCH, FEATURES));
    td_node *y = td_input(g, "y", TD_F32, TD_SHAPE(BATCH, 1));
    td_node *loss = td_mse(g, td_nn_linear(g, "line", x, 1, NULL), y);
    check(td_program_create(g, loss, NULL, &program));
    check(td_params_create(program, 1, &params));
    check(td_runner_create(program, params, &runner));
    check(td_optimizer_create(&(td_optim_opts){.name = "sgd"}, params, &sgd));

    float first = 0, last = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        make_batch(td_runner_input(runner, "x", NULL), td_runner_input(runner, "y", NULL));
        check(td_runner_run(runner, (td_run_key){.step = step}));
        last = td_runner_loss(runner);
        first = step ? first : last;
        if (step % 40 == 0)
            printf("step %3u  loss %.6f\n", step, (double)last);
        check(td_optimizer_step(sgd, runner, 0.3));
    }

    const float *w = td_params_block(params, NULL) +
                     td_params_info(params, td_params_find(params, "line.weight")).offset;
    const float *b = td_params_block(params, NULL) +
                     td_params_info(params, td_params_find(params, "line.bias")).offset;
    printf("found  w = %.3f %.3f %.3f  b = %.3f\n", (double)w[0], (double)w[1], (double)w[2],
           (double)b[0]);
    int found = fabsf(b[0] - TRUE_B) < 0.01f;
    for (int k = 0; k < FEATURES; k++)
        found = found && fabsf(w[k] - TRUE_W[k]) < 0.01f;

    td_optimizer_destroy(sgd);
    td_runner_destroy(runner);
    td_params_destroy(params);
    td_program_destroy(program);
    td_graph_destroy(g);
    return found && last < 0.001f * first ? 0 : 1;
}
