/* tensor_peers.h -- the ranks that share the wide layers of one replica, or of one stage of it
 * (graph/tensor.h), as sync rules see them.
 *
 * Every peer has blocks of whole params. Of those that are cut it keeps its own pieces up to date:
 * the others' have gradients of zero there. Before all are wanted (evaluation, checkpoint, the end)
 * peers hand out their pieces, with those of the optimizer's states. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_TENSOR_PEERS_H
#define TD_PARALLEL_TENSOR_PEERS_H

#include "graph/tensor.h"
#include "optim/optimizer.h"
#include "step/step.h"

typedef struct td__tensor_peers {
    td_comm *comm;      /* NULL: this rank has all pieces */
    td__step_cuts cuts; /* as the engine of the rule takes them; n 0: none */
    td__staging staging;
} td__tensor_peers;

/* Neighbouring ranks of `world`, `size` at a time. cuts: of the params (NULL: none), copied.
 * Collective unless size is 1. */
TD_NODISCARD td_status td__tensor_peers_open(td__tensor_peers *t, td_comm *world, int size,
                                             const td__step_cuts *cuts);
void td__tensor_peers_close(td__tensor_peers *t);
void td__tensor_peers_abort(td__tensor_peers *t, const char *why);
/* The first rank whose peers are not all on its host, of groups of `size` neighbours; -1: none.
 * host_of: by rank; NULL: there is one host. */
int td__tensor_peers_apart(const int *host_of, int ranks, int size);
/* Numbers of all peers added up; user is the td__tensor_peers. */
TD_NODISCARD td_status td__tensor_peers_sum(void *user, double *numbers, size_t n);

/* Fill in the pieces of others, of the params in `own` (NULL: of all) and of what is held of the
 * optimizer's states of them. Collective. */
TD_NODISCARD td_status td__tensor_peers_fill(td__tensor_peers *t, td_params *ps, td_optimizer *o,
                                             const td__param_range *own, int n_own);

#endif
