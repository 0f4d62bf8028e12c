/* order.h -- what server 0 tells a worker: the batches to work on, and whether params come with
 * it, from all servers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_ORDER_H
#define TD_PS_ORDER_H

#include <stdint.h>

typedef struct td__ps_order {
    uint64_t step, epoch;
    int64_t batch;       /* the first one, in the epoch */
    double lr;           /* when the order was given */
    int32_t end, params; /* end: it is over; 2: and ranks were lost, so that none meet */
    int32_t acks, pad;   /* no params, but other servers say that the last push is applied */
} td__ps_order;

#endif
