/* slices.h -- a trainer on ranks that hold optimizer state, gradients or params in slices
 * (parallel.zero; parallel/zero.h): where what is usually one block has to be put together.
 *
 * All calls but make are collective. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_SLICES_H
#define TD_TRAIN_SLICES_H

#include "train/trainer_impl.h"

/* Options that do not go together; one rank alone holds everything whole. */
TD_NODISCARD td_status td__slices_resolve(td__train_opts *o);
/* t->params of program p, t->zero and t->optimizer, for t->o.zero > 0. */
TD_NODISCARD td_status td__slices_make(td__trainer *t, const td_program *p);
/* A td__loader_pick, of stages 2 and 3. */
int64_t td__slices_rows(const void *user, int64_t index, int64_t rows, int64_t *out);
/* Blocks at the start of a run: rank 0's, or from the checkpoint that it goes on from. */
TD_NODISCARD td_status td__slices_begin(td__trainer *t, bool resumed);
/* A checkpoint of all slices, written by rank 0 while all wait. */
TD_NODISCARD td_status td__slices_save(td__trainer *t, bool best);
/* td_params_digest(), bucket by bucket. */
TD_NODISCARD td_status td__slices_digest(td__trainer *t, char hex[65]);

#endif
