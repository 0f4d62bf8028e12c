/* work.h -- threads for what may block, so that the loop does not: files, programs, other servers.
 * Work is done in the order in which it was handed in, by at most so many threads at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_WORK_H
#define TD_RPC_WORK_H

#include "rpc/loop.h"

typedef struct td__work_threads td__work_threads;

/* In the caller's storage until `done` is called. */
typedef struct td__work {
    void (*run)(void *arg);                /* on a thread of the workers */
    void (*done)(void *arg, bool was_run); /* on the loop thread, once */
    void *arg;
    bool was_run; /* kept by the workers, as is the link */
    struct td__work *next;
} td__work;

TD_NODISCARD td_status td__work_threads_create(td__loop *l, int n_threads, td__work_threads **out);
/* Waits for what is being run, drops the rest; `done` is called for all of it. NULL is allowed. */
void td__work_threads_destroy(td__work_threads *w);
void td__work_threads_add(td__work_threads *w, td__work *work);

#endif
