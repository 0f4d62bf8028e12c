/* pipeline.h -- the shape of a pipeline as a job asks for it, and its plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_PIPELINE_H
#define TD_PIPELINE_PIPELINE_H

#include "graph/cut.h"
#include "parallel/sync.h"
#include "plan/pipeline_plan.h"

typedef struct td__pipeline_shape {
    td__rank_mesh mesh;
    const td__schedule_def *schedule;
    int stages, replicas, chunks;
    const char *begins; /* layers that chunks after the first begin with; NULL: by cost */
    int lane;           /* along tensor, of the rank that runs them */
} td__pipeline_shape;

/* The rank whose part of the model is wanted; any, where who has what is asked alone. */
typedef struct td__pipeline_world {
    int rank, ranks;
    bool elastic;
} td__pipeline_world;

/* TD_EINVAL, with what would work, if the ranks cannot be arranged so, or the schedule is unknown
 * or has another number of chunks. Elastic ranks whose number is no multiple of the stages are as
 * many stages; where it is none of all that have a replica together, fewer share the layers. */
TD_NODISCARD td_status td__pipeline_shape_of(const td__sync_config *c, int ranks, bool elastic,
                                             td__pipeline_shape *out);
/* The shape of a world and the model cut accordingly, which the caller destroys. A number of
 * elastic ranks that the job did not ask for, and that the model cannot be cut for, has one stage.
 */
TD_NODISCARD td_status td__pipeline_fit(const td__sync_config *c, const td__pipeline_world *w,
                                        const td__micro_batch_set *set, int64_t rows,
                                        td__pipeline_shape *out, td__cut **cut);

/* What ranks add up over the stages in a step of so many micro-batches: requests, losses, and where
 * the pipeline is emptied in each step what else engines say (td__step_numbers_of()). */
size_t td__pipeline_numbers(const td__schedule_def *schedule, int replicas, bool watched,
                            int micro_batches);

/* What a step does besides its micro-batches. */
typedef struct td__plan_end {
    const td_params *ps; /* of which some are tied; NULL: what is handed over is left out */
    int lane;            /* along tensor, of the rank that asks */
    size_t numbers;      /* that are added up over stages: td__pipeline_numbers() */
    bool clips;          /* gradients are clipped by the norm of all of them, */
    bool shares;         /* of which replicas of a stage update some each */
    int params;          /* so many: one square of each is added up */
    bool in_order;       /* stages update one after the other */
    bool held;           /* no param changes before all ranks have their sums (held_step.h); */
    const td__plan_ring *ring; /* mirror_ring.h; NULL: replicas, or ranks along tensor */
    bool direct; /* messages are put where they are read before the next run (direct.h) */
} td__plan_end;

/* What a micro-batch takes in each chunk and phase, by its arithmetic: (3 chunks) seconds on a
 * processor of 20 GFLOP/s. Ranks with other pieces of the layers may come to other numbers: all of
 * a world must plan with the same. */
void td__pipeline_costs(const td__cut *cut, double *cost);

/* The plan of a batch of so many micro-batches, or of a window of them where the schedule flows;
 * cost: of td__pipeline_costs(); *slots (by chunk): the most that are under way in each. Both are
 * the caller's. */
TD_NODISCARD td_status td__pipeline_plan_of(const td__cut *cut, const td__rank_mesh *mesh,
                                            const td__schedule_def *schedule, int micro_batches,
                                            td__plan_end end, const double *cost, td__plan **out,
                                            int **slots);

/* TD_EMISMATCH unless all ranks have the same plan. Pieces that ranks along tensor have of a layer
 * may differ in size, and with them the messages: those of one place there have the same.
 * Collective. */
TD_NODISCARD td_status td__pipeline_agree(td_comm *world, const td__rank_mesh *mesh,
                                          const td__plan *plan);

/* The same, checked. end->direct becomes false where the plan would wait for itself with it. */
TD_NODISCARD td_status td__pipeline_plan_checked(const td__cut *cut, const td__rank_mesh *mesh,
                                                 const td__schedule_def *schedule,
                                                 int micro_batches, td__plan_end *end,
                                                 const double *cost, td__plan **out, int **slots);

/* Can stages that share memory hand over values in one copy (direct.h), as far as it is known
 * before they start? host_reads: the memory of their kernels; rows: of the usual micro-batch;
 * batch: of a full one. */
bool td__pipeline_may_be_direct(const td__pipeline_shape *shape, const td__cut *cut,
                                bool host_reads, int64_t rows, int micro_batches, int64_t batch);

/* What the runs of a plan take; cost NULL: a thousandth of a second each. */
void td__pipeline_give_costs(td__plan *p, const double *cost);

/* Where the gradients of a range of params or states lie in their block; row-sparse params, which
 * have no place there, are left out. */
td__param_range td__pipeline_grads_of(const td_params *ps, td__param_range r);

/* Partial `from`, which has the gradients of a chunk at these ranges, into `to`, which has those of
 * others. */
void td__pipeline_merge(td__grad_pool *blocks, const td__param_range *grads, int n, td__partial *to,
                        const td__partial *from);

#endif
