/* zero.h -- a sharded optimizer (ZeRO, Rajbhandari 2020): ranks that train together hold the
 * optimizer's state, then gradients, then params, in shards instead of whole.
 *
 *   stage   held whole by every rank      held in shards (shards.h)
 *   1       params, gradients             optimizer state, the sum of gradients
 *   2       params                        gradients too: a bucket is sent to its owners as soon as
 *                                         backward has made it, and its memory is given back
 *   3       -                             params too: a bucket is gathered before it is used, in
 *                                         forward and in backward, and given back after
 *
 * Gradients are added in the micro-batch tree at every stage, so the bits are those of one rank.
 * This is how gradients come to their owners:
 *
 *   reduce   the leaves (or sub-trees) that ranks have of a bucket: by pieces, an all-to-all brings
 *            every owner its shard of all of them, and it adds them to what it has, in the order of
 *            the tree. What it has is a stack of partials, as a worker's in grad_tree.h.
 *   sum      what is left of the stack becomes one.
 *
 * Ranks that compute on one GPU do all of it there (shards_impl.h): an owner adds up where the
 * other ranks have put their leaves.
 *
 * Threads   One at a time. Calls marked "collective" are made by all ranks in the same order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_ZERO_H
#define TD_PARALLEL_ZERO_H

#include "parallel/rank_tree.h"
#include "parallel/shards.h"

enum { TD__ZERO_STAGES = 4 };

typedef struct td__zero td__zero;

typedef struct td__zero_opts {
    td__shards *shards;            /* borrowed; with td__zero_slots() slots */
    int stage;                     /* 1 to 3 */
    int micro_batches, accumulate; /* of a batch; the most batches of a step */
} td__zero_opts;

/* Slots that a rank brings to one reduce: at stage 1 all its partials, else one leaf. */
int td__zero_slots(int stage, int size, int micro_batches, int accumulate);

/* Collective. */
TD_NODISCARD td_status td__zero_create(const td__zero_opts *opts, td__zero **out);
void td__zero_destroy(td__zero *z); /* NULL is allowed; local */

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

/* Bytes that a td__zero of these numbers and its shards hold on a rank (widest shards), as the
 * operating system counts them: pages shared with others count for each. */
typedef struct td__zero_case {
    int stage, micro_batches, accumulate;
    bool shared, mirrors;
} td__zero_case;
size_t td__zero_nbytes(const td__ownership *m, const td__zero_case *c);

#endif
