/* 07 -- a model built in C, trained on arrays of the program's own, by two ranks.
 *
 * New here: td_trainer, which does what the loops of the other examples do, and more: micro-batches
 * on all processors, validation, callbacks, several ranks with the same bits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/tandem.h"

enum { RANKS = 2, TRAIN = 2000, TEST = 400 };

static float points[TRAIN + TEST][2];
static int32_t arms[TRAIN + TEST];

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

/* Points on two arms of a spiral, one per class. */
static void make_points(void)
{
    for (int i = 0; i < TRAIN + TEST; i++) {
        double t = 0.1 + 0.9 * (double)rand() / RAND_MAX, turn = 9 * t + (i % 2) * 3.14159265;
        points[i][0] = (float)(t * cos(turn));
        points[i][1] = (float)(t * sin(turn));
        arms[i] = i % 2;
    }
}

static td_status build(void *user, td_build *b)
{
    static const int64_t WIDTHS[] = {64, 64, 2};

    (void)user;
    b->output =
        td_model_mlp(b->g, td_build_input(b, "x"), &(td_mlp_opts){.widths = WIDTHS, .n_widths = 3});
    return TD_OK;
}

static td_answer on_eval(void *user, const td_eval_info *e)
{
    if (*(const int *)user == 0) /* rank 0 */
        printf("step %3llu  %s accuracy %.1f %%\n", (unsigned long long)e->step, e->part,
               100 * e->metrics.value[1]);
    return e->metrics.value[1] > 0.995 ? TD_STOP : TD_CONTINUE;
}

typedef struct worker {
    td_comm *comm;
    int rank;
    double accuracy;
    td_run_result result;
} worker;

static void *train(void *user)
{
    const td_field fields[] = {{.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(2)},
                               {.name = "y", .dtype = TD_I32, .classes = 2}};
    worker *w = user;
    td_dataset *data, *test;
    td_trainer *t;
    td_metrics m;

    check(td_dataset_memory(fields, (const void *[]){points, arms}, 2, TRAIN, &data));
    check(td_dataset_memory(fields, (const void *[]){points[TRAIN], arms + TRAIN}, 2, TEST, &test));
    check(td_trainer_compile(build, NULL, data, test,
                             &(td_compile_opts){.batch = 100,
                                                .epochs = 30,
                                                .seed = 1,
                                                .optimizer = {.name = "adamw", .lr = 0.01},
                                                .comm = w->comm,
                                                .callbacks = {.user = &w->rank, .eval = on_eval}},
                             &t));
    check(td_trainer_fit(t, &w->result));
    check(td_trainer_evaluate(t, test, &m));
    w->accuracy = m.value[1];
    td_trainer_destroy(t);
    td_dataset_destroy(test);
    td_dataset_destroy(data);
    return NULL;
}

int main(void)
{
    td_comm *comms[RANKS];
    pthread_t threads[RANKS];
    worker w[RANKS] = {0};

    make_points();
    check(td_comm_threads(RANKS, NULL, comms));
    for (int r = 0; r < RANKS; r++) {
        w[r] = (worker){.comm = comms[r], .rank = r};
        if (pthread_create(&threads[r], NULL, train, &w[r]))
            return 1;
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++)
        td_comm_destroy(comms[r]);
    printf("%llu steps, accuracy %.1f %%, digest %.16s...\n", (unsigned long long)w[0].result.step,
           100 * w[0].accuracy, w[0].result.digest);
    return w[0].accuracy > 0.95 && !strcmp(w[0].result.digest, w[1].result.digest) ? 0 : 1;
}
