/* work_partition.h -- which micro-batches of a step are whose.
 *
 * The micro-batches of a step (of all its batches, with accumulation) are numbered through, and
 * rank r of n has a contiguous range of the v: [v r/n, v (r+1)/n), or as `bounds` says. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_WORK_PARTITION_H
#define TD_STEP_WORK_PARTITION_H

#include "tandem/types.h"

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

#endif
