/* trainer.h -- the training loop.
 *
 * One step: the loader's batch is cut in micro-batches (step/micro_batch_tree.h); T compute
 * threads run them, each micro-batch forward and backward with the same kernels in the same shapes;
 * gradients are added in the micro-batch tree; the optimizer updates the params block. The result
 * does not depend on T. Between steps: validation, early stopping, checkpoints, signals; every one
 * of these is told to the observers (observer.h), which print, write files or draw. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_TRAINER_H
#define TD_TRAIN_TRAINER_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
#include "coll/members.h"
#include "data/data.h"
#include "parallel/sync.h"
#include "tandem/coll.h"
#include "tandem/optim.h"
#include "tandem/program.h"
#include "run/observer.h"
#include "run/result.h"
#include "step/model.h"
#include "train/scores.h"

typedef struct td__trainer td__trainer;
typedef struct td__faults td__faults; /* fault/faults.h */

/* What rank 0 does besides training (the run's directory, files, the terminal), where the rank may
 * move from one process to another. */
typedef struct td__train_lead {
    void *user;
    /* This process is rank 0 from here on. The run goes on after step `step` and validation
     * `valid` (the step at which it was; 0: none); observers are added with td__trainer_observe.
     * *told_step, *told_valid: the last ones that are on record; what is newer is told to them
     * now. */
    td_status (*begin)(void *user, td__trainer *t, uint64_t step, uint64_t valid,
                       uint64_t *told_step, uint64_t *told_valid);
    /* The run is over: its last files and words, which the others wait for, so that another rank
     * can make up for this one's. May set r->unsaved; NULL: nothing is left to do. */
    void (*conclude)(void *user, td__train_result *r);
    /* (optional) The run begins, without a checkpoint: this rank's weights become others than those
     * made from the seed, and the other ranks get them from it. */
    td_status (*first_weights)(void *user);
    /* It is no longer; the observers that begin added are not used any more. */
    void (*end)(void *user);
} td__train_lead;

typedef struct td__train_opts {
    const char *name; /* of the run, for observers; NULL: "" */
    int64_t batch;    /* global batch */
    /* For who makes a trainer, which reads none of them: samples of each rank instead of batch, lr
     * times ranks, steps that epochs were counted in. */
    int64_t batch_per_rank, steps_per_epoch;
    bool scale_lr;
    int64_t epochs, steps; /* one of them; both: whichever ends first; none: run() is refused */
    int micro_batches;     /* 0: as train/micro_batch_count.h says */
    /* The result may depend on ranks and threads; micro_batches is 0 (nondeterministic.h). */
    bool nondeterministic;
    int accumulate;      /* batches added up before an update; 0 means 1 */
    int threads;         /* compute threads; 0: one per processor, shared by ranks of a host */
    td_dtype precision;  /* TD_F32 or TD_BF16 */
    const char *backend; /* NULL: "cpu" */
    uint64_t seed;
    bool blank;          /* first weights are zeros: to look at the plan, or to load others */
    bool untrained;      /* nothing is trained: to look at the plan, or to use loaded weights */
    td_optim_opts optim; /* with clip etc. */
    td_schedule_opts schedule;
    int64_t valid_every; /* steps; 0: at the end of each epoch; -1: never */
    int64_t eval_batch;  /* 0: batch */
    /* Early stopping and "best": on a metric of the validation part, or "loss". */
    const char *watch; /* NULL: "loss" */
    int patience;      /* validations without improvement; 0: never stop early */
    double min_delta;
    int prefetch, data_threads;
    size_t blocks_device, blocks_host, blocks_file; /* bytes of levels (step/kept_samples.h) */
    /* Ranks have samples of their own: a name of td__partition_name, for rules whose ranks have
     * params of their own; NULL: rows of one common order. weights: of a weighted one, by rank. */
    const char *partition;
    const int64_t *weights;
    int n_weights;
    const char *shuffle; /* "uniform": all orders of samples are equally likely; NULL: "fast" */
    /* Checkpoints; dir NULL: none. */
    const char *checkpoint_dir;
    int64_t checkpoint_every;      /* steps; 0: at the end of each epoch; -1: only at the end */
    bool any_gpu;                  /* resume from what another kind of GPU has computed */
    int checkpoint_keep;           /* newest ones kept, besides the best; 0 means 3 */
    const char *checkpoint_upload; /* URL; carried out by observers (mirror/mirror.h); NULL: none */
    bool same_processors;          /* ranks on unlike ones are refused, for oneDNN's sake too */
    const char *job_digest;        /* sha256 of the job as far as it decides the numbers */
    bool profile;
    bool no_advice; /* nobody wants to be told that ranks are crowded */
    /* The ranks that train together; NULL: this one alone. Borrowed. They make the same calls with
     * the same options, except for observers, resuming, the directory and number of checkpoints,
     * which are rank 0's; a call that fails aborts the comm. The result has the same bits for any
     * number of ranks. */
    td_comm *comm;
    td__sync_config sync; /* how their work becomes common progress (parallel/sync.h) */
    double verify;        /* share of micro-batches that are run twice (verify.h); 0: none */
    bool even;            /* all ranks have the same share of the micro-batches, slow ones too */
    /* Elastic (elastic/elastic.h): the world is that of members, generation after generation, and
     * not comm's; all three are borrowed. checkpoint_dir is the same on all ranks, of whom only
     * rank 0 uses it; `lead` (NULL: nothing) is told when that is this one. */
    td__members *members;
    int seat; /* 1 + that of await_seat: which of several GPUs it takes; 0: it did not wait */
    const td__train_lead *lead;
    td__members *agent; /* is told what this rank does; NULL: members, or nobody */
    td__faults *faults; /* NULL: none */
    bool test;          /* also evaluate the test part at the end, and tell it */
} td__train_opts;

/* What does not go together, before any rank is started, and where they are there (w->starts). */
TD_NODISCARD td_status td__train_check(const td__train_opts *o, const td__sync_world *w);
/* Builds programs, params, optimizer, loaders; nothing runs yet. All arguments but opts (copied)
 * are borrowed. */
TD_NODISCARD td_status td__trainer_create(const td__train_opts *opts, const td__model *model,
                                          td__data *data, td__trainer **out);
void td__trainer_destroy(td__trainer *t); /* NULL is allowed */
/* To be called before run; borrowed. */
TD_NODISCARD td_status td__trainer_observe(td__trainer *t, td__observer *o);
/* Go on from the newest whole checkpoint under checkpoint_dir: *found says if there was one. */
TD_NODISCARD td_status td__trainer_resume(td__trainer *t, bool *found);
/* Train to the end. Observers' `end` is called unless the run fails. *stop (NULL: never) may be set
 * from a signal handler: leave after the step in flight, with a checkpoint. A loss that is NaN or
 * infinite is TD_EINVAL with step, micro-batch and first bad node; the last good checkpoint stays.
 * */
TD_NODISCARD td_status td__trainer_run(td__trainer *t, const atomic_int *stop,
                                       td__train_result *out);

/* With several ranks, before the first run: all get the weights and the state of rank 0, as at the
 * beginning of the run. Collective. */
TD_NODISCARD td_status td__trainer_share(td__trainer *t);
/* The weights as a .safetensors file, which rank 0 writes; and from one that all ranks see.
 * Collective. */
TD_NODISCARD td_status td__trainer_save(td__trainer *t, const char *path);
TD_NODISCARD td_status td__trainer_load(td__trainer *t, const char *path);
/* The weights of a checkpoint, into a trainer that trains nothing (untrained): of ranks that hold
 * parts of them, rank 0 reads and tells the others. Collective then. */
TD_NODISCARD td_status td__trainer_load_checkpoint(td__trainer *t, const td__checkpoint_info *from);

td_params *td__trainer_params(td__trainer *t);
bool td__trainer_alone(const td__trainer *t);    /* the run has lost ranks: no more collectives */
uint64_t td__trainer_step(const td__trainer *t); /* the last one done */
int td__trainer_rank(const td__trainer *t);      /* now, or when the run ended */
const td__eval_result *td__trainer_test(const td__trainer *t); /* of the run's end; n 0: none */
size_t td__trainer_optimizer_nbytes(const td__trainer *t);     /* of its state */
const td_program *td__trainer_program(td__trainer *t); /* the training program of one micro-batch */
td__micro_batch_set *td__trainer_train_set(const td__trainer *t); /* who runs micro-batches */
int td__trainer_micro_batches(const td__trainer *t);
int64_t td__trainer_micro_batch_rows(
    const td__trainer *t); /* of the usual micro-batch, rounded up */
/* Per-node times of all compute threads together (profile). */
int td__trainer_profile_count(const td__trainer *t);
td_node_time td__trainer_profile(const td__trainer *t, int i);

/* Evaluates with the current weights. The same bits for any number of threads. */
TD_NODISCARD td_status td__trainer_evaluate(td__trainer *t, td__dataset *part,
                                            td__eval_result *out);
/* The same; *stopped, instead of a result, if `stop` was set meanwhile. Both may be NULL. */
TD_NODISCARD td_status td__trainer_evaluate_until(td__trainer *t, td__dataset *part,
                                                  const atomic_int *stop, bool *stopped,
                                                  td__eval_result *out);
/* What is written of a run that is over, for heartbeats; NULL: it is. */
void td__trainer_writes(td__trainer *t, const char *what);
/* The scores of all samples of d (scores.h), freed with td__scores_fini. */
TD_NODISCARD td_status td__trainer_scores(td__trainer *t, td__dataset *d, td__scores *out);
/* Can one rank compute them without the others? */
bool td__trainer_scores_alone(const td__trainer *t);
const char *td__trainer_target(const td__trainer *t); /* the field; "": none that is known */
/* What the model's output is for one sample. */
TD_NODISCARD td_status td__trainer_output(td__trainer *t, td_dtype *dtype, td_shape *row_shape);
/* The model's output for samples [0, count) of d, in order, row by row to sink. */
typedef td_status (*td__predict_sink)(void *user, int64_t first, int64_t rows, const void *output,
                                      size_t row_nbytes);
TD_NODISCARD td_status td__trainer_predict(td__trainer *t, td__dataset *d, td__predict_sink sink,
                                           void *user, td_dtype *dtype, td_shape *row_shape);
/* The same for rank 0 alone: of the ranks that compute together, where params are in shards, others
 * have no sink (NULL) and hold their own rows only. */
TD_NODISCARD td_status td__trainer_predict_to_first(td__trainer *t, td__dataset *d,
                                                    td__predict_sink sink, void *user,
                                                    td_dtype *dtype, td_shape *row_shape);
/* Outputs of predictions are made by somebody else (ps/outputs.h), from what the model reads of the
 * samples: n inputs of nbytes[i] a sample. */
typedef td_status td__elsewhere_fn(void *user, int64_t rows, int n, const void *const *inputs,
                                   const size_t *nbytes, size_t row_nbytes, void *out);
void td__trainer_predict_elsewhere(td__trainer *t, td__elsewhere_fn *fn, void *user);

#endif
