/* date.h -- what people and other hosts call the time, for files that they read. It may jump:
 * durations and deadlines are clock.h's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_DATE_H
#define TD_BASE_DATE_H

#include <time.h>

/* Seconds since 1970. */
static inline double td__unix_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
