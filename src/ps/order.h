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
    int32_t end, params; /* end: it is over */
} td__ps_order;

#endif
