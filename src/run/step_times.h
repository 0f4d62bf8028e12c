/* step_times.h -- where the time of a step went. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_STEP_TIMES_H
#define TD_RUN_STEP_TIMES_H

#include <stdint.h>

/* On this rank, in seconds, and what it sent. */
typedef struct td__step_times {
    double compute; /* micro-batches, and the sum of this rank's gradients */
    double reduce;  /* adding up over ranks: a thread beside compute, or this one after it */
    double busy;    /* of reduce: what its thread had a processor for */
    double wait;    /* after compute, for other ranks or for buckets that have not arrived */
    double update;
    uint64_t sent_nbytes;  /* payload of gradients to other ranks (as messages) */
    uint64_t plain_nbytes; /* what plain f32 would have been */
} td__step_times;

#endif
