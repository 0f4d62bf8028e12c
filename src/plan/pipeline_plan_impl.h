/* pipeline_plan_impl.h -- the builder of a pipeline's plan, between its files: pipeline_plan.c has
 * the values of micro-batches and the end of a step, flow_plan.c what stages tell each other in
 * each batch of a schedule that flows. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLAN_PIPELINE_PLAN_IMPL_H
#define TD_PLAN_PIPELINE_PLAN_IMPL_H

#include "plan/pipeline_plan.h"

typedef struct td__plan_message {
    int from, to, micro_batch; /* chunks */
    int batch;                 /* of what goes forward where the schedule flows; else 0 */
    td_run_phase made, needed;
    uint64_t nbytes;
    double at;
} td__plan_message;

/* Of a schedule that flows; by stage and batch, (stages, batches). */
typedef struct td__flow_plan {
    int batches;    /* 0: the schedule does not flow */
    int *first;     /* in the schedule's list: the first run of the batch, */
    int *forward;   /* and its last forward */
    int *said;      /* in the plan's: the sum of losses and requests, */
    int *updates;   /* and the update */
    double *handed; /* (batches, o->n_handed) when params can be handed over; -1: not known yet */
    int *last;      /* (stages) the last hand-over in the plan's list */
} td__flow_plan;

typedef struct td__plan_builder {
    const td__pipeline_opts *o;
    td__schedule *s;
    td__plan *p;
    td__chunk_edge *edges; /* one for each kind of message or hand-over */
    int n_edges;
    int *tied;      /* td__schedule_case.tied */
    int *slots;     /* by chunk */
    double *ended;  /* (3 chunks micro-batches) of runs; -1: not yet */
    int *index;     /* (the same) in the role's list */
    size_t *leaves; /* (chunks micro-batches) the run with which a micro-batch leaves its slot */
    td__plan_message *messages;
    int n_messages;
    td__flow_plan flow;
} td__plan_builder;

static inline size_t td__run_of(const td__plan_builder *b, int chunk, int phase, int m)
{
    return ((size_t)chunk * 3 + (size_t)phase) * (size_t)b->o->at.micro_batches + (size_t)m;
}

static inline int td__stage_of(const td__plan_builder *b, int chunk)
{
    return td__schedule_stage(b->o->schedule, b->o->at.stages, chunk);
}

/* A run waits for the last message of a lane only: those before it have been carried out then. */
TD_NODISCARD td_status td__plan_wait_in_lane(td__plan_builder *b, int role, int run, int op);
/* An end of a hand-over of params: ranks make theirs one after the other, in the order of all.
 * last: (stages) the one before. */
TD_NODISCARD td_status td__plan_add_hand(td__plan_builder *b, const td__chunk_edge *e, bool sends,
                                         int *last);

/* flow_plan.c: nothing unless the schedule flows. */

/* Once the schedule is written. */
TD_NODISCARD td_status td__flow_plan_init(td__plan_builder *b);
void td__flow_plan_fini(td__plan_builder *b);
/* When run k of a stage can begin, as far as stages tell each other something before; -1: not known
 * yet. */
double td__flow_plan_ready(td__plan_builder *b, int stage, int k);
/* Operation `op` has been added, run k of the schedule's list: losses and requests of its batch
 * follow, if it is the last forward of one. */
TD_NODISCARD td_status td__flow_plan_say(td__plan_builder *b, int stage, int k, int op);
/* Where the number of the update of a micro-batch's batch belongs; NULL: nowhere. */
int *td__flow_plan_update(td__plan_builder *b, int stage, uint32_t micro_batch);
/* After runs and values: params are handed over before each batch, which begins when what was said
 * in those before is known. */
TD_NODISCARD td_status td__flow_plan_hand(td__plan_builder *b);

#endif
