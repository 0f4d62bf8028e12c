/* pipeline_plan.h -- the plan of a step of a pipeline: a schedule's runs, messages between them,
 * the sums along the data axis, the updates.
 *
 * A chunk has a slot for every micro-batch that may be under way in it, micro-batch m in slot m
 * modulo their number; a message is received straight into the slot where it is needed. A micro-
 * batch leaves its slot when its weight gradients are made and other chunks of the stage have read
 * what it made for them. So a receive waits until the micro-batch that had the slot has ended, and
 * the forward run that takes the slot again waits until what the former one made has been sent.
 *
 * Ranks that share memory need no lanes beside the computation: what a run has made is put into the
 * slot of its reader before the next run begins (`direct`). That is stricter, and not every
 * schedule comes to its end so. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLAN_PIPELINE_PLAN_H
#define TD_PLAN_PIPELINE_PLAN_H

#include "plan/plan.h"
#include "plan/schedule.h"

/* Values that one chunk makes and another reads, of one micro-batch. */
typedef struct td__chunk_edge {
    int from, to;
    td_run_phase made, needed;
    uint64_t nbytes;
} td__chunk_edge;

/* Sums of gradients that a role sends to the one that mirrors it, and gets from the one that it
 * mirrors, `from`, as many as that one sends. */
typedef struct td__plan_ring {
    int to, from;
    bool sends_first;
    uint64_t *nbytes; /* (n) of the messages to `to` */
    int n;
} td__plan_ring;

typedef struct td__pipeline_opts {
    td__rank_mesh mesh;
    const td__schedule_def *schedule;
    td__schedule_case at; /* `stages` is the mesh's */
    const td__chunk_edge *edges;
    int n_edges;
    /* Params that chunk `to` reads and `from` updates, handed over in this order before any run. */
    const td__chunk_edge *handed;
    int n_handed;
    const uint64_t *meets; /* (3 chunks) bytes that runs exchange along tensor; NULL: none */
    const uint64_t *grads; /* (chunks) bytes of the gradients of each */
    uint64_t numbers;      /* of losses and of what ranks say, which all stages add up; 0: none, */
    uint64_t said;         /* and of what ranks say, along tensor before */
    bool gathers;          /* replicas of a stage hand each other what each has updated */
    uint64_t norm;         /* updates wait for so many bytes of numbers that all stages add up, */
    bool norm_shared;      /* and the replicas of each: clipping */
    bool in_order;         /* a stage updates after the one before it has */
    bool held;             /* none does before all ranks have their sums: elastic ranks. Then: */
    const td__plan_ring *ring;   /* (stages) NULL where a role is several ranks: then an all-to-all
                                    stands for it */
    const td__chunk_edge *stats; /* statistics of chunk `from`, to all stages in this order */
    int n_stats;
    bool direct;   /* a run waits for the sends of the one before it */
    double update; /* seconds of an update */
} td__pipeline_opts;

/* Edges with the same ends that are made in the same phase are one message, needed when the first
 * of them is; those between chunks of one stage are none. slots (chunks): of each; NULL: unwanted.
 * */
TD_NODISCARD td_status td__pipeline_plan(const td__pipeline_opts *o, td__plan **out, int *slots);

#endif
