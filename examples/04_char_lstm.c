/* 04 -- an LSTM learns a text by heart, character by character, and recites it.
 *
 * New here: sequences (time first), gradient clipping, and a program for generation: batch 1, one
 * step of time, whose last states are fed back in as inputs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/tandem.h"

enum { TIME = 64, BATCH = 8, VOCAB = 128, HIDDEN = 96, STEPS = 300 };

static const char TEXT[] =
    "It was many and many a year ago, in a kingdom by the sea, that a maiden there lived whom you "
    "may know by the name of Annabel Lee; and this maiden she lived with no other thought than to "
    "love and be loved by me. ";

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

/* Windows of the text from random places; it goes round. ids[t][b], target: one character on. */
static void make_batch(int32_t *ids, int32_t *target)
{
    size_t n = sizeof TEXT - 1;

    for (size_t b = 0; b < BATCH; b++) {
        size_t from = (size_t)rand() % n;
        for (size_t t = 0; t < TIME; t++) {
            ids[t * BATCH + b] = TEXT[(from + t) % n];
            target[t * BATCH + b] = TEXT[(from + t + 1) % n];
        }
    }
}

/* The same layers for training (T steps from zeros) and generation (one step from given states). */
static td_node *char_lstm(td_graph *g, td_node *ids, td_nn_rnn_opts *rnn)
{
    td_node *x = td_nn_embedding(g, "encoder", ids, VOCAB, HIDDEN, NULL);
    return td_nn_linear(g, "decoder", td_nn_lstm(g, "rnn", x, HIDDEN, rnn), VOCAB, NULL);
}

static td_program *training_program(void)
{
    td_graph *g;
    td_program *p;

    check(td_graph_create(&g));
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(TIME, BATCH));
    td_node *target = td_input(g, "target", TD_I32, TD_SHAPE(TIME, BATCH));
    td_node *logits = char_lstm(g, ids, NULL);
    check(td_program_create(g, td_softmax_cross_entropy(g, logits, target, NULL), NULL, &p));
    td_graph_destroy(g);
    return p;
}

/* Outputs: the likeliest next character, h, c. */
static td_program *generation_program(void)
{
    td_graph *g;
    td_program *p;
    td_node *h_last, *c_last;

    check(td_graph_create(&g));
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(1, 1));
    td_node *h = td_input(g, "h", TD_F32, TD_SHAPE(1, HIDDEN));
    td_node *c = td_input(g, "c", TD_F32, TD_SHAPE(1, HIDDEN));
    td_nn_rnn_opts rnn = {.h0 = &h, .c0 = &c, .h_last = &h_last, .c_last = &c_last};
    td_node *next = td_argmax(g, char_lstm(g, ids, &rnn), 2);
    td_node *outputs[] = {next, h_last, c_last};
    check(td_program_create(
        g, NULL, &(td_program_opts){.evaluate = true, .outputs = outputs, .n_outputs = 3}, &p));
    td_graph_destroy(g);
    return p;
}

/* Read `start` of the text, then go on alone for n characters into out. */
static void recite(td_runner *r, size_t start, size_t n, char *out)
{
    size_t nbytes;
    int32_t next = 0;

    for (size_t i = 0; i < start + n; i++) {
        *(int32_t *)td_runner_input(r, "ids", NULL) = i < start ? TEXT[i] : next;
        check(td_runner_run(r, (td_run_key){.step = 0}));
        next = *(const int32_t *)td_runner_output(r, 0, NULL);
        const void *h = td_runner_output(r, 1, &nbytes);
        check(td_runner_set_input(r, "h", h, nbytes));
        const void *c = td_runner_output(r, 2, &nbytes);
        check(td_runner_set_input(r, "c", c, nbytes));
        if (i + 1 >= start && i + 1 < start + n)
            out[i + 1 - start] = (char)next;
    }
    out[n] = '\0';
}

int main(void)
{
    enum { START = 24, GO_ON = 60 };
    td_program *train = training_program(), *generate = generation_program();
    td_params *params;
    td_runner *runner, *reciter;
    td_optimizer *adam;
    char said[GO_ON + 1];

    check(td_params_create(train, 1, &params));
    check(td_runner_create(train, params, &runner));
    check(td_optimizer_create(&(td_optim_opts){.name = "adam", .clip_norm = 1}, params, &adam));
    float first = 0, last = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        make_batch(td_runner_input(runner, "ids", NULL), td_runner_input(runner, "target", NULL));
        check(td_runner_run(runner, (td_run_key){.step = step}));
        last = td_runner_loss(runner);
        first = step ? first : last;
        check(td_optimizer_step(adam, runner, 0.01));
        if (step % 50 == 0)
            printf("step %3u  loss %.4f  gradient norm %.2f\n", step, (double)last,
                   td_optimizer_grad_norm(adam));
    }

    check(td_runner_create(generate, params, &reciter));
    recite(reciter, START, GO_ON, said);
    printf("%.*s|%s\n", START, TEXT, said);
    int right = 0;
    while (right < GO_ON && said[right] == TEXT[START + right])
        right++;

    td_runner_destroy(reciter);
    td_optimizer_destroy(adam);
    td_runner_destroy(runner);
    td_params_destroy(params);
    td_program_destroy(generate);
    td_program_destroy(train);
    return last < 0.1f * first && right >= 30 ? 0 : 1;
}
