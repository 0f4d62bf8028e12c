/* poll_open.h -- poll(2) of those entries only that have a descriptor. The kernel counts entries of
 * -1 too, and refuses more than the limit of open files (EINVAL). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_POLL_OPEN_H
#define TD_LAUNCH_POLL_OPEN_H

#include <poll.h>

/* p: n entries, and room for as many again behind them. As poll(2). */
int td__poll_open(struct pollfd *p, int n, int ms);

#endif
