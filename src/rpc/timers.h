/* timers.h -- a pairing heap of timers, linked through the timers themselves: adding is O(1),
 * removing O(log n) amortised, and nothing is allocated. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_TIMERS_H
#define TD_RPC_TIMERS_H

#include "rpc/loop.h"

/* *root is the timer that is due first; NULL for none. */
void td__timers_add(td__timer **root, td__timer *t);
void td__timers_remove(td__timer **root, td__timer *t);

#endif
