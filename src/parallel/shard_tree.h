/* shard_tree.h -- the one order in which gradients are added.
 *
 * The global batch of a step is cut in V shards, V fixed by the job, never by who computes.
 * Shard s of a batch of b rows has rows [b*s/V, b*(s+1)/V). Gradients of the shards, each
 * weighted by its share of the rows, are added in one binary tree over shard numbers: 0+1, 2+3,
 * ..., then pairs of pairs; a missing right half is passed up as it is. A contiguous range of
 * shards splits into aligned sub-trees, each of which is one partial sum; so a worker adds up
 * its own and hands on partials, and the total has the same bits whoever added what. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SHARD_TREE_H
#define TD_PARALLEL_SHARD_TREE_H

#include "tandem/types.h"

/* The default V of evaluation: a power of two, 16 rows a shard where that gives at least 4
 * shards, never more than 64 shards or more than rows. */
int td__shards_default(int64_t batch);

static inline int64_t td__shard_begin(int64_t rows, int shards, int s)
{
    return rows * s / shards;
}

/* An aligned sub-tree: shards [begin, begin + (1 << level)), cut off at V. */
typedef struct td__subtree {
    int begin, level;
} td__subtree;

/* The sub-trees of shards [begin, end) of V, in order; returns how many. 2*32 always suffice. */
int td__shard_subtrees(int shards, int begin, int end, td__subtree out[64]);

#endif
