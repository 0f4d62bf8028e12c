/* callbacks.h -- a program's callbacks (tandem/train.h) as an observer of a run. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_CALLBACKS_H
#define TD_API_CALLBACKS_H

#include <stdatomic.h>

#include "run/observer.h"
#include "tandem/train.h"

typedef struct td__callbacks {
    td__observer observer; /* first: the observer is this */
    td_callbacks to;
    atomic_int *stop;    /* set when a callback asks for it */
    const char *run_dir; /* "": none */
    int rank;
} td__callbacks;

/* stop and run_dir are borrowed. */
void td__callbacks_init(td__callbacks *c, const td_callbacks *to, atomic_int *stop,
                        const char *run_dir, int rank);

/* The library's results in public words. */
void td__metrics_fill(td_metrics *out, const td__eval_result *r);
void td__run_result_fill(td_run_result *out, const td__train_result *r, const char *run_dir);

#endif
