/* trainer_impl.h -- the inside of a trainer, shared by training, evaluation and prediction. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_TRAINER_IMPL_H
#define TD_TRAIN_TRAINER_IMPL_H

#include "base/alloc.h"
#include "base/sha256.h"
#include "train/checkpoint.h"
#include "train/shards.h"
#include "train/step.h"
#include "train/trainer.h"

enum { TD__MAX_OBSERVERS = 16 };

struct td__trainer {
    td__train_opts o; /* resolved; texts are in the arena */
    td__arena *arena;
    td__model model;
    td__data *data;
    int64_t shard_rows; /* of the usual shard: rounded up */
    td__pool *pool;
    td__shard_set *train_set, *eval_set, *predict_set; /* the last two: made when needed */
    td_params *params;
    td_optimizer *optimizer;
    td_schedule *schedule;
    td__step_engine *engine;
    td__loader *loader;
    td__model_facts facts;
    int watch; /* metric; -1: the loss */
    int64_t batches;
    uint64_t steps_per_epoch, total_steps;
    td__observer *observers[TD__MAX_OBSERVERS];
    int n_observers;

    /* The run. */
    td__train_state state;
    td__checkpointer *checkpointer;
    const atomic_int *stop;
    bool dirty; /* something happened since the last checkpoint */
    uint64_t began_ns;
    uint64_t samples; /* in this run */
    double seconds, loss;
};

#endif
