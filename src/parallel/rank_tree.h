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

#include "parallel/grad_tree.h"

/* Micro-batches [begin, end). */
typedef struct td__micro_batch_range {
    int begin, end;
} td__micro_batch_range;

/* How micro-batches are dealt out to ranks; the same on all of them. */
typedef struct td__work_partition {
    int size; /* ranks */
    const int
        *bounds; /* (size + 1), borrowed: of every bounds[size] micro-batches, rank r has those from
                          bounds[r] to bounds[r + 1]; NULL: all have the same share */
} td__work_partition;

static inline int td__work_first(td__work_partition d, int micro_batches, int rank)
{
    int64_t at = d.bounds ? d.bounds[rank] : rank, all = d.bounds ? d.bounds[d.size] : d.size;
    return (int)(micro_batches * at / all);
}

/* The micro-batches of rank r. */
static inline td__micro_batch_range td__work_micro_batches(td__work_partition d, int micro_batches,
                                                           int rank)
{
    return (td__micro_batch_range){td__work_first(d, micro_batches, rank),
                                   td__work_first(d, micro_batches, rank + 1)};
}

static inline td__micro_batch_range td__rank_micro_batches(int micro_batches, int rank, int size)
{
    return td__work_micro_batches((td__work_partition){.size = size}, micro_batches, rank);
}

/* Those of them that are in batch `batch` of a step of `batches`, counted from its first
 * micro-batch. */
static inline td__micro_batch_range td__work_cut(td__work_partition d, int micro_batches,
                                                 int batches, int batch, int rank)
{
    td__micro_batch_range r = td__work_micro_batches(d, batches * micro_batches, rank);
    int first = batch * micro_batches;
    r.begin = r.begin < first                   ? 0
              : r.begin - first < micro_batches ? r.begin - first
                                                : micro_batches;
    r.end = r.end < first ? 0 : r.end - first < micro_batches ? r.end - first : micro_batches;
    return r;
}

static inline td__micro_batch_range td__rank_cut(int micro_batches, int batches, int batch,
                                                 int rank, int size)
{
    return td__work_cut((td__work_partition){.size = size}, micro_batches, batches, batch, rank);
}

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

/* Elements [begin, begin + count) of a partial, weighted, to `to`: as publishing means. */
void td__partial_copy(const td__partial *p, size_t begin, size_t count, float *to);

#endif
