/* stage_params.h -- which rank of a pipeline has which params: each has those that its chunks
 * update, with their gradients and the optimizer's states; replicas of a stage have the same. Where
 * several ranks share the layers of a stage, each has its pieces of those that are cut. Params with
 * row-sparse gradients and states of the model are on all ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_STAGE_PARAMS_H
#define TD_PIPELINE_STAGE_PARAMS_H

#include "graph/cut.h"
#include "parallel/sync.h"
#include "parallel/tensor_peers.h"
#include "pipeline/pipeline.h"

/* Are sums of steps held until all ranks have theirs (held_step.h)? */
bool td__stage_holds_steps(bool elastic, const td_params *ps);
/* The shards of a td__sync_hold: the first replica of a stage owns its params, others are its
 * twins; with parallel.zero 1 every replica owns some, and all have the params. Where ranks may be
 * lost, what only one rank would have another one mirrors: with one replica the next rank of all,
 * with parallel.zero the next replica of the stage. Local. */
TD_NODISCARD td_status td__stage_shards(const td__sync_hold *h, td__shards **out);
/* The same of any world of elastic ranks (td__sync_ops.map). */
TD_NODISCARD td_status td__stage_map(const td__sync_hold *h, int ranks, td__ownership *out,
                                     td__holding *holdings);

/* Call `each` for every piece of params that chunk `reader` reads and `owner` updates, in the order
 * in which they are handed over. like: of which ranks; its range does not count. */
typedef td_status td__shared_fn(void *user, int owner, int reader, td__param_range r);
TD_NODISCARD td_status td__each_shared(const td__cut *cut, const td__tensor_walk *like,
                                       td__shared_fn *each, void *user);

/* The ranges of the params that some chunks update, without pieces of layers that other ranks have.
 */
typedef struct td__stage_ranges {
    td__param_range *at, *grads; /* (n) of params; where their gradients lie */
    int n, *first;               /* first: (chunks + 1) of them of each chunk */
} td__stage_ranges;
/* own: (chunks) which. like: of which ranks; its range does not count. */
TD_NODISCARD td_status td__stage_ranges_init(td__stage_ranges *out, const td__cut *cut,
                                             const bool *own, const td__tensor_walk *like);
void td__stage_ranges_fini(td__stage_ranges *r);
/* td__sync_ops.inside, of any number of stages: the rule of the first one's replicas. */
TD_NODISCARD td_status td__stage_inside(const td__sync_hold *h, int ranks, td__sync_inside *out);
/* The config of the rule inside. */
td__sync_config td__stage_inner_config(const td__sync_config *c);

/* What a stage holds. */
typedef struct td__stage_need {
    size_t params;      /* elements that it updates */
    size_t read;        /* that it reads besides: tied weights, versions of its own, and what all
                           ranks have */
    size_t grads;       /* bytes: of micro-batches under way and sums of them */
    size_t activations; /* bytes: of micro-batches under way, with what was received */
    size_t packed;      /* bytes: weights as kernels want them */
    double work;        /* share of the model's arithmetic, all phases */
} td__stage_need;
/* Bytes of all this, with an optimizer of so many states. */
size_t td__stage_nbytes(const td__stage_need *n, int states);
/* slots: by chunk; out: (stages). */
void td__stage_needs(const td__cut *cut, const td__pipeline_shape *shape, const td_params *ps,
                     const int *slots, int micro_batches, td__stage_need *out);
/* Of the stage that holds most (td__sync_ops.need). */
TD_NODISCARD td_status td__stage_need_most(const td__sync_sizes *z, td__sync_need *out);

#endif
