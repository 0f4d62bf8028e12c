/* sync_pipeline_impl.h -- the sync rule of a pipeline, between its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_SYNC_PIPELINE_IMPL_H
#define TD_PIPELINE_SYNC_PIPELINE_IMPL_H

#include "parallel/planned_calls.h"
#include "parallel/sync.h"
#include "parallel/tensor_peers.h"
#include "pipeline/executor.h"
#include "pipeline/held_step.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage_params.h"

/* Partials of a range of micro-batches: one per level on each side, and one more. */
enum { TD__PIPELINE_STACK = 80 };
enum { TD__PIPELINE_PLANS = 4 }; /* kept: a pipeline may have different numbers of micro-batches */

/* For a number of micro-batches in a batch. */
typedef struct td__pipeline_planned {
    int micro_batches; /* 0: none */
    td__plan *plan;
    int *slots;  /* by chunk */
    bool direct; /* its messages are */
} td__pipeline_planned;

typedef struct td__flow td__flow; /* batches under way from step to step: flow.c */

typedef struct td__pipeline_rule {
    td__sync base;
    td__sync *inner; /* how replicas of a part add up gradients; its engine is this rule's */
    td__sync_config inner_config;
    td__pipeline_shape shape;
    td__rank_mesh mesh;
    int lane; /* of this rank, along tensor */
    const td__schedule_def *schedule;
    int chunks;
    bool *own;     /* (chunks) */
    bool *agreed;  /* (accumulate + 1) ranks have compared the list of so many batches */
    td__cut *cut;  /* of micro-batches of the usual size */
    double *costs; /* (3 chunks) of td__pipeline_costs(), on rank 0 */
    td__chunks *set;
    td__channels channels;
    td__tensor_peers peers; /* ranks that have the other pieces of this stage's layers */
    td__direct direct;
    bool may_direct; /* ranks share memory that the kernels use */
    td__executor *executor;
    td__grad_stack *stacks; /* by chunk */
    td__partial *stacked;   /* (chunks, TD__PIPELINE_STACK) theirs */
    td__stage_ranges ranges;
    td__step_stage stage;
    td__pipeline_planned plans[TD__PIPELINE_PLANS];
    int next_plan;                 /* the one that gives way */
    td__plan *step_plan;           /* of a full step, for its calls: */
    td__planned_calls stage_calls; /* those of stages with each other, but values; n 0: none */
    td__planned_calls world_calls; /* those of all ranks of a step that is held; n 0: none */
    double wait;
    uint64_t sent;
    td__measure *measure;
    td__pipeline_report report;
    int params;                   /* of the model, and states */
    uint64_t lists, direct_lists; /* that were run; of them, those with direct messages */
    int ran;                      /* micro-batches of the last list that was run; 0: none */
    const td__pipeline_planned
        *through;        /* all batches of the step under way in one list, or NULL */
    td__flow *flow;      /* NULL: the schedule empties the pipeline in each step */
    td__held_step *held; /* NULL: params are updated as soon as their sums are there */
} td__pipeline_rule;

/* pipeline_check.c: of td__sync_ops. */

bool td__pipeline_asked(const td__sync_config *c);
bool td__pipeline_fits(const td__sync_config *c, const td__sync_world *w);
TD_NODISCARD td_status td__pipeline_check(const td__sync_config *c, const td__sync_job *j,
                                          const td__sync_world *w);
bool td__tensor_asked(const td__sync_config *c);
bool td__tensor_fits(const td__sync_config *c, const td__sync_world *w);
TD_NODISCARD td_status td__tensor_check(const td__sync_config *c, const td__sync_job *j,
                                        const td__sync_world *w);
/* The job's; NULL: there is none of that name. */
const td__schedule_def *td__pipeline_schedule(const td__sync_config *c);

/* *out stays until further plans were asked for: the last two are there. */
TD_NODISCARD td_status td__pipeline_plan_for(td__pipeline_rule *p, int micro_batches,
                                             const td__pipeline_planned **out);
/* Ranks compare the lists of all numbers of micro-batches that a replica may have of a batch, but
 * `usual`, which they have compared, and of a full step. Collective over the world. */
TD_NODISCARD td_status td__pipeline_agree_on_lists(td__pipeline_rule *p, int usual);
/* They compare the one list of so many batches, unless they have. Collective over the world. */
TD_NODISCARD td_status td__pipeline_agree_through(td__pipeline_rule *p,
                                                  const td__pipeline_planned *n, int batches);
/* One list for all of a step's batches of `each` micro-batches; NULL: each has one of its own. */
TD_NODISCARD td_status td__pipeline_plan_through(td__pipeline_rule *p, int each, int batches,
                                                 const td__pipeline_planned **out);
void td__pipeline_drop_plans(td__pipeline_rule *p);
/* What stages call in a step on the communicator of a whole model is held against the plan from
 * here (made), from the step's begin, to its end; and where it is held what all ranks call. */
TD_NODISCARD td_status td__pipeline_guard(td__pipeline_rule *p);
void td__pipeline_guard_begin(td__pipeline_rule *p, uint64_t step);
/* A td__step_batch_fn, whose user is the rule (run_batch.c). */
TD_NODISCARD td_status td__pipeline_run_batch(void *user, const td__batch *batch, int number,
                                              double *losses);
/* What the chunks of this rank have added up becomes the engine's partials. */
void td__pipeline_gather_partials(td__pipeline_rule *p);

/* The parts of a range of the params that this rank has, if its stage has it. */
td__tensor_walk td__pipeline_walk(const td__pipeline_rule *p, td__param_range r);

/* With parallel.zero: replicas of a stage share the optimizer's states of its params. */
bool td__pipeline_shares_states(const td__pipeline_rule *p);

/* held_update.c: the end of a step that is held; of td__sync_ops. */
TD_NODISCARD td_status td__pipeline_update_held(td__pipeline_rule *p, double lr,
                                                td__step_result *out);
bool td__pipeline_prepared(const td__sync *s);
TD_NODISCARD td_status td__pipeline_forward(td__sync *s);

/* flow.c: begin, batch, step and meet of a rule whose schedule flows. */

TD_NODISCARD td_status td__flow_create(td__pipeline_rule *p);
void td__flow_destroy(td__flow *f); /* NULL is allowed */
TD_NODISCARD td_status td__flow_begin(td__flow *f, const td__sync_place *at);
TD_NODISCARD td_status td__flow_batch(td__flow *f, const td__batch *batch);
TD_NODISCARD td_status td__flow_step(td__flow *f, double lr, td__step_result *out);
/* Run what is under way to its end: the params are those of all steps. */
TD_NODISCARD td_status td__flow_empty(td__flow *f);
/* What is under way ends, and whoever waits for this rank is told. */
void td__flow_abort(td__flow *f, const char *why);
/* An executor's: user is the rule. */
TD_NODISCARD td_status td__flow_update(void *user, int batch);

/* stage_exchange.c */

/* Params that a chunk reads and another updates, to the stage of the reader. */
TD_NODISCARD td_status td__pipeline_tell_shared(td__pipeline_rule *p);
int td__pipeline_shared(td__pipeline_rule *p); /* how many pieces they are in, at most */
/* The same of other params than the live ones. Readers have them then; what is sent is borrowed
 * until td__pipeline_told(). */
typedef struct td__shared_works {
    td_work **at; /* (td__pipeline_shared()) */
    int n;
} td__shared_works;
TD_NODISCARD td_status td__pipeline_tell_ahead(td__pipeline_rule *p, td_params *of,
                                               td__shared_works *works);
TD_NODISCARD td_status td__pipeline_told(td__shared_works *works);
/* Statistics of the states of each stage, in a block laid out as the gradients, to all stages. */
TD_NODISCARD td_status td__pipeline_tell_statistics(td__pipeline_rule *p, float *block);
/* With parallel.update in-order: wait until the stage before has updated its params (a
 * td__step_stage's; user is the rule); tell the one behind that this one has. */
TD_NODISCARD td_status td__pipeline_wait_turn(void *user);
TD_NODISCARD td_status td__pipeline_pass_turn(td__pipeline_rule *p);
/* After a step, with parallel.zero: params that another replica of the stage has updated. */
TD_NODISCARD td_status td__pipeline_gather(td__sync *s);
/* What the owner of a range of chunk c has that is not in shards, to all: params with row-sparse
 * gradients and the optimizer's states of them, states of the model. */
TD_NODISCARD td_status td__pipeline_tell_range(td__pipeline_rule *p, int c, td__param_range r);

#endif
