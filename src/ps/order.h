/* order.h -- what server 0 tells a worker: the batches to work on, and whether params come with
 * it, from all servers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_ORDER_H
#define TD_PS_ORDER_H

#include <stdint.h>

/* How it is over for ranks beside server 0. */
typedef enum td__ps_end {
    TD__PS_GOES_ON,
    TD__PS_ENDS,    /* the run is, and all meet; */
    TD__PS_ALONE,   /* ranks were lost, so that none meet */
    TD__PS_RESIZED, /* the generation is */
} td__ps_end;

typedef struct td__ps_order {
    uint64_t step, epoch;
    int64_t batch;       /* the first one, in the epoch */
    double lr;           /* when the order was given */
    int32_t end, params; /* end: a td__ps_end */
    int32_t acks;        /* no params, but other servers say that the last push is applied */
    int32_t afresh;      /* its last push was left: what it has added up since is dropped too */
    int32_t pushes;      /* what it has added up, with this batch, whatever n_push says */
} td__ps_order;

#endif
