/* slices.h -- a trainer on ranks that hold optimizer state, gradients or params in slices
 * (parallel.zero; parallel/zero.h): where what is usually one block has to be put together.
 *
 * All calls but make are collective. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_SLICES_H
#define TD_TRAIN_SLICES_H

#include "train/trainer_impl.h"

/* One rank alone holds everything whole. In an elastic run the
 * number of ranks is not known yet: *stage is what o->sync.zero will be where there are several. */
void td__slices_resolve(td__train_opts *o, int *stage);
/* t->params of program p, t->zero and t->optimizer, for t->o.sync.zero > 0. */
TD_NODISCARD td_status td__slices_make(td__trainer *t, const td_program *p);

/* Elastic runs (catch_up_slices.c): params and optimizer without values, for t->stage > 0; */
TD_NODISCARD td_status td__slices_make_none(td__trainer *t, const td_program *p);
/* t->zero of a generation of several ranks; */
TD_NODISCARD td_status td__slices_join(td__trainer *t);
/* the first values of all params, or of those that are held; */
TD_NODISCARD td_status td__slices_fill(td__trainer *t);
/* all that a generation has: its comm may be gone; */
void td__slices_close(td__trainer *t);
/* ranks that go give their slices to those who stay, at the border of a step. Collective. */
TD_NODISCARD td_status td__slices_hand_over(td__trainer *t);
/* What rank 0 owes the disk, which all write together. Collective. */
TD_NODISCARD td_status td__slices_owed(td__trainer *t);

/* Blocks at the start of a run: rank 0's, or from the checkpoint that it goes on from. */
TD_NODISCARD td_status td__slices_begin(td__trainer *t, bool resumed);
/* A checkpoint of all slices, written by rank 0 while all wait. If its disk fails, it alone gets
 * TD_EIO; *saved is false on all ranks. */
TD_NODISCARD td_status td__slices_save(td__trainer *t, bool best, bool *saved);
/* td_params_digest(), bucket by bucket. */
TD_NODISCARD td_status td__slices_digest(td__trainer *t, char hex[65]);

#endif
