/* micro_batch_tree.h -- the one order in which gradients are added.
 *
 * The global batch of a step is cut in V micro-batches, V fixed by the job, never by who computes.
 * Micro-batch s of a batch of b rows has rows [b*s/V, b*(s+1)/V). Gradients of the micro-batches,
 * each weighted by its share of the rows, are added in one binary tree over micro-batch numbers:
 * 0+1, 2+3, ..., then pairs of pairs; a missing right half is passed up as it is. A contiguous
 * range of micro-batches splits into aligned sub-trees, each of which is one partial sum; so a
 * worker adds up its own and hands on partials, and the total has the same bits whoever added what.
 * */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_MICRO_BATCH_TREE_H
#define TD_STEP_MICRO_BATCH_TREE_H

#include "tandem/types.h"

/* The default V of evaluation: a power of two, 16 rows a micro-batch where that gives at least 4
 * micro-batches, never more than 64 micro-batches or more than rows. */
int td__micro_batches_default(int64_t batch);

static inline int64_t td__micro_batch_begin(int64_t rows, int micro_batches, int s)
{
    return rows * s / micro_batches;
}

/* An aligned sub-tree: micro-batches [begin, begin + (1 << level)), cut off at V. */
typedef struct td__subtree {
    int begin, level;
} td__subtree;

/* The sub-trees of micro-batches [begin, end) of V, in order; returns how many. 2*32 always
 * suffice. */
int td__micro_batch_subtrees(int micro_batches, int begin, int end, td__subtree out[64]);

#endif
