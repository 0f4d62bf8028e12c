/* 03 -- a convolutional network sees which way a bar lies in a noisy picture.
 *
 * New here: images (N, C, H, W), layers put together by hand, batch norm with its running averages,
 * the memory plan, saving and loading params. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tandem/tandem.h"

enum { BATCH = 32, SIZE = 16, CLASSES = 4, STEPS = 60 };

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

/* Bars of 9 pixels: lying, standing, and the two diagonals. */
static void make_batch(float *x, int32_t *target)
{
    static const int DX[CLASSES] = {1, 0, 1, 1}, DY[CLASSES] = {0, 1, 1, -1};

    for (int i = 0; i < BATCH; i++) {
        float *image = x + i * SIZE * SIZE;
        int c = rand() % CLASSES, cx = 4 + rand() % 8, cy = 4 + rand() % 8;
        for (int k = 0; k < SIZE * SIZE; k++)
            image[k] = 0.5f * (float)rand() / (float)RAND_MAX;
        for (int k = -4; k <= 4; k++)
            image[(cy + k * DY[c]) * SIZE + cx + k * DX[c]] = 1.0f;
        target[i] = c;
    }
}

static td_node *small_cnn(td_graph *g, td_node *x)
{
    td_nn_conv2d_opts same = {.conv = {.pad = {1, 1}}, .no_bias = true};
    td_pool2d_opts pool = {.size = {2, 2}};

    x = td_relu(g, td_nn_batch_norm(g, "bn1", td_nn_conv2d(g, "conv1", x, 8, 3, &same), NULL));
    x = td_max_pool2d(g, x, &pool);
    x = td_relu(g, td_nn_batch_norm(g, "bn2", td_nn_conv2d(g, "conv2", x, 16, 3, &same), NULL));
    x = td_max_pool2d(g, x, &pool);
    return td_nn_linear(g, "fc", td_reshape(g, x, TD_SHAPE(BATCH, -1)), CLASSES, NULL);
}

int main(void)
{
    td_graph *g;
    td_program *train, *eval;
    td_params *params, *loaded;
    td_runner *runner, *judge;
    td_optimizer *optimizer;
    char path[] = "/tmp/03_cnn_XXXXXX"; /* a new file */

    check(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(BATCH, 1, SIZE, SIZE));
    td_node *target = td_input(g, "target", TD_I32, TD_SHAPE(BATCH));
    td_node *logits = small_cnn(g, x);
    td_node *loss = td_softmax_cross_entropy(g, logits, target, NULL);
    td_node *accuracy = td_accuracy(g, logits, target, 1);
    check(td_program_create(g, loss, NULL, &train));
    check(td_program_create(
        g, NULL, &(td_program_opts){.evaluate = true, .outputs = &accuracy, .n_outputs = 1},
        &eval));
    td_memory_plan memory = td_program_memory(train);
    printf("a training step needs %zu KiB of activations (%zu without reuse)\n",
           memory.activations / 1024, memory.activations_unshared / 1024);
    check(td_params_create(train, 1, &params));
    check(td_runner_create(train, params, &runner));
    td_optim_opts sgd = {.name = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 1e-4};
    check(td_optimizer_create(&sgd, params, &optimizer));

    float first = 0, last = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        make_batch(td_runner_input(runner, "x", NULL), td_runner_input(runner, "target", NULL));
        check(td_runner_run(runner, (td_run_key){.step = step}));
        last = td_runner_loss(runner);
        first = step ? first : last;
        if (step % 10 == 0)
            printf("step %2u  loss %.4f\n", step, (double)last);
        check(td_optimizer_step(optimizer, runner, 0.05));
    }

    /* What another tool can load, so can we: judge with params read back from the file. */
    close(mkstemp(path));
    check(td_params_save(params, path));
    check(td_params_create(train, 2, &loaded));
    check(td_params_load(loaded, path));
    check(td_runner_create(eval, loaded, &judge));
    make_batch(td_runner_input(judge, "x", NULL), td_runner_input(judge, "target", NULL));
    check(td_runner_run(judge, (td_run_key){.step = 0}));
    float share = *(const float *)td_runner_output(judge, 0, NULL);
    printf("accuracy on new pictures %.1f %%\n", 100.0 * (double)share);
    remove(path);

    td_runner_destroy(judge);
    td_params_destroy(loaded);
    td_optimizer_destroy(optimizer);
    td_runner_destroy(runner);
    td_params_destroy(params);
    td_program_destroy(eval);
    td_program_destroy(train);
    td_graph_destroy(g);
    return share > 0.9f && last < 0.3f * first ? 0 : 1;
}
