/* trainer_impl.h -- the inside of a trainer, shared by training, evaluation and prediction. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_TRAINER_IMPL_H
#define TD_TRAIN_TRAINER_IMPL_H

#include "base/alloc.h"
#include "base/sha256.h"
#include "tandem/coll.h"
#include "train/balance.h"
#include "checkpoint/checkpoint.h"
#include "parallel/lockstep.h"
#include "run/event_log.h"
#include "run/rank_stats.h"
#include "step/micro_batches.h"
#include "parallel/reshard.h"
#include "parallel/sync.h"
#include "train/trainer.h"
#include "train/verify.h"

enum { TD__MAX_OBSERVERS = 16 };

/* Call method of every observer that has it. */
#define TD__TELL(t, method, event)                                               \
    do {                                                                         \
        for (int i_ = 0; i_ < (t)->n_observers; i_++)                            \
            if ((t)->observers[i_]->method)                                      \
                TD_TRY((t)->observers[i_]->method((t)->observers[i_], (event))); \
    } while (0)

typedef struct td__best_replica td__best_replica;

struct td__trainer {
    td__train_opts o;      /* resolved; texts are in the arena */
    const char *agreement; /* what all ranks must have in common (agree.c) */
    int thread_limit;      /* of the rule on several ranks; 0: none */
    td__arena *arena;
    td__model model;
    td__data *data;
    int64_t micro_batch_rows; /* of the usual micro-batch: rounded up */
    size_t program_nbytes;    /* resident when the trainer was made */
    td__pool *pool;
    td__micro_batch_set *train_set, *eval_set, *predict_set; /* the last two: made when needed */
    td_params *params;
    td__zero *zero;          /* NULL: every rank holds everything whole */
    td__lockstep *eval_walk; /* stage 3: evaluation, made when needed */
    td_optimizer *optimizer;
    td_schedule *schedule;
    td__sync *sync;   /* the rule of this run, or generation; NULL: none is under way */
    td__step_say say; /* of this rank, in the step under way */
    _Atomic(td__micro_batch_set *) at; /* whose nodes are being run; NULL: nobody's */
    td__verify *verify;                /* NULL: nothing is run twice */
    td__balance *balance;              /* NULL: micro-batches are dealt out evenly */
    td__loader *loader;
    td__model_facts facts;
    int watch; /* metric; -1: the loss */
    int64_t batches;
    uint64_t steps_per_epoch, total_steps;
    td__observer *observers[TD__MAX_OBSERVERS];
    int n_observers;

    /* The run. */
    td__rank_stats *stats;
    td__span_log *spans; /* NULL: not traced */
    td__train_state state;
    td__checkpointer *checkpointer;
    const atomic_int *stop;
    bool stopping;  /* with several ranks: one of them was asked to stop, and all know */
    bool ending;    /* rank 0: too few would be left, and all are to be told so */
    bool rebalance; /* micro-batches are dealt out anew before the next step */
    bool dirty;     /* something happened since the last checkpoint */
    bool finishing; /* what is saved now is the last */
    char unsaved[512];
    bool resuming; /* from the checkpoint `resumed`, whose blocks are not loaded yet */
    td__checkpoint_info resumed;
    bool saves; /* rank 0 writes checkpoints */
    uint64_t began_ns;
    uint64_t samples; /* in this run */
    double seconds, loss;
    uint64_t sent_nbytes, plain_nbytes;
    double last_ratio;
    double speed, waits; /* lately: samples/s while it computes; share of waiting for others */

    /* Elastic runs. */
    td__event_log event_log;
    td__eval_result test;
    int stage; /* parallel.zero of the job: o.sync.zero is that of the generation, 0 on one rank */
    td__holding holding; /* of slices that params and optimizer hold; size 0: none */
    td__holding
        old_holding[TD__MOST_HOLDINGS - 1]; /* held too until all ranks have the new ones: */
    td_optimizer *old_optimizer[TD__MOST_HOLDINGS - 1]; /* oldest first */
    int n_old;
    bool whole;         /* the params block has all params, not only those of the layout */
    bool has_state;     /* the blocks and `state` are a moment of the run, not just its beginning */
    bool state_invalid; /* they are nothing whole: to be made or received again */
    bool changing;      /* all know that the generation ends after this step */
    bool leaving;       /* this process was asked to stop, others were not: it goes, they go on */
    bool leads;         /* lead->begin was called */
    bool state_received;                  /* by another rank, since the last step of its own */
    td__best_replica *best_replica;       /* NULL: nothing is kept (best_replica.h) */
    bool owes_best;                       /* the best checkpoint was lost with the last rank 0 */
    uint64_t generation, last_generation; /* this one; the last one that came to one state */
    int last_rank, last_size;             /* there */
    int rank, ranks;                      /* of the last generation */
    int n_own;                            /* observers that were there before lead->begin */
    uint64_t told_step, told_valid;       /* the last ones that observers were told */
    bool told_end, told_test;
    td__train_state first; /* at the beginning of the run */
    uint64_t tried;        /* the highest step that any rank has begun */
};

/* evaluate.c: t->eval_set, if there is none yet. */
TD_NODISCARD td_status td__eval_set_make(td__trainer *t);

/* train_loop.c: run this rank's micro-batches of step e->step at the state's position: batches
 * [*first, *end) of the epoch. */
TD_NODISCARD td_status td__train_batches(td__trainer *t, td__step_event *e, int64_t *first,
                                         int64_t *end);
/* train_loop.c: if the run is traced: from begin_ns until now, in the step under way. */
void td__train_span(td__trainer *t, td__span_kind kind, uint64_t begin_ns);

/* serve.c: what the trainer does for a sync rule; the result of rank 0, where it has led, to all.
 * Collective. */
td__sync_host td__train_host(td__trainer *t);
/* sync_states.c: what the rule adds to checkpoints, for the next one; and as it was in the one that
 * the run goes on from, on all ranks, collective. */
TD_NODISCARD td_status td__states_save(td__trainer *t);
TD_NODISCARD td_status td__states_begin(td__trainer *t);
TD_NODISCARD td_status td__train_share_result(td__trainer *t, td__train_result *out);

/* replicas.c; of a trainer without a comm these do nothing, as rank 0 of 1. */
int td__trainer_ranks(const td__trainer *t);
/* Where the sync rule runs, and what it asks for there. */
td__sync_world td__trainer_world(const td__trainer *t);
td__sync_traits td__trainer_traits(const td__trainer *t);
int td__threads_per_rank(const td_comm *comm); /* that a rank has for itself; at least 1 */
/* Who has which micro-batches, to begin with. While there is no loader. */
TD_NODISCARD td_status td__trainer_balance(td__trainer *t);
td__loader_opts td__trainer_loader_opts(td__trainer *t);
/* The loader, anew: the rows that this rank reads have changed, and its threads ask for them. */
TD_NODISCARD td_status td__trainer_loader(td__trainer *t);
/* A td__loader_rows: the rows of this rank's micro-batches; a td__loader_pick, where a rule deals
 * them out itself. */
td__row_range td__train_rows(const void *user, int64_t index, int64_t rows);
int64_t td__train_pick(const void *user, int64_t index, int64_t rows, int64_t *out);
/* agree.c: t->agreement, all that ranks must have in common, of the resolved options. */
TD_NODISCARD td_status td__agreement_make(td__trainer *t, const td__train_opts *o);
uint32_t td__agreement_crc(const td__trainer *t);
/* Has this rank the agreement of rank `root`? If not, TD_EINVAL names what differs. Collective. */
TD_NODISCARD td_status td__trainer_agree(td__trainer *t, int root);
/* Begin with what rank 0 has. Collective. */
TD_NODISCARD td_status td__replicas_begin(td__trainer *t);
/* The optimizer's steps, which rank 0 has read with a checkpoint. Collective. */
TD_NODISCARD td_status td__replicas_tell_steps(td__trainer *t);
/* Have all ranks the same weights? Collective. */
TD_NODISCARD td_status td__replicas_compare(td__trainer *t, const char digest[65]);
/* elastic.c: td__trainer_run with members. */
TD_NODISCARD td_status td__train_elastic(td__trainer *t, td__train_result *out);
/* catch_up.c: all ranks of the generation have the state of who is furthest. Collective. */
TD_NODISCARD td_status td__catch_up(td__trainer *t);
/* train_loop.c: its parts, for a run of generations. */
TD_NODISCARD td_status td__train_sync(td__trainer *t); /* t->sync is made, if there is none */
TD_NODISCARD td_status td__train_tell_begin(td__trainer *t);
/* A checkpoint of where the run is; one that is done, told to observers. */
TD_NODISCARD td_status td__train_save(td__trainer *t, bool best);
TD_NODISCARD td_status td__train_saved(td__trainer *t);
bool td__train_at_end(const td__trainer *t);
/* What the trainer does now, for heartbeats and the hang report. */
void td__train_heartbeat(td__trainer *t, td__phase phase, const char *what, const char *about);
bool td__train_explain(void *trainer, char *out, size_t max); /* a td__explain */
/* Now and then, and at the end: where the time of all ranks went. Collective. */
TD_NODISCARD td_status td__train_tell_ranks(td__trainer *t, bool end);
bool td__train_owes_validation(const td__trainer *t);
bool td__train_gives_up(const td__trainer *t); /* by patience */
/* Until the run is over, or the generation is to end. */
TD_NODISCARD td_status td__train_steps(td__trainer *t);
bool td__train_over(const td__trainer *t);
/* train_end.c: the last checkpoint, the digest, the test part, and what observers are told. */
TD_NODISCARD td_status td__train_finish(td__trainer *t, td__train_result *out);
/* The same of a rank that has served a leader. */
TD_NODISCARD td_status td__train_follow_end(td__trainer *t, td__train_result *out);
/* generation.c: what a generation does once ranks agree on the state; *over: the run is. */
TD_NODISCARD td_status td__train_generation(td__trainer *t, td__train_result *out, bool *over);
void td__train_drop_lead(td__trainer *t); /* this rank is not rank 0 any more */
void td__train_close(td__trainer *t);     /* everything that knows the comm is dropped */
/* After a failure: the other ranks must not wait for this one. Returns st. */
td_status td__replicas_failed(td__trainer *t, td_status st);

#endif
