/* deadline.h -- absolute monotonic times at which waiting ends. Every wait of the library has one;
 * TD_DEADLINE_NEVER is for background threads that are woken otherwise. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_DEADLINE_H
#define TD_BASE_DEADLINE_H

#include "base/clock.h"
#include "tandem/types.h"

typedef uint64_t td__deadline; /* td__clock_ns() at which time is up */
#define TD_DEADLINE_NEVER UINT64_MAX

static inline td__deadline td__deadline_in_ms(uint64_t ms)
{
    return td__clock_ns() + ms * 1000000u;
}

static inline bool td__deadline_passed(td__deadline d)
{
    return d != TD_DEADLINE_NEVER && td__clock_ns() >= d;
}

/* Nanoseconds left: 0 when passed. */
static inline uint64_t td__deadline_left_ns(td__deadline d)
{
    if (d == TD_DEADLINE_NEVER)
        return UINT64_MAX;
    uint64_t now = td__clock_ns();
    return now >= d ? 0 : d - now;
}

/* For poll and epoll: milliseconds left, rounded up, at most `most`; -1 never comes out. */
static inline int td__deadline_left_ms(td__deadline d, int most)
{
    uint64_t ns = td__deadline_left_ns(d);
    return ns >= (uint64_t)most * 1000000u ? most : (int)((ns + 999999u) / 1000000u);
}

#endif
