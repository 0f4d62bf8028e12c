/* sync_pipeline_impl.h -- the sync rule of a pipeline, between its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_SYNC_PIPELINE_IMPL_H
#define TD_PIPELINE_SYNC_PIPELINE_IMPL_H

#include "parallel/sync.h"
#include "pipeline/executor.h"
#include "pipeline/pipeline.h"

/* Partials of a range of micro-batches: one per level on each side, and one more. */
enum { TD__PIPELINE_STACK = 80 };
enum { TD__PIPELINE_PLANS = 4 }; /* kept: a pipeline may have different numbers of micro-batches */

/* For a number of micro-batches in a batch. */
typedef struct td__pipeline_planned {
    int micro_batches; /* 0: none */
    td__plan *plan;
    int *slots; /* by chunk */
} td__pipeline_planned;

typedef struct td__pipeline_rule {
    td__sync base;
    td__sync *inner; /* how replicas of a part add up gradients; its engine is this rule's */
    td__sync_config inner_config;
    td__pipeline_shape shape;
    td__rank_mesh mesh;
    const td__schedule_def *schedule;
    int chunks;
    bool *own;    /* (chunks) */
    td__cut *cut; /* of micro-batches of the usual size */
    td__chunks *set;
    td__channels channels;
    td__executor *executor;
    td__grad_stack *stacks;          /* by chunk */
    td__partial *stacked;            /* (chunks, TD__PIPELINE_STACK) theirs */
    td__param_range *ranges, *grads; /* (n_ranges) of params; where their gradients lie */
    int n_ranges, *first;            /* first: (chunks + 1) of them of each chunk */
    td__step_stage stage;
    td__pipeline_planned plans[TD__PIPELINE_PLANS];
    int next_plan; /* the one that gives way */
    double wait;
    uint64_t sent;
    td__measure *measure;
    td__pipeline_report report;
    int ran; /* micro-batches of the last batch; 0: none */
} td__pipeline_rule;

/* With parallel.zero: replicas of a stage share the optimizer's states of its params. */
bool td__pipeline_shares_states(const td__pipeline_rule *p);

/* stage_exchange.c */

/* Params that a chunk reads and another updates, to the stage of the reader. */
TD_NODISCARD td_status td__pipeline_tell_shared(td__pipeline_rule *p);
/* After a step, with parallel.zero: params that another replica of the stage has updated. */
TD_NODISCARD td_status td__pipeline_gather(td__sync *s);
/* What the owner of a range of chunk c has that is not in shards, to all: params with row-sparse
 * gradients and the optimizer's states of them, states of the model. */
TD_NODISCARD td_status td__pipeline_tell_range(td__pipeline_rule *p, int c, td__param_range r);

#endif
