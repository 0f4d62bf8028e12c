/* tensor_peers.h -- the ranks that share the wide layers of one replica, or of one stage of it
 * (graph/tensor.h), as sync rules see them.
 *
 * Of the params that are cut a peer has its own pieces, which are one range of the block
 * (graph/params.h), with their gradients and the optimizer's states; the others' are elsewhere
 * (parallel/ownership.h). What is not cut all peers have, and update alike.
 *
 * Where the replicas' gradients are compressed, which depends on where in the block they lie,
 * params stay row-major and on all peers: of those that are cut a peer keeps its own pieces up to
 * date, the others' have gradients of zero there, and are filled in before all are wanted. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_TENSOR_PEERS_H
#define TD_PARALLEL_TENSOR_PEERS_H

#include "graph/tensor.h"
#include "optim/optimizer.h"
#include "step/step.h"

typedef struct td__tensor_peers {
    td_comm *comm;      /* NULL: this rank has all pieces */
    td__step_cuts cuts; /* as the engine of the rule takes them; n 0: none */
    td__step_cut *own;  /* (cuts.n) */
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

/* Fill in the pieces of others, of params that are cut and row-major: of those in `own` (NULL: of
 * all), and of what is held of the optimizer's states of them. Collective. */
TD_NODISCARD td_status td__tensor_peers_fill(td__tensor_peers *t, td_params *ps, td_optimizer *o,
                                             const td__param_range *own, int n_own);

/* The parts of a range of the params that the peer `lane` of `lanes` has: all but others' pieces.
 * Rising, not adjacent. */
typedef struct td__tensor_walk {
    const td_params *ps;
    int lanes, lane;
    td__param_range rest; /* that was not looked at yet */
    int param;            /* from which on to look; 0 to begin with */
} td__tensor_walk;
/* The next one; false: there are no more. */
bool td__tensor_own(td__tensor_walk *w, td__param_range *out);

#endif
