/* bucket_queue.h -- a thread that carries buckets, in order, while others compute.
 *
 * A step has n jobs, 0 .. n - 1, each one call of a function. Whoever finishes the work that job k
 * needs posts it; jobs may be posted in any order, and the thread takes them in order, so that all
 * ranks make the same collective calls in the same order. Without a job it sleeps.
 *
 *     begin, post (every job once), wait (any job)        or cancel, after a failure
 *
 * After a job that failed no other is called; waiting for it or for a later one gives its status
 * and text. Waits have no deadline of their own: jobs are collective calls, which have one.
 *
 * A queue without a thread calls the jobs when they are waited for, in the waiting thread: for
 * ranks that have no processor to spare for a second thread.
 *
 * Threads   post: any, several at once. The rest: the owner's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_BUCKET_QUEUE_H
#define TD_PARALLEL_BUCKET_QUEUE_H

#include "tandem/status.h"

typedef td_status td__bucket_fn(void *user, int k);

/* When a job was posted, begun and ended: td__clock_ns(). cpu_ns: of that it had a processor. */
typedef struct td__bucket_span {
    uint64_t posted_ns, begin_ns, end_ns, cpu_ns;
} td__bucket_span;

typedef struct td__bucket_queue td__bucket_queue;
TD_NODISCARD td_status td__bucket_queue_create(int n, bool thread, td__bucket_fn *fn, void *user,
                                               td__bucket_queue **out);
void td__bucket_queue_destroy(td__bucket_queue *q); /* NULL is allowed; cancels */
/* A new step; all jobs of the last one are done or cancelled. */
void td__bucket_queue_begin(td__bucket_queue *q);
void td__bucket_queue_post(td__bucket_queue *q, int k);
/* Until job k, which has been or will be posted, is done. */
TD_NODISCARD td_status td__bucket_queue_wait(td__bucket_queue *q, int k);
/* Begin no other job, and wait for the one under way, whose collective the caller has aborted. */
void td__bucket_queue_cancel(td__bucket_queue *q);
/* Of the jobs of the last step, once they are done; n of them. */
const td__bucket_span *td__bucket_queue_spans(const td__bucket_queue *q);

#endif
