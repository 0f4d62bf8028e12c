/* clock.h -- monotonic time in nanoseconds: for durations and deadlines, never for dates. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_CLOCK_H
#define TD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t td__clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The same clock as of the last tick, milliseconds behind, at a fifth of the cost: for timestamps
 * that people read and deadlines of whole calls. */
static inline uint64_t td__clock_coarse_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* How long the calling thread has had a processor. */
static inline uint64_t td__clock_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
