/* trainer_impl.h -- the inside of a trainer, shared by training, evaluation and prediction. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_TRAINER_IMPL_H
#define TD_TRAIN_TRAINER_IMPL_H

#include "base/alloc.h"
#include "base/sha256.h"
#include "tandem/coll.h"
#include "train/checkpoint.h"
#include "train/lockstep.h"
#include "train/rank_stats.h"
#include "train/shards.h"
#include "train/step.h"
#include "train/trainer.h"

enum { TD__MAX_OBSERVERS = 16 };

typedef struct td__backup_run td__backup_run;

struct td__trainer {
    td__train_opts o; /* resolved; texts are in the arena */
    td__arena *arena;
    td__model model;
    td__data *data;
    int64_t shard_rows;    /* of the usual shard: rounded up */
    size_t program_nbytes; /* resident when the trainer was made */
    td__pool *pool;
    td__shard_set *train_set, *eval_set, *predict_set; /* the last two: made when needed */
    td_params *params;
    td__zero *zero;          /* NULL: every rank holds everything whole */
    td__lockstep *eval_walk; /* stage 3: evaluation, made when needed */
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
    td__rank_stats *stats;
    td__span_log *spans;    /* NULL: not traced */
    td__backup_run *backup; /* NULL: nobody may be late */
    uint64_t *dropped;      /* (ranks) with backup workers: shares that were late */
    td__train_state state;
    td__checkpointer *checkpointer;
    const atomic_int *stop;
    bool stopping; /* with several ranks: one of them was asked to stop, and all know */
    bool dirty;    /* something happened since the last checkpoint */
    bool goes_on;  /* from the checkpoint `resumed`, whose blocks are not loaded yet */
    td__checkpoint_info resumed;
    bool saves; /* rank 0 writes checkpoints */
    uint64_t began_ns;
    uint64_t samples; /* in this run */
    double seconds, loss;
    uint64_t sent_nbytes, plain_nbytes;
    double last_ratio;
};

/* evaluate.c: t->eval_set, if there is none yet. */
TD_NODISCARD td_status td__eval_set_make(td__trainer *t);

/* train_loop.c: run this rank's shards of step e->step at the state's position: batches [*first,
 * *end) of the epoch. */
TD_NODISCARD td_status td__train_batches(td__trainer *t, td__step_event *e, int64_t *first,
                                         int64_t *end);
/* train_loop.c: if the run is traced: from begin_ns until now, in the step under way. */
void td__train_span(td__trainer *t, td__span_kind kind, uint64_t begin_ns);

/* backup_run.c: training with backup workers. */
bool td__backup_wanted(const td__trainer *t);
TD_NODISCARD td_status td__backup_run_create(td__trainer *t); /* collective */
void td__backup_run_destroy(td__trainer *t);
void td__backup_run_failed(td__trainer *t, const char *why); /* let nobody wait; NULL is allowed */
/* Rank 0, before and instead of td__step_end. */
TD_NODISCARD td_status td__backup_step_begin(td__trainer *t);
TD_NODISCARD td_status td__backup_step_end(td__trainer *t, int64_t first, int64_t end, double lr,
                                           td__step_event *e, td__step_result *r);
TD_NODISCARD td_status td__backup_run_end(td__trainer *t, td__train_result *out);
/* The others: work until rank 0 says that it is over. */
TD_NODISCARD td_status td__backup_follow(td__trainer *t);
/* What rank 0 has come to, to all. Collective. */
TD_NODISCARD td_status td__backup_result(td__trainer *t, td__train_result *out);

/* replicas.c; of a trainer without a comm these do nothing, as rank 0 of 1. */
int td__trainer_rank(const td__trainer *t);
int td__trainer_ranks(const td__trainer *t);
int td__threads_per_rank(const td_comm *comm); /* that a rank has for itself; at least 1 */
/* A td__loader_rows: the rows of this rank's shards. */
td__row_range td__train_rows(const void *user, int64_t index, int64_t rows);
/* Begin with what rank 0 has. Collective. */
TD_NODISCARD td_status td__replicas_begin(td__trainer *t);
/* Have all ranks the same weights? Collective. */
TD_NODISCARD td_status td__replicas_compare(td__trainer *t, const char digest[65]);
/* After a failure: the other ranks must not wait for this one. Returns st. */
td_status td__replicas_failed(td__trainer *t, td_status st);

#endif
