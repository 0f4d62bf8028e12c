/* data_parallel.h -- adding up the gradients of a step over ranks that share memory, with the bits
 * of one.
 *
 * Which partials a rank has and in what order they are added is rank_tree.h's affair. The rest is
 * done slice by slice, in memory that all ranks see:
 *
 *   1. publish   each rank puts its partials into its slots, one slot for each, past its caches:
 *                ordinary stores to lines that another rank has read last take 20 times as long,
 *                which is also why backward does not write there;
 *   2. exchange  a moment to wait for: all have published;
 *   3. sum       rank i, the owner of slice i of the gradient block, adds up slice i of all slots
 *                in the order of the tree, in place; the sum lies in some rank's slot;
 *   4. gather    another such moment: all have added.
 *
 * If there is only one addition to do, of two ranks with one partial each, steps 3 and 4 would read
 * as much from the other rank as the addition itself: then every rank adds up all elements, block
 * by block where it needs them (total), and nothing is waited for again.
 *
 * There are two sets of slots, used in turn, so that a rank may publish the next step while others
 * still read the last one's sum. There is no second thread: all of it happens at memory's speed,
 * and a thread that moved buckets meanwhile would only take the processor from those that compute.
 * Ranks that do not share memory: bucket_sum.h.
 *
 * Ranks that compute on one GPU have their slots in its memory (peers.h) and add them up there.
 * Where one of them cannot, NCCL brings the slices and the sums, if the ranks have it
 * (coll/nccl/nccl.h): then a GPU has one set of its own rank's slots, of the others' the slices
 * that it adds up, and the sum. Else all use memory of the host.
 *
 * Row-sparse gradients are gathered whole and merged in the same tree by every rank.
 *
 * Threads   publish, total and sum may be called by several threads for different elements; the
 *           rest by one. Every rank makes the same calls; failures are those of tandem/coll.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_DATA_PARALLEL_H
#define TD_PARALLEL_DATA_PARALLEL_H

#include "parallel/rank_tree.h"
#include "tandem/coll.h"

typedef struct td__dp td__dp;
/* For gradients of `blocks`, memory of `device`, in steps of up to `accumulate` batches of
 * `micro-batches` micro-batches; bounds: of td__work_partition, NULL for equal shares. Collective;
 * all are borrowed. */
TD_NODISCARD td_status td__dp_create(td_comm *comm, td_device *device, td__grad_pool *blocks,
                                     const int *bounds, int micro_batches, int accumulate,
                                     td__dp **out);
/* Collective, before td__dp_destroy where ranks go on: others may still read what this one has
 * shared of its device's memory. */
TD_NODISCARD td_status td__dp_leave(td__dp *d);
void td__dp_destroy(td__dp *d); /* NULL is allowed; local */

/* A step of `batches` batches, all with at least as many rows as micro-batches but the last one,
 * which has last_rows. */
TD_NODISCARD td_status td__dp_begin(td__dp *d, int batches, int64_t last_rows);
/* 1. Elements [begin, begin + count) of this rank's partials, siblings joined. */
void td__dp_publish(td__dp *d, const td__grad_stack *local, size_t begin, size_t count);
/* 2. Also adds up `sums` over ranks, of which all but one give 0 for each element. */
TD_NODISCARD td_status td__dp_exchange(td__dp *d, const td__grad_stack *local, double *sums,
                                       size_t n_sums);
/* Instead of 3 and 4, if td__dp_simple(): elements of the sum, to `to`. */
bool td__dp_simple(const td__dp *d);
bool td__dp_simple_tree(const td__rank_tree *t); /* of the tree of its step */
void td__dp_total(const td__dp *d, const td__grad_stack *local, size_t begin, size_t count,
                  float *to);
/* 3. Elements of this rank's slice: [0, td__dp_slice()). */
size_t td__dp_slice(const td__dp *d);
void td__dp_sum(td__dp *d, size_t begin, size_t count);
/* 4. *grads: the sum of all, until the exchange of the next step. */
TD_NODISCARD td_status td__dp_gather(td__dp *d, const float **grads);
/* What the step would have sent from this rank as messages. */
uint64_t td__dp_nbytes(const td__dp *d);
/* Row-sparse gradient k of the sum; until the next step begins. */
td_sparse_grad td__dp_sparse(const td__dp *d, int k);

#endif
