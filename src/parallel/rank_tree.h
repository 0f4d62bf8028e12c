/* rank_tree.h -- which partials each rank has in a step, and in what order they are added.
 *
 * The micro-batches of a step (of all its batches, with accumulation) are numbered through, and
 * rank r of n owns a contiguous range of the v: [v r/n, v (r+1)/n), unless they are dealt out
 * otherwise (td__work_partition). It adds up what it can: the partials of the aligned sub-trees of
 * its range (grad_tree.h). All of this is a function of v, r and the deal, so nobody needs to be
 * told: partial i of a rank travels in, or lies in, its slot i, and every rank knows the list of
 * additions that make the sum of all of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_RANK_TREE_H
#define TD_PARALLEL_RANK_TREE_H

#include "step/grad_tree.h"
#include "step/work_partition.h"

/* The partials that rank r has; `out` may be NULL. */
int td__work_partials(td__work_partition d, int micro_batches, int rank, td__subtree out[64]);

static inline int td__rank_partials(int micro_batches, int rank, int size, td__subtree out[64])
{
    return td__work_partials((td__work_partition){.size = size}, micro_batches, rank, out);
}

/* Slot `slot` of a rank. */
typedef struct td__rank_slot {
    int rank, slot;
} td__rank_slot;

/* A sub-tree that takes part in a sum: slot `slot` of a rank. All ranks know the list of them. */
typedef struct td__rank_leaf {
    td__subtree tree;
    int rank, slot;
    bool present; /* false: it has no rows */
} td__rank_leaf;

/* dst += src */
typedef struct td__rank_add {
    td__rank_slot dst, src;
} td__rank_add;

typedef struct td__rank_tree {
    td__work_partition partition;
    int size, micro_batches, accumulate; /* of ranks; of a batch; the most batches of a step */
    int slots;                           /* the most partials that a rank has in any step */
    /* The plan of a step, kept for the next of the same shape. */
    int batches; /* 0: none yet */
    int64_t last_rows;
    td__rank_add *adds;
    int n_adds, max_adds;
    td__rank_slot total; /* where the sum lies afterwards */
    int rounds;          /* the most partials that a rank has in this step */
    float *tags;         /* (slots, size): addresses that stand for slots */
} td__rank_tree;

TD_NODISCARD td_status td__rank_tree_init(td__rank_tree *t, td__work_partition partition,
                                          int micro_batches, int accumulate);
void td__rank_tree_fini(td__rank_tree *t);
/* The plan for a step of `batches` batches, all with at least as many rows as micro-batches but the
 * last one, which has last_rows. *changed: it is not the one of before. */
TD_NODISCARD td_status td__rank_tree_plan(td__rank_tree *t, int batches, int64_t last_rows,
                                          bool *changed);

#endif
