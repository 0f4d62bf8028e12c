/* step_zero.h -- a training step on ranks that hold optimizer state, gradients or params in slices
 * (parallel/zero.h): the part of td__step_engine that differs.
 *
 * Stage 1: ranks run their micro-batches as usual (parallel/data_parallel.h) and have partials of
 * whole gradients; these are brought to the owners after the last batch. Stages 2 and 3:
 * micro-batches are dealt to the ranks in turn, micro-batch s of a batch to rank s mod n, one at a
 * time, in step (lockstep.h). So the leaves that arrive at an owner in a round are neighbours in
 * the micro-batch tree, and what it keeps between rounds is a few partials of its slices. Then, at
 * all stages: the owner updates its slices; at stages 1 and 2 all ranks get the params.
 *
 * The update is in two parts. prepare does everything that needs other ranks, and changes nothing
 * of the state; apply changes it and needs nobody. Between them ranks exchange the losses: who gets
 * through this knows that all are prepared. So after a failure either nobody has applied, or all
 * have, or can still do so: with mirrors, prepared stays true until apply, or the next begin.
 *
 * Threads   One, the trainer's; at stage 1 the update is shared among the pool's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_STEP_ZERO_H
#define TD_TRAIN_STEP_ZERO_H

#include "train/lockstep.h"
#include "train/step.h"

typedef struct td__step_zero td__step_zero;
/* Of an engine with these options (o->zero is set) and blocks; all are borrowed. Collective. */
TD_NODISCARD td_status td__step_zero_create(const td__step_opts *o, td__grad_pool *blocks,
                                            td__step_zero **out);
void td__step_zero_destroy(td__step_zero *z); /* NULL is allowed */

/* A step with `rows` rows in all. */
void td__step_zero_begin(td__step_zero *z, uint32_t step, int64_t rows);
/* Stages 2 and 3: batch `number` of the step. losses: by micro-batch of the batch, those of this
 * rank's are set. Collective. */
TD_NODISCARD td_status td__step_zero_batch(td__step_zero *z, const td__batch *batch, int number,
                                           double *losses);
/* Stage 1: the partials of this rank, in a step of `batches` batches, the last of which has
 * last_rows. Collective. */
TD_NODISCARD td_status td__step_zero_sum(td__step_zero *z, const td__grad_stack *local, int batches,
                                         int64_t last_rows);
/* The update, as above: prepare is collective, apply local. gather, collective: what others have
 * updated. */
TD_NODISCARD td_status td__step_zero_prepare(td__step_zero *z, double lr);
bool td__step_zero_prepared(const td__step_zero *z);
TD_NODISCARD td_status td__step_zero_apply(td__step_zero *z);
TD_NODISCARD td_status td__step_zero_gather(td__step_zero *z);

/* Which rows of a batch a rank runs at stages 2 and 3, as a td__loader_pick does it. */
int64_t td__zero_rows(int64_t rows, int micro_batches, int rank, int size, int64_t *out);

#endif
