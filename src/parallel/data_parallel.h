/* data_parallel.h -- adding up the gradients of a step over all ranks, with the bits of one.
 *
 * The shards of a step (of all its batches, with accumulation) are numbered through, and rank r
 * of n owns the contiguous range [v r/n, v (r+1)/n) of the v. It adds up what it can: the
 * partials of the aligned sub-trees of its range (grad_tree.h). Which partials a rank has is a
 * function of v, n and r, so nobody needs to be told. The rest is done slice by slice:
 *
 *   1. publish   each rank puts its partials into its slots, one slot for each;
 *   2. exchange  rank i, the owner of slice i of the gradient block, gets slice i of all slots;
 *   3. sum       it adds them up in the order of the shard tree;
 *   4. gather    every rank gets every slice.
 *
 * On one host slots lie in memory that all ranks share: 2 is a moment to wait for, the owner reads
 * the others' slots in place, the sum lies in the first slot of the first rank, and 4 is another
 * such moment. There are two sets of slots, used in turn, so that a rank may publish the next step
 * while others still read the last one's sum. Elsewhere 2 is an all-to-all per slot and 4 an
 * all-gather. Either way a rank sends and receives 2 (n-1)/n of the block where it has one
 * partial, which is the least possible.
 *
 * Row-sparse gradients are gathered whole and merged in the same tree by every rank.
 *
 * Threads   publish and sum may be called by several threads for different elements; the rest by
 *           one. Every rank makes the same calls; failures are those of tandem/coll.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_DATA_PARALLEL_H
#define TD_PARALLEL_DATA_PARALLEL_H

#include "parallel/grad_tree.h"
#include "tandem/coll.h"

/* Shards [begin, end). */
typedef struct td__shard_range {
    int begin, end;
} td__shard_range;

/* The shards of rank r of n. */
static inline td__shard_range td__rank_shards(int shards, int rank, int size)
{
    return (td__shard_range){(int)((int64_t)shards * rank / size),
                             (int)((int64_t)shards * (rank + 1) / size)};
}

/* Those of them that are in batch `batch` of a step of `batches`, counted from its first shard. */
static inline td__shard_range td__rank_cut(int shards, int batches, int batch, int rank, int size)
{
    td__shard_range r = td__rank_shards(batches * shards, rank, size);
    int first = batch * shards;
    r.begin = r.begin < first ? 0 : r.begin - first < shards ? r.begin - first : shards;
    r.end = r.end < first ? 0 : r.end - first < shards ? r.end - first : shards;
    return r;
}

typedef struct td__dp td__dp;
/* For gradients of `blocks` in steps of up to `accumulate` batches of `shards` shards. Collective;
 * both are borrowed. */
TD_NODISCARD td_status td__dp_create(td_comm *comm, td__grad_pool *blocks, int shards,
                                     int accumulate, td__dp **out);
void td__dp_destroy(td__dp *d); /* NULL is allowed; local */

/* A step of `batches` batches, all with at least as many rows as shards but the last one, which has
 * last_rows. */
TD_NODISCARD td_status td__dp_begin(td__dp *d, int batches, int64_t last_rows);
/* 1. Elements [begin, begin + count) of this rank's partials, siblings joined. */
void td__dp_publish(td__dp *d, const td__grad_stack *local, size_t begin, size_t count);
/* 2. Also adds up `sums` over ranks, of which all but one give 0 for each element. */
TD_NODISCARD td_status td__dp_exchange(td__dp *d, const td__grad_stack *local, double *sums,
                                       size_t n_sums);
/* 3. Elements of this rank's slice: [0, td__dp_slice()). */
size_t td__dp_slice(const td__dp *d);
void td__dp_sum(td__dp *d, size_t begin, size_t count);
/* 4. *grads: the sum of all, until the exchange of the next step. */
TD_NODISCARD td_status td__dp_gather(td__dp *d, const float **grads);
/* Row-sparse gradient k of the sum; until the next step begins. */
td_sparse_grad td__dp_sparse(const td__dp *d, int k);

#endif
