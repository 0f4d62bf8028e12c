/* bucket_sum.h -- adding up the gradients of a step over ranks that exchange messages, bucket by
 * bucket (buckets.h), while backward still runs.
 *
 * As soon as every compute thread of this rank has passed the end of a bucket in its last
 * micro-batch, the thread that was last adds up what it can for these elements, puts the result
 * where the others can have it, and posts the bucket; the queue's thread (bucket_queue.h) then
 * carries it:
 *
 *   in the tree (default)     an all-to-all per partial brings slice i of the bucket from all ranks
 *                             to rank i, which adds them up in the order of the micro-batch tree
 *                             (rank_tree.h); an all-gather brings the sum to all. The bits are
 *                             those of one rank. With one partial a rank, it sends and receives
 *                             2 (n-1)/n of the bucket, the least possible. Two ranks with one
 *                             partial each swap them whole, and both add up: as many bytes, but
 *                             nobody waits for a sum;
 *   by a compressor (compressor.h)  which gets the sum of this rank's micro-batches.
 *
 * The last job of a step, the tail, adds up some numbers of the caller (losses) and gathers the
 * row-sparse gradients.
 *
 *     begin, open, passed ..., flush, close, wait ...        or cancel, after a failure
 *
 * Threads   passed: any compute thread. The rest: the owner's. Between begin and the end of the
 *           wait for the tail the comm is the queue's.
 * Failure   As of the collectives. A step that was begun to be sent cannot be taken back: cancel
 *           aborts the comm. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_BUCKET_SUM_H
#define TD_PARALLEL_BUCKET_SUM_H

#include "parallel/bucket_queue.h"
#include "parallel/buckets.h"
#include "parallel/rank_tree.h"
#include "parallel/compress/compressor.h"
#include "parallel/step_plan.h"

typedef struct td__bucket_sum_opts {
    td_comm *comm; /* borrowed, all of them */
    td__grad_pool *blocks;
    const td_params *params;
    const int *bounds; /* of td__work_partition; NULL: all ranks have the same share */
    int micro_batches, accumulate, threads; /* threads: of this rank, that compute */
    size_t bucket_nbytes;                   /* 0: the default */
    const td__param_range *own;             /* (n_own) what is added up; NULL: all */
    int n_own;
    const char *compressor;   /* NULL: the tree */
    td__compressor_opts with; /* of the compressor; comm, params and buckets are filled in */
    bool any_bits;            /* the plain sum of compressor allreduce may be NCCL's */
    bool inline_;             /* no second thread: buckets are carried when waited for */
} td__bucket_sum_opts;

/* Where ranks have GPUs of their own and NCCL (coll/nccl/nccl.h), gradients do not leave the memory
 * of GPUs: NCCL brings the slices and the sums, which are added up there in the same tree. */

/* The calls of the tree that bring bucket k to all ranks. */
void td__bucket_sum_plan(td__planner *w, int k);

typedef struct td__bucket_sum td__bucket_sum;
/* Collective. TD_EINVAL if there is no such compressor. */
TD_NODISCARD td_status td__bucket_sum_create(const td__bucket_sum_opts *o, td__bucket_sum **out);
void td__bucket_sum_destroy(td__bucket_sum *b); /* NULL is allowed; local */

/* Step `step` (from 1); batches and last_rows as in rank_tree.h. */
TD_NODISCARD td_status td__bucket_sum_begin(td__bucket_sum *b, uint64_t step, int batches,
                                            int64_t last_rows);
/* This rank's last batch with micro-batches begins. total: partials of those before; stacks: by
 * thread, on which each thread with micro-batches lends its last one (td__grad_lend) before it
 * first says how far it is; busy: which threads have micro-batches. Stacks end up in total. */
void td__bucket_sum_open(td__bucket_sum *b, td__grad_stack *total, td__grad_stack *stacks,
                         const bool *busy);
/* Elements [0, count) of the thread's last micro-batch are final. */
void td__bucket_sum_passed(td__bucket_sum *b, int thread, size_t count);
/* All micro-batches of this rank have been run: row-sparse gradients are there as well. */
void td__bucket_sum_flush(td__bucket_sum *b);
/* The tail: add up `sums` over ranks, of which all but one give 0 for each element. Borrowed until
 * the tail has been waited for. */
void td__bucket_sum_close(td__bucket_sum *b, double *sums, size_t n_sums);

int td__bucket_sum_count(const td__bucket_sum *b); /* buckets; the tail is job number count */
td__bucket td__bucket_sum_bucket(const td__bucket_sum *b, int k);
TD_NODISCARD td_status td__bucket_sum_wait(td__bucket_sum *b, int k);
/* The sum, as far as buckets have arrived; until the next step begins. */
const float *td__bucket_sum_grads(const td__bucket_sum *b);
/* Row-sparse gradient k of the sum, after the tail; until the next step begins. */
td_sparse_grad td__bucket_sum_sparse(const td__bucket_sum *b, int k);
/* Give the step up. why: for the other ranks. */
void td__bucket_sum_cancel(td__bucket_sum *b, const char *why);

/* Of the last step: when jobs ran (count + 1 spans), and payload that this rank sent: as it was,
 * and as plain f32 would have been. */
const td__bucket_span *td__bucket_sum_spans(const td__bucket_sum *b);
void td__bucket_sum_nbytes(const td__bucket_sum *b, uint64_t *sent, uint64_t *plain);

#endif
