/* checkpoint.h -- a checkpoint is a directory step-NNNNNNNN/, whole or absent:
 *
 *     model.safetensors      params and states under their names, for any safetensors reader
 *     optimizer.safetensors  one block per optimizer state, cut by param: "exp_avg/fc1.weight";
 *                            states of the sync rule, if it has any: "sync/easgd/centre"
 *     preprocessing.json     what was measured on the train part: how samples become the model's
 *                            inputs, and digests of the data (data/fit.h)
 *     state.json             step, epoch, batch in epoch, seed, schedule, early stopping, job
 *                            digest, digest of the weights, sha256 and size of every other file
 *
 * It is written under a temporary name (".tmp-step-..."), every file fsynced, then the directory
 * is fsynced and renamed, then the file `best`, if it is the best, and last the file `latest` are
 * replaced (one line each: the directory's name). It does not know how many workers or threads
 * wrote it. Loading checks every hash and falls back from a damaged one to the newest whole one,
 * saying so.
 *
 * Saving copies the blocks (a memcpy, the only time that training waits) and writes them on a
 * background thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CHECKPOINT_CHECKPOINT_H
#define TD_CHECKPOINT_CHECKPOINT_H

#include "base/point.h"
#include "base/text.h"
#include "checkpoint/blocks.h"
#include "tandem/optim.h"
#include "tandem/program.h"
#include "run/observer.h"

typedef struct td__train_state { /* everything besides the blocks */
    uint64_t step, epoch;
    int64_t batch_in_epoch;
    int64_t batch; /* rows of one; 0: an older checkpoint, which does not say */
    uint64_t seed;
    uint64_t samples; /* seen so far */
    td_schedule_state schedule;
    double best; /* of the watched metric; NaN before the first validation */
    uint64_t best_step;
    uint64_t valid_step; /* of the last validation; 0: none yet */
    int bad_validations;
    char watch[64]; /* the watched metric; "": an older checkpoint, which does not say */
    char job_digest[65], digest[65];
    char gpu[128]; /* the GPU that computes, its driver and libraries: "" for a processor */
} td__train_state;

typedef struct td__checkpointer td__checkpointer;
/* Makes dir if need be, locks it against a second run, clears away what a killed run left half
 * written. keep: the newest ones that stay, besides the best. */
TD_NODISCARD td_status td__checkpointer_create(const char *dir, int keep, td__checkpointer **out);
/* The same when the process that wrote there before has just died, or is fenced off: it has 2 s to
 * release the lock, after which this one goes on without. The predecessor may only be stopped, on a
 * file system that several hosts share: if it resumes, its saves fail with TD_EABORTED. */
TD_NODISCARD td_status td__checkpointer_take_over(const char *dir, int keep,
                                                  td__checkpointer **out);
void td__checkpointer_points(td__checkpointer *c, td__points *p); /* p: borrowed; before saves */
/* Is the checkpoint of `step` the latest there, and (best) the best? */
bool td__checkpointer_has(const td__checkpointer *c, uint64_t step, bool best);
/* For a process that takes over: the run continues after step `step` and the validation of step
 * `valid`, and repeats what only its predecessor had done. Has the latest checkpoint seen that?
 * Then it is not to be gone on from any more, since metrics.jsonl is about to forget it. */
TD_NODISCARD td_status td__checkpoint_ahead(const char *dir, uint64_t step, uint64_t valid,
                                            bool *ahead);
/* And none can be written of where the run is: `latest` names the one before, if there is one. p:
 * as in td__checkpointer_points. */
TD_NODISCARD td_status td__checkpoint_go_back(const char *dir, td__points *p, uint64_t step,
                                              uint64_t valid);
/* The failure of the last save is dealt with: the next one is tried as if nothing had been. */
void td__checkpointer_excuse(td__checkpointer *c);
/* How long the disk has for one checkpoint; 0: ten minutes. */
void td__checkpointer_patience(td__checkpointer *c, uint32_t ms);
/* Waits for what is being written, as long as the disk has for it; what it has not taken by then is
 * given up with a warning, and its thread left to end by itself. */
void td__checkpointer_destroy(td__checkpointer *c);
/* Start saving. Waits only if the one before is still being written. A failure of an earlier
 * save is reported here, by poll or by wait: a run does not go on without its checkpoints silently.
 * ps and o are copied, but the names in them are borrowed until the save is done. */
TD_NODISCARD td_status td__checkpointer_save(td__checkpointer *c, const td__train_state *state,
                                             td_params *ps, td_optimizer *o, bool is_best);
/* What later saves hold as preprocessing.json; copied. Empty: they have none. */
TD_NODISCARD td_status td__checkpointer_preprocessing(td__checkpointer *c, const char *text,
                                                      size_t nbytes);
/* Blocks that later saves hold too, copied here; those given before are forgotten. */
TD_NODISCARD td_status td__checkpointer_blocks(td__checkpointer *c,
                                               const td__checkpoint_block *blocks, int n);
/* Blocks that are nowhere in one piece: tensor i of the params (k < 0) or of the optimizer's state
 * k, at *data until the next call. */
typedef struct td__checkpoint_source {
    td_status (*show)(void *user, int k, int i, float **data);
    void *user;
    const char *digest; /* of the params */
} td__checkpoint_source;
/* Save from there, tensor by tensor, on the caller's thread: it is done when this returns. */
TD_NODISCARD td_status td__checkpointer_write(td__checkpointer *c, const td__train_state *state,
                                              const td_params *ps, td_optimizer *o, bool is_best,
                                              const td__checkpoint_source *from);
TD_NODISCARD td_status td__checkpointer_wait(td__checkpointer *c);
/* *done is set, and e filled, once for each save that has ended; never waits. e->path is valid
 * until the next save. */
TD_NODISCARD td_status td__checkpointer_poll(td__checkpointer *c, bool *done,
                                             td__checkpoint_event *e);

/* Raised when the same job gives other numbers than before, so that a run which goes on can say so
 * (train/warnings.c). 1: checkpoints that do not say.
 * 2: loss.ignore weighs by counted targets; a warm-up longer than the run is not shortened; truth
 *    values of npy arrays are 0 and 1; local updates take the mean of optimizers' states. */
enum { TD__ARITHMETIC = 2 };

/* What a checkpoint says of itself, without loading the blocks. `path` is a checkpoint's
 * directory, a directory of checkpoints, or a run's directory; which: NULL (newest whole one),
 * "best", or a name "step-00000100". The newest is the one named by `latest`; if that is damaged,
 * the one of the highest step that is whole, with a warning in the log. TD_EINVAL if there is none,
 * TD_EPROTO if the one asked for is damaged. */
typedef struct td__checkpoint_info {
    char path[4096];
    td__train_state state;
    size_t model_nbytes, optimizer_nbytes;
    int arithmetic;    /* TD__ARITHMETIC of who wrote it */
    bool preprocessed; /* it holds what was measured on the training data */
} td__checkpoint_info;
TD_NODISCARD td_status td__checkpoint_find(const char *path, const char *which,
                                           td__checkpoint_info *out);
/* What samples need before the model sees them (data/fit.h), as text: of a checkpoint's directory,
 * or of the newest one of a run that has it; a run has the same in all. Nothing is appended where
 * there is none. */
TD_NODISCARD td_status td__checkpoint_preprocessing(const char *path, td__text *out);
/* A checkpoint that came from elsewhere, in the directory `temp`, becomes dir/name; one of that
 * name that was there is removed. */
TD_NODISCARD td_status td__checkpoint_put(const char *dir, const char *temp, const char *name);
/* What computed the newest checkpoint of a run: "" where it does not say. */
typedef struct td__processor {
    char isa[16], kind[40]; /* "avx512", "intel-6-207" */
    char more[88];          /* td__cpu_more(); "": an older checkpoint, which does not say */
} td__processor;
TD_NODISCARD td_status td__checkpoint_processor(const char *path, td__processor *out);
/* Are there any, whole or not? */
bool td__checkpoint_any(const char *path);
/* Load it (hashes are checked). o may be NULL: weights only. */
TD_NODISCARD td_status td__checkpoint_load(const td__checkpoint_info *info, td_params *ps,
                                           td_optimizer *o);

/* Such blocks of one that was loaded; *out is all zero, or holds others, which are given back. */
TD_NODISCARD td_status td__checkpoint_read_blocks(const td__checkpoint_info *info,
                                                  td__block_copies *out);

/* The same tensor by tensor, for blocks that are not in one piece. Everything is checked by open,
 * which also sets the optimizer's steps; ps and o are borrowed, o may be NULL. */
typedef struct td__checkpoint_reader td__checkpoint_reader;
TD_NODISCARD td_status td__checkpoint_open(const td__checkpoint_info *info, const td_params *ps,
                                           td_optimizer *o, td__checkpoint_reader **out);
void td__checkpoint_close(td__checkpoint_reader *r); /* NULL is allowed */
/* Param (or state of the model) i, to `to`. */
TD_NODISCARD td_status td__checkpoint_read(const td__checkpoint_reader *r, int i, float *to);
/* The optimizer's state k of param i, until close. */
const float *td__checkpoint_state(const td__checkpoint_reader *r, int k, int i);

#endif
