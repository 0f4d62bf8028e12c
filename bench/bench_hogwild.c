/* bench_hogwild.c -- threads that update shared params without locks (sync rule hogwild) against
 * as many independent copies of the training, each with a thread and params of its own, which is
 * the most that threads could do. A linear model on 26 of 1 million rows, 4 samples an update. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_report.h"
#include "tandem/tandem.h"
#include "train/trainer.h"

enum { BATCH = 4096, UPDATES = 1024, SAMPLES = 65536, EPOCHS = 2, ROUNDS = 5, THREADS = 2 };
enum { IDS = 26, VOCAB = 26 * 40000 };

static void check(td_status st)
{
    if (!st)
        return;
    fprintf(stderr, "bench_hogwild: %s\n", td_last_error());
    exit(1);
}

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    static int32_t starts[BATCH];
    (void)user;
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(rows, IDS));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    for (int64_t i = 0; i < rows; i++)
        starts[i] = (int32_t)(i * IDS);
    td_init init = {.kind = TD_INIT_NORMAL, .b = 0.01};
    td_nn_embedding_opts o = {.sparse = true, .mode = TD_BAG_SUM, .weight_init = &init};
    td_node *h = td_nn_embedding_bag(g, "w", td_reshape(g, ids, TD_SHAPE(-1)),
                                     td_constant(g, TD_I32, TD_SHAPE(rows), starts), VOCAB, 2, &o);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, h, y, NULL),
                             .output = h,
                             .inputs = {"ids", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

typedef struct share {
    td__data *data;
    int threads;
    pthread_barrier_t *all;
} share;

/* A trainer is used by the thread that makes it. */
static void *train(void *user)
{
    const share *s = user;
    td__trainer *t;
    td__train_result r;
    td__train_opts o = {.batch = BATCH,
                        .micro_batches = UPDATES,
                        .epochs = EPOCHS,
                        .threads = s->threads,
                        .optim = {.name = "sgd", .lr = 0.05},
                        .sync = {.rule = "hogwild"},
                        .valid_every = -1};
    check(td__trainer_create(&o, &(td__model){.build = build}, s->data, &t));
    pthread_barrier_wait(s->all);
    check(td__trainer_run(t, NULL, &r));
    pthread_barrier_wait(s->all);
    td__trainer_destroy(t);
    return NULL;
}

/* Samples a second: of one trainer with THREADS threads, or of THREADS trainers with one. */
static double pace(td__data *d, int trainers)
{
    pthread_t thread[THREADS];
    pthread_barrier_t all;
    share s = {d, THREADS / trainers, &all};
    pthread_barrier_init(&all, NULL, (unsigned)trainers + 1);
    for (int i = 0; i < trainers; i++)
        if (pthread_create(&thread[i], NULL, train, &s))
            exit(1);
    pthread_barrier_wait(&all);
    int64_t begin = bench_now_ns();
    pthread_barrier_wait(&all);
    double seconds = 1e-9 * (double)(bench_now_ns() - begin);
    for (int i = 0; i < trainers; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&all);
    return trainers * (double)SAMPLES * EPOCHS / seconds;
}

int main(int argc, char **argv)
{
    static const char NAME[] = "hogwild sparse linear 2 threads vs 2 independent copies";
    td__data *d;
    td__data_opts o = {.source = "clicks",
                       .source_opts = {.count = SAMPLES, .vocab = VOCAB},
                       .cache = "memory",
                       .seed = 1};
    double ours = 0, peer = 0;

    bench_begin(argc, argv);
    if (!bench_wanted(NAME))
        return bench_end();
    check(td__data_open(&o, &d));
    pace(d, 1); /* fills the cache */
    for (int i = 0; i < ROUNDS; i++) {
        double one = pace(d, 1), copies = pace(d, THREADS);
        ours = one > ours ? one : ours;
        peer = copies > peer ? copies : peer;
    }
    bench_row(NAME, ours, peer, "samples/s", true);
    td__data_close(d);
    return bench_end();
}
