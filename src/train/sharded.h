/* sharded.h -- a trainer on ranks that hold optimizer state or params in shards, as the sync rule
 * wants it (parallel/shards.h): where what is usually one block has to be put together.
 *
 * All calls but make are collective. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_SHARDED_H
#define TD_TRAIN_SHARDED_H

#include "train/trainer_impl.h"

/* The replica's params (of program p), shards and optimizer. */
TD_NODISCARD td_status td__sharded_make(td__trainer *t, const td_program *p);

/* Elastic runs (elastic/catch_up_shards.c): params and optimizer without values; */
TD_NODISCARD td_status td__sharded_make_none(td__trainer *t, const td_program *p);
/* the shards of a generation, if it has several ranks; */
/* A td__worlds' map; user is the trainer. */
TD_NODISCARD td_status td__sharded_map(void *user, int ranks, td__ownership *out,
                                       td__holding *holdings);
TD_NODISCARD td_status td__sharded_join(td__trainer *t);
/* the first values of all params, or of those that are held; */
TD_NODISCARD td_status td__sharded_fill(td__trainer *t);
/* all that a generation has: its comm may be gone; */
void td__sharded_close(td__trainer *t);
/* What rank 0 owes the disk, which all write together. Collective. */
TD_NODISCARD td_status td__sharded_owed(td__trainer *t);

/* Blocks at the start of a run: rank 0's, or from the checkpoint that it goes on from. */
TD_NODISCARD td_status td__sharded_begin(td__trainer *t, bool resumed);
/* A checkpoint of all shards, written by rank 0 while all wait. If its disk fails, it alone gets
 * TD_EIO; *saved is false on all ranks. */
TD_NODISCARD td_status td__sharded_save(td__trainer *t, bool best, bool *saved);
/* Tells observers of the checkpoint what this rank holds of it; on rank 0, what the others do, and
 * *token becomes what observers set (sharded_tell.c). Not collective. */
TD_NODISCARD td_status td__sharded_tell(td__trainer *t, bool last, uint32_t *token);
/* td_params_digest(), bucket by bucket. */
TD_NODISCARD td_status td__sharded_digest(td__trainer *t, char hex[65]);

#endif
