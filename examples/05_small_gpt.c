/* 05 -- a small GPT learns to sort: given 8 digits, it writes them in order.
 *
 * New here: a transformer from one call, targets that do not count (ignore_index), bf16 by one
 * option, where a step's time goes. Run with "bf16" to train in that precision. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/tandem.h"

enum { N = 8, TIME = 2 * N - 1, BATCH = 32, VOCAB = 10, STEPS = 250, IGNORE = -1 };

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

/* A sequence is the digits, then the digits in order, all but its last one; the model is asked for
 * the next digit only where the answer is determined: from the last given digit on. */
static void make_batch(int32_t *ids, int32_t *target)
{
    for (int b = 0; b < BATCH; b++) {
        int32_t both[2 * N];
        int at = N;
        for (int i = 0; i < N; i++)
            both[i] = rand() % VOCAB;
        for (int32_t d = 0; d < VOCAB; d++)
            for (int i = 0; i < N; i++)
                if (both[i] == d)
                    both[at++] = d;
        for (int t = 0; t < TIME; t++) {
            ids[b * TIME + t] = both[t];
            target[b * TIME + t] = t < N - 1 ? IGNORE : both[t + 1];
        }
    }
}

int main(int argc, char **argv)
{
    td_graph *g;
    td_program *train;
    td_params *params;
    td_runner *runner;
    td_optimizer *optimizer;
    td_schedule *schedule;
    td_gpt2_opts model = {.layers = 2, .heads = 4, .width = 64, .vocab = VOCAB, .context = TIME};
    td_program_opts plan = {.precision = argc > 1 && !strcmp(argv[1], "bf16") ? TD_BF16 : TD_F32};
    td_optim_opts adamw = {
        .name = "adamw", .weight_decay = 0.1, .no_decay_vectors = true, .clip_norm = 1};

    check(td_graph_create(&g));
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(BATCH, TIME));
    td_node *target = td_input(g, "target", TD_I32, TD_SHAPE(BATCH, TIME));
    td_node *logits = td_model_gpt2(g, ids, &model);
    td_xent_opts ignore = {.use_ignore = true, .ignore_index = IGNORE};
    td_node *loss = td_softmax_cross_entropy(g, logits, target, &ignore);
    check(td_program_create(g, loss, &plan, &train));
    check(td_params_create(train, 1, &params));
    check(td_runner_create(train, params, &runner));
    check(td_optimizer_create(&adamw, params, &optimizer));
    check(td_schedule_create(
        &(td_schedule_opts){.name = "cosine", .lr = 3e-3, .warmup_steps = 20, .total_steps = STEPS},
        &schedule));
    printf("%zu KiB of params, training in %s\n", td_program_memory(train).params / 1024,
           td_dtype_name(plan.precision));

    float first = 0, last = 0;
    td_runner_set_profile(runner, true);
    for (uint32_t step = 0; step < STEPS; step++) {
        make_batch(td_runner_input(runner, "ids", NULL), td_runner_input(runner, "target", NULL));
        check(td_runner_run(runner, (td_run_key){.step = step}));
        last = td_runner_loss(runner);
        first = step ? first : last;
        if (step % 50 == 0)
            printf("step %3u  loss %.4f\n", step, (double)last);
        check(td_optimizer_step(optimizer, runner, td_schedule_lr(schedule, step)));
    }
    printf("last loss %.4f\n", (double)last);

    td_node_time slowest = {.name = ""};
    for (int i = 0; i < td_runner_profile_count(runner); i++) {
        td_node_time t = td_runner_profile(runner, i);
        if (t.total_ns > slowest.total_ns)
            slowest = t;
    }
    printf("slowest node: %s (%s, %s), %.1f us per step\n", slowest.name, slowest.op, slowest.impl,
           (double)slowest.total_ns / 1e3 / STEPS);

    td_schedule_destroy(schedule);
    td_optimizer_destroy(optimizer);
    td_runner_destroy(runner);
    td_params_destroy(params);
    td_program_destroy(train);
    td_graph_destroy(g);
    return last < 0.1f * first ? 0 : 1;
}
