/* backoff.h -- how to wait for another core or process: spin, then yield, then sleep in the kernel.
 *
 * Waking a sleeper on another core costs tens of microseconds, reading a cache line 0.2. So a
 * thread that has a core of its own spins for about that long before it sleeps. With more waiters
 * than cores ("crowded") spinning only keeps the one that is waited for from running: a few rounds,
 * then sched_yield, then sleep. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_BACKOFF_H
#define TD_NET_BACKOFF_H

#include <stdatomic.h>

#include "base/deadline.h"

typedef struct td__backoff {
    uint32_t round;
    bool crowded;
} td__backoff;

static inline td__backoff td__backoff_start(bool crowded)
{
    return (td__backoff){.crowded = crowded};
}

/* Spins or yields once and is true; false when it is time to sleep. */
bool td__backoff_pause(td__backoff *b);

/* Sleep while *word is `seen`, until `until` at most; wakes early without a reason too. */
void td__futex_wait(_Atomic uint32_t *word, uint32_t seen, td__deadline until, bool shared);
void td__futex_wake(_Atomic uint32_t *word, bool shared); /* all of them */

#endif
