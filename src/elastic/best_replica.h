/* best_replica.h -- the best checkpoint outlives rank 0.
 *
 * Checkpoints are written beside the steps. If rank 0 dies while it writes the best one and the
 * run has gone on since, nobody has those weights any more. So rank 1, the next in line, keeps a
 * copy of them until it sees on disk that the best checkpoint is there: one rank has a second copy
 * for as long as a checkpoint takes to write. Both dying at once loses it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_ELASTIC_BEST_REPLICA_H
#define TD_ELASTIC_BEST_REPLICA_H

#include "elastic/replica.h"

typedef struct td__best_replica td__best_replica; /* NULL: nothing is kept */

/* A validation was the best so far, and rank 0 is about to write it down: keep a copy instead of
 * *b. No memory for it is no failure: then there is none. */
void td__best_replica_keep(td__best_replica **b, const td__replica *r);
/* Between steps: is it in dir? Then it is not kept any longer. */
void td__best_replica_look(td__best_replica **b, const char *dir);
/* This process is rank 0 now: what it has kept and its predecessor has not written is written. */
TD_NODISCARD td_status td__best_replica_write(td__best_replica **b, const td__replica *r,
                                              td__checkpointer *c, const char *dir);
void td__best_replica_drop(td__best_replica **b);

#endif
