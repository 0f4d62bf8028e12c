/* pool.h -- compute threads: started once, parked between calls.
 *
 * td__pool_run calls a function once on each of T threads and returns when all of them are done;
 * the caller is thread 0, so that a pool of one has no threads and costs nothing. The work is
 * this process's own arithmetic, which always ends; hence no deadline.
 *
 * Threads   One call at a time, always from the thread that made the pool. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_POOL_H
#define TD_STEP_POOL_H

#include "tandem/status.h"

typedef struct td__pool td__pool;
typedef td_status td__pool_fn(void *user, int thread);

/* threads: 0 means one per processor that this process may use. */
TD_NODISCARD td_status td__pool_create(int threads, td__pool **out);
void td__pool_destroy(td__pool *p); /* NULL is allowed */
int td__pool_threads(const td__pool *p);
/* The failure of the lowest thread, with its text, if there was one. */
TD_NODISCARD td_status td__pool_run(td__pool *p, td__pool_fn *fn, void *user);

#endif
