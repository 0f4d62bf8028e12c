/* team.h -- a worker that is several ranks: a mesh (parallel.data, parallel.pipeline) that trains
 * one replica of the model (DistBelief: Dean and others, 2012).
 *
 * The ranks of a worker run each of its batches as a job of so many ranks would: the sync rule of
 * that mesh (parallel/sync.h) adds up their gradients, with the bits of one rank, and hands the sum
 * to the worker instead of an optimizer (td__step_taker). Each rank pulls the params that it
 * updates there; of each, one rank pushes the gradients.
 *
 *     servers 0 ..., then worker 0: ranks 0 .. team - 1, worker 1: ...
 *
 * The first rank of a worker speaks for it: orders reach the others through it, and its word that a
 * push is there is given when all of them have handed in theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_TEAM_H
#define TD_PS_TEAM_H

#include "parallel/sync.h"
#include "ps/order.h"
#include "ps/ps.h"

/* Ranks of a worker; 1: it is no mesh. */
int td__ps_team_size(const td__sync_config *c);
/* TD_EINVAL if workers of this rule cannot be meshes, or not of so many ranks. */
TD_NODISCARD td_status td__ps_team_check(const td__sync_config *c, const td__sync_job *j,
                                         const td__sync_world *w);
/* What it asks of the trainer, over the rule's own. */
void td__ps_team_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out);

/* Collective over all ranks, with the lanes there. On servers: what ranks of workers hold. */
TD_NODISCARD td_status td__ps_team_create(td__ps_rule *r);
void td__ps_team_destroy(td__ps_rule *r);
void td__ps_team_abandon(td__ps_rule *r, const char *why);

/* An order that the first rank has is known to all. */
TD_NODISCARD td_status td__ps_team_order(td__ps_rule *r, td__ps_order *order);
/* All of them have read what was pulled and written what is pushed. */
TD_NODISCARD td_status td__ps_team_ready(td__ps_rule *r);
/* Its step begins; a batch is run. */
TD_NODISCARD td_status td__ps_team_begin(td__ps_rule *r, const td__sync_place *at);
TD_NODISCARD td_status td__ps_team_batch(td__ps_rule *r, const td__batch *batch);
/* The gradients of the batch that was run go to td__ps_accrue(); p: what is said of them. */
TD_NODISCARD td_status td__ps_team_step(td__ps_rule *r, const td__ps_order *order, td__ps_push *p);

#endif
