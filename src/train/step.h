/* step.h -- one training step: shards forward and backward, gradients added in the shard tree, one
 * update of the params. The result does not depend on the number of compute threads.
 *
 * A step of k batches (accumulation) is one tree over k V shards. The weight of a shard is its
 * share of the step's rows, so that the sum is the gradient of the mean over all rows.
 *
 *     begin, batch (k times), end        or abandon, after a failure */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_STEP_H
#define TD_TRAIN_STEP_H

#include "tandem/optim.h"
#include "train/shards.h"

typedef struct td__step_engine td__step_engine;

typedef struct td__step_opts {
    td__shard_set *set; /* of TD__USE_TRAIN; all are borrowed */
    td__pool *pool;
    td_params *params;
    td_optimizer *optimizer;
    const td_program *program; /* of one shard of the usual size */
    int shards, accumulate;
} td__step_opts;

TD_NODISCARD td_status td__step_engine_create(const td__step_opts *opts, td__step_engine **out);
void td__step_engine_destroy(td__step_engine *e); /* NULL is allowed */

/* Begin step `step` (from 1) over `rows` rows in all. */
void td__step_begin(td__step_engine *e, uint32_t step, int64_t rows);
/* Run a batch; `last` says that it is the step's last. Borrowed for the call. */
TD_NODISCARD td_status td__step_batch(td__step_engine *e, const td__batch *batch, bool last);
/* Update the params. loss: mean over the step's rows, before the update; grad_norm: -1 unless
 * gradients are clipped by their norm. */
TD_NODISCARD td_status td__step_end(td__step_engine *e, double lr, double *loss, double *grad_norm);
void td__step_abandon(td__step_engine *e);

#endif
