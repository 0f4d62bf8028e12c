/* zero.h -- a sharded optimizer (ZeRO, Rajbhandari 2020): ranks that train together hold the
 * optimizer's state, then gradients, then params, in shards instead of whole.
 *
 *   stage   held whole by every rank      held in shards (ownership.h)
 *   1       params, gradients             optimizer state, the sum of gradients
 *   2       params                        gradients too: a bucket is sent to its owners as soon as
 *                                         backward has made it, and its memory is given back
 *   3       -                             params too: a bucket is gathered before it is used, in
 *                                         forward and in backward, and given back after
 *
 * Gradients are added in the micro-batch tree at every stage, so the bits are those of one rank.
 * This is the part between ranks: bringing gradients to their owners, params to everybody.
 *
 *   reduce   the leaves (or sub-trees) that ranks have of a bucket: by pieces, an all-to-all brings
 *            every owner its shard of all of them, and it adds them to what it has, in the order of
 *            the tree. What it has is a stack of partials, as a worker's in grad_tree.h.
 *   sum      what is left of the stack becomes one.
 *   gather   every rank gets the shards of all others.
 *
 * Row-sparse params and states stay whole on every rank at every stage.
 *
 * Threads   One at a time. Calls marked "collective" are made by all ranks in the same order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_ZERO_H
#define TD_PARALLEL_ZERO_H

#include "parallel/rank_tree.h"
#include "parallel/ownership.h"
#include "tandem/coll.h"

enum { TD__ZERO_STAGES = 4 };

typedef struct td__zero td__zero;

typedef struct td__zero_opts {
    td_comm *comm; /* borrowed; of at least 2 ranks */
    td_params *params;
    int stage;                     /* 1 to 3 */
    int micro_batches, accumulate; /* of a batch; the most batches of a step */
    size_t bucket_nbytes;          /* 0: the default */
    bool mirrors;                  /* every rank holds the shards of another too (ownership.h) */
} td__zero_opts;

TD_NODISCARD td_status td__zero_create(const td__zero_opts *opts, td__zero **out);
void td__zero_destroy(td__zero *z); /* NULL is allowed; local */
int td__zero_stage(const td__zero *z);
int td__zero_rank(const td__zero *z);
const td__ownership *td__zero_ownership(const td__zero *z);
/* What this rank holds; its mirror is the rank whose shards it holds too. */
td__holding td__zero_holding(const td__zero *z);
int td__zero_mirror(const td__zero *z); /* -1: none */
/* The comm is about to be destroyed, what is local stays: the sums of a step can still be read. */
void td__zero_leave(td__zero *z);

/* A step begins: nothing is added up yet. */
void td__zero_begin(td__zero *z);
/* Add the leaves, in rising order of micro-batches, of bucket b; `mine` are this rank's slots,
 * dense parts that begin with the gradient block. Collective. */
TD_NODISCARD td_status td__zero_reduce(td__zero *z, int b, const td__partial *mine, int n_mine,
                                       const td__rank_leaf *leaves, int n_leaves);
/* This rank's shard of the sum of bucket b, until the next step begins. */
const float *td__zero_sum(td__zero *z, int b);
/* With mirrors: every rank gets the sums of the shards that it mirrors, so that it can make the
 * same update as their owner. Collective. Then: that of bucket b. */
TD_NODISCARD td_status td__zero_mirror_sums(td__zero *z);
const float *td__zero_mirror_sum(const td__zero *z, int b);
/* All shards of the sum of bucket b, to `out`, which has the bucket's elements. Collective. */
TD_NODISCARD td_status td__zero_gather_sum(td__zero *z, int b, float *out);

/* All shards of bucket b of the params into the block. Collective. */
TD_NODISCARD td_status td__zero_gather(td__zero *z, int b);
/* Give back the memory of others' shards, mirrored ones aside; they are no longer known. */
void td__zero_drop(td__zero *z, int b);
/* gather and drop of all buckets. */
TD_NODISCARD td_status td__zero_gather_all(td__zero *z);
void td__zero_drop_all(td__zero *z);

/* Bytes that this rank has sent so far to add up and to gather, as messages. */
uint64_t td__zero_sent(const td__zero *z);

/* Shards of a block that is laid out like the params: that of this rank is at `own`. The whole
 * bucket goes to rank `root`'s `out` (elsewhere NULL). Collective. */
TD_NODISCARD td_status td__zero_collect(td__zero *z, int b, const float *own, int root, float *out);

/* Bytes that a td__zero of these numbers holds on a rank (widest shards), as the operating system
 * counts them: pages shared with others count for each. */
typedef struct td__zero_case {
    int stage, micro_batches, accumulate;
    bool shared, mirrors;
} td__zero_case;
size_t td__zero_nbytes(const td__ownership *m, const td__zero_case *c);

#endif
