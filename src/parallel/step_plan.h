/* step_plan.h -- the communication plan (plan/plan.h) of a step of ranks with whole models, as
 * their sync rule writes it: td__sync_ops.plan, which gets a planner and appends the operations of
 * one rank, in the order in which the rank begins them.
 *
 *     td__planner_runs(w);                      this rank's micro-batches
 *     td__planner_numbers(w);                   what every rule adds up: losses, requests
 *     td__planner_coll(w, TD_PLAN_ALLREDUCE, nbytes, chunk);
 *     td__planner_update(w, 0);
 *
 * What is appended waits for all that was before it, unless `overlaps` is set: then computing waits
 * for no call. The first failure is kept, and nothing is appended after it.
 *
 * The plan is a function of the job and the world: before any rank is started `tandem check` prints
 * it, and at run time every call is held against it (plan_follow.h). Chunk 0 is the whole model;
 * rules that exchange gradients in buckets count these from 1 on. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_STEP_PLAN_H
#define TD_PARALLEL_STEP_PLAN_H

#include "ops/phase.h"
#include "parallel/buckets.h"
#include "parallel/rank_tree.h"
#include "parallel/round_script.h"
#include "parallel/sync.h"
#include "plan/plan.h"

/* What it is to know of the optimizer: it clips by the norm; any slice can be updated alone;
 * td__optim_chunk_of() of all params; its states. */
typedef struct td__plan_optim {
    bool clips, sliceable;
    int chunks, states;
} td__plan_optim;
td__plan_optim td__plan_optim_of(const td_optimizer *o, const td_params *ps);

/* What the plan of a step is a function of. All are borrowed. */
struct td__plan_case {
    const td__sync_config *config;
    td__sync_world world;
    const int *host_of; /* by rank; NULL: one host */
    const td_params *params;
    td__plan_optim optim;
    td__micro_batch_set *set;
    int micro_batches, accumulate;
    const int *bounds;          /* of td__work_partition; NULL: equal shares */
    const td__ownership *map;   /* of what ranks hold in shards; NULL: they hold all */
    bool mirrors;               /* each holds the shards of another too */
    bool watched, update_late;  /* td__step_opts: watch, update_late */
    bool host_reads;            /* the memory that params are in */
    const td__param_range *own; /* (n_own) params that these ranks update; NULL: all */
    int n_own;
    size_t squares; /* numbers that clipping by the norm adds up over ranks; 0: none */
    uint64_t steps; /* of the whole run */
    /* The step: its number, from 1; its batches; rows of the first of them, and of the last. */
    uint64_t step;
    int batches;
    int64_t rows, last_rows;
};

struct td__planner {
    const td__plan_case *at;
    int rank, ranks; /* whose list it is; of how many */
    const td__sync_ops *rule;
    td__plan *p;
    td_status st;
    bool overlaps;
    int ran, called; /* the last operation of the compute lane; the last call; TD__PLAN_NONE */
    /* The same for all ranks. */
    td__buckets buckets;
    td__rank_tree tree;        /* of the step */
    td__round_scripts scripts; /* where ranks hold shards */
    int sparse;                /* params with row-sparse gradients */
    size_t floats;             /* of a gradient block */
};

/* All ranks' lists of the step. The caller destroys it. TD_ENOTSUP if the rule has no plan. */
TD_NODISCARD td_status td__step_plan(const td__sync_ops *rule, const td__plan_case *at,
                                     td__plan **out);
/* Which kind of step it is for the rule: steps of a kind and shape have the same plan. */
int td__step_kind(const td__sync_ops *rule, const td__plan_case *at);
/* What runs and updates take: by the arithmetic of a micro-batch, on a processor of 20 GFLOP/s. */
void td__step_plan_costs(td__plan *p, const td_program *of);

/* ---- For rules ------------------------------------------------------------------------------- */

/* The name of a chunk: "bucket 2, from fc1.weight", by where it begins in the gradient block. */
void td__planner_name(td__planner *w, int chunk, size_t begin);
int td__planner_run(td__planner *w, td_run_phase phase, int chunk, int micro_batch);
/* Forward and backward of all micro-batches of this rank; but for the backward of the last one,
 * whose number is returned, if `but_last`; -1: this rank has none. */
int td__planner_runs_but(td__planner *w, bool but_last);
void td__planner_runs(td__planner *w);
/* A collective of so many bytes, those of all ranks together. */
int td__planner_coll(td__planner *w, td__plan_coll coll, uint64_t nbytes, int chunk);
void td__planner_numbers(td__planner *w);
/* Row-sparse gradients, if there are any, of up to `slots` partials of a rank. */
void td__planner_rows(td__planner *w, int slots);
/* A message of params or sums (TD__PLAN_PARAMS, TD__PLAN_SUMS) to or from a rank. */
void td__planner_send(td__planner *w, int what, int to, uint64_t nbytes);
void td__planner_recv(td__planner *w, int what, int from, uint64_t nbytes);
/* To or from memory that other ranks read. */
void td__planner_copy(td__planner *w, uint64_t nbytes);
/* Of the params of a chunk, after all before it. */
void td__planner_update(td__planner *w, int chunk);
/* Before an update that clips by the norm, where no rank has all gradients: their squares. */
void td__planner_squares(td__planner *w);
/* td__step_kind() of the step. */
int td__planner_kind(const td__planner *w);
/* Is nothing updated before all of the sum is there? */
bool td__planner_late(const td__planner *w);

#endif
