/* trainer_impl.h -- the inside of a trainer, shared by training, evaluation and prediction. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_TRAINER_IMPL_H
#define TD_TRAIN_TRAINER_IMPL_H

#include "base/alloc.h"
#include "base/sha256.h"
#include "tandem/coll.h"
#include "train/balance.h"
#include "train/counted.h"
#include "checkpoint/checkpoint.h"
#include "elastic/best_replica.h"
#include "elastic/elastic.h"
#include "parallel/lockstep.h"
#include "run/rank_stats.h"
#include "step/kept_samples.h"
#include "step/micro_batches.h"
#include "parallel/sync.h"
#include "train/trainer.h"
#include "train/verify.h"

enum { TD__MAX_OBSERVERS = 16 };

/* Call method of every observer that has it. */
#define TD__TELL(t, method, event)                                                             \
    do {                                                                                       \
        for (int i_ = 0; i_ < (t)->report.n_observers; i_++)                                   \
            if ((t)->report.observers[i_]->method)                                             \
                TD_TRY((t)->report.observers[i_]->method((t)->report.observers[i_], (event))); \
    } while (0)

/* What follows from the options, the model and the data; fixed when the trainer is made. */
typedef struct td__train_plan {
    td__arena *arena;      /* of texts */
    char backend[24];      /* as programs of this rank have it: "cuda:1" */
    const char *agreement; /* what all ranks must have in common (agree.c) */
    td__model model;
    td__model_facts facts;
    td__data *data;
    int watch; /* metric; -1: the loss */
    int64_t batches;
    uint64_t steps_per_epoch, total_steps;
    int64_t micro_batch_rows; /* of the usual micro-batch: rounded up */
    int thread_limit;         /* of the rule on several ranks; 0: none */
    size_t program_nbytes;    /* resident when the trainer was made */
} td__train_plan;

/* What carries out the run, and what it still owes the disk. */
typedef struct td__train_run {
    td__pool *pool;
    td__micro_batch_set *train_set, *eval_set, *predict_set; /* the last two: made when needed */
    td__elsewhere_fn *elsewhere; /* that makes outputs; NULL: this process does */
    void *elsewhere_user;
    /* Of the sets of the same names, where params are in shards; made when needed. */
    td__lockstep *eval_walk, *predict_walk;
    td__sync *sync;   /* the rule of this run, or generation; NULL: none is under way */
    bool has_states;  /* it has its states, those in the replica are given back */
    td__step_say say; /* of this rank, in the step under way */
    _Atomic(td__micro_batch_set *) at; /* whose nodes are being run; NULL: nobody's */
    _Atomic(const char *) waits;       /* what the rule waits for from other ranks; NULL: nothing */
    td__verify *verify;                /* NULL: nothing is run twice */
    td__step_cuts cuts;                /* params that the program reads in pieces; n 0: none */
    td__balance *balance;              /* NULL: micro-batches are dealt out evenly */
    bool rebalance;                    /* they are dealt out anew before the next step */
    td__counted *counted;              /* NULL: no target is ignored */
    td__kept_samples *kept;            /* NULL: none are */
    td__loader *loader;
    struct {
        uint64_t epoch;
        int64_t batch; /* the first of the last order; */
        double gap;    /* mean, newest first, of the batches from one to the next; 0: none yet */
    } orders;          /* of a leader */
    const atomic_int *stop; /* NULL: nobody asks for it */
    bool going;             /* the run is under way: its loop says what this rank does */
    td__checkpointer *checkpointer;
    bool saves;     /* with shards: rank 0 writes checkpoints */
    bool dirty;     /* something happened since the last checkpoint */
    bool owes_best; /* the best checkpoint was lost with the last rank 0 */
    td__best_replica *best_replica;
    td__sync_keep rule_keep; /* elastic: between two rules */
    bool resuming;           /* from the checkpoint `resumed`, whose blocks are not loaded yet */
    td__checkpoint_info resumed;
} td__train_run;

/* What is told of the run, and to whom. */
typedef struct td__train_report {
    td__observer *observers[TD__MAX_OBSERVERS];
    int n_observers;
    bool leads;                     /* elastic, rank 0: lead->begin was called, */
    int n_own;                      /* and these observers were there before */
    uint64_t told_step, told_valid; /* the last ones that observers were told */
    bool told_end, told_test;
    int warned; /* most ranks that the user was warned about; 0: of nothing yet */
    td__rank_stats *stats;
    td__span_log *spans; /* NULL: not traced */
    uint64_t began_ns;
    uint64_t samples; /* in this run */
    double seconds;
    uint64_t sent_nbytes, plain_nbytes;
    double last_ratio;
    double speed, waits; /* lately: samples/s while it computes; share of waiting for others */
    td__eval_result test;
    bool finishing;    /* what is saved now is the last */
    char unsaved[512]; /* why it was not */
} td__train_report;

struct td__trainer {
    td__train_opts o; /* resolved */
    td__train_plan plan;
    td__replica replica; /* what this process holds of the run; can be handed to another */
    td__world world;     /* the ranks that train together now */
    td__train_run run;
    td__elastic elastic; /* the loop over generations */
    td__train_report report;
};

/* evaluate.c: run.eval_set, if there is none yet. */
TD_NODISCARD td_status td__eval_set_make(td__trainer *t);

/* together.c: forward runs where params are in shards, which may be other ones than last time: what
 * runs the micro-batches of a set, if there is none yet. Local. */
TD_NODISCARD td_status td__together_walk(td__trainer *t, td__micro_batch_set *set,
                                         td__lockstep **walk);
/* A batch, of which this rank has the rows of its micro-batches; calls.after is called for those.
 * Collective. */
TD_NODISCARD td_status td__run_together(td__trainer *t, td__lockstep *walk, const td__batch *b,
                                        int micro_batches, td__micro_batch_calls calls);
/* The rows of a rank's range of the micro-batches of a batch. */
td__row_range td__rank_rows(int64_t rows, int micro_batches, int rank, int ranks);

/* train_loop.c: run this rank's micro-batches of step e->step at the state's position: batches
 * [*first, *end) of the epoch. */
TD_NODISCARD td_status td__train_batches(td__trainer *t, td__step_event *e, int64_t *first,
                                         int64_t *end);

/* train_loop.c: the state's position, when a step of so many samples is done; the validation at
 * the state's step was the best so far. */
void td__train_advance(td__trainer *t, int64_t samples);
void td__train_keep_best(td__trainer *t);

/* serve.c: what the trainer does for a sync rule; the result of rank 0, where it has led, to all.
 * Collective. */
td__sync_host td__train_host(td__trainer *t);
/* sync_states.c: what the rule adds to checkpoints, for the next one. */
TD_NODISCARD td_status td__states_save(td__trainer *t);
/* The rule goes: what it has is kept in the replica. */
void td__states_keep(td__trainer *t);
/* A rule has begun: it gets what was kept. */
TD_NODISCARD td_status td__states_restore(td__trainer *t);
/* The same where a run begins, with what rank 0 has read from a checkpoint. Collective. */
TD_NODISCARD td_status td__states_begin(td__trainer *t);
TD_NODISCARD td_status td__train_share_result(td__trainer *t, td__train_result *out);

/* warnings.c: of what is probably not meant so, where a run or a generation begins; of a checkpoint
 * whose writer would have gone on with other numbers. */
void td__train_warn(td__trainer *t);
/* What resuming from there changes: a warning, or a refusal where bits would be others. */
TD_NODISCARD td_status td__train_check_resumed(const td__trainer *t,
                                               const td__checkpoint_info *from);
/* The place in the epoch, where the batch was another one. */
void td__train_place(td__trainer *t, const td__checkpoint_info *from);

/* replicas.c; of a trainer without a comm these do nothing, as rank 0 of 1. */
int td__trainer_ranks(const td__trainer *t);
/* Where the sync rule runs, and what it asks for there. */
td__sync_world td__trainer_world(const td__trainer *t);
td__sync_traits td__trainer_traits(const td__trainer *t);
/* That a rank has for itself; at least 1. A GPU is kept busy by one. */
int td__threads_per_rank(const td_comm *comm, const char *backend);
int td__local_rank(const td_comm *comm); /* among the ranks of this host */
/* As programs name it: of several GPUs, this rank's. NULL: the default. */
static inline const char *td__trainer_backend(const td__trainer *t)
{
    return t->plan.backend[0] ? t->plan.backend : NULL;
}
/* The first partition of micro-batches among ranks. While there is no loader. */
TD_NODISCARD td_status td__trainer_balance(td__trainer *t);
td__loader_opts td__trainer_loader_opts(td__trainer *t);
/* kept.c: run.kept, if the job asks for it and trains; and what does not go with that. */
TD_NODISCARD td_status td__train_keep_samples(td__trainer *t);
TD_NODISCARD td_status td__kept_check(const td__train_opts *o, const td__sync_world *w);
/* The loader, anew: the rows that this rank reads have changed, and its threads ask for them. */
TD_NODISCARD td_status td__trainer_loader(td__trainer *t);
/* A td__loader_rows: the rows of this rank's micro-batches; a td__loader_pick, where a rule deals
 * them out itself. */
td__row_range td__train_rows(const void *user, int64_t index, int64_t rows);
td__row_range td__train_rows_of(const void *user, int rank, int64_t index, int64_t rows);
int64_t td__train_pick(const void *user, int64_t index, int64_t rows, int64_t *out);
/* agree.c: t->agreement, all that ranks must have in common, of the resolved options. */
TD_NODISCARD td_status td__agreement_make(td__trainer *t, const td__train_opts *o);
uint32_t td__agreement_crc(const td__trainer *t);
/* Has this rank the agreement of rank `root`? If not, TD_EINVAL names what differs. Collective. */
TD_NODISCARD td_status td__trainer_agree(td__trainer *t, int root);
/* Begin with what rank 0 has. Collective. */
TD_NODISCARD td_status td__replicas_begin(td__trainer *t);
/* Have all ranks the same weights? Collective. */
TD_NODISCARD td_status td__replicas_compare(td__trainer *t, const char digest[65]);
/* train_sync.c: run.sync, if there is none. */
TD_NODISCARD td_status td__train_sync(td__trainer *t);
/* Between two steps: slow ranks have fewer micro-batches from now on. */
TD_NODISCARD td_status td__train_rebalance(td__trainer *t);
/* train_loop.c: its parts, for a run of generations. */
TD_NODISCARD td_status td__train_tell_begin(td__trainer *t);
/* predict.c: outputs of `n` samples from elsewhere; *out is to be freed. */
TD_NODISCARD td_status td__trainer_outputs(td__trainer *t, int64_t n, const void *samples,
                                           size_t nbytes, void **out, size_t *row_nbytes);
/* A checkpoint of where the run is; one that is done, told to observers. */
TD_NODISCARD td_status td__train_save(td__trainer *t, bool best);
TD_NODISCARD td_status td__train_saved(td__trainer *t);
/* Checkpoints hold what was measured on the train part. */
TD_NODISCARD td_status td__train_save_fit(td__trainer *t);
bool td__train_at_end(const td__trainer *t);
/* heartbeat.c: what the trainer does now, for heartbeats and the hang report. */
void td__train_heartbeat(td__trainer *t, td__phase phase, const char *what, const char *about);
/* From here on the agent may ask what is being done, or no longer. */
void td__train_explains(td__trainer *t, bool begins);
/* Now and then, and at the end: where the time of all ranks went. Collective. */
TD_NODISCARD td_status td__train_tell_ranks(td__trainer *t, bool end);
/* What the sync rule has of the order of messages, if its ranks are not in step. */
TD_NODISCARD td_status td__train_tell_order(td__trainer *t);
bool td__train_owes_validation(const td__trainer *t);
bool td__train_gives_up(const td__trainer *t); /* by patience */
/* Until the run is over, or the generation is to end. */
TD_NODISCARD td_status td__train_steps(td__trainer *t);
bool td__train_over(const td__trainer *t);
bool td__train_changes(const td__trainer *t); /* the generation is to end */
/* train_end.c: the last checkpoint, the digest, the test part, and what observers are told. */
TD_NODISCARD td_status td__train_finish(td__trainer *t, td__train_result *out);
/* The same of a rank that has served a leader. */
TD_NODISCARD td_status td__train_follow_end(td__trainer *t, td__train_result *out);
/* generation.c: what a trainer does in a generation. */
extern const td__elastic_ops td__train_elastic_ops;
void td__train_drop_lead(td__trainer *t); /* this rank is not rank 0 any more */
void td__train_close(td__trainer *t);     /* everything that knows the comm is dropped */
/* After a failure: the other ranks must not wait for this one. Returns st. */
td_status td__replicas_failed(td__trainer *t, td_status st);

#endif
