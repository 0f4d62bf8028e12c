/* narrow.c -- see narrow.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/narrow.h"

#include <math.h>
#include <string.h>

float td__f32_odd_from_f64(double d)
{
    float f = (float)d;
    uint32_t u;

    if (isnan(d) || (double)f == d)
        return f;
    memcpy(&u, &f, sizeof u);
    if (fabs((double)f) > fabs(d))
        u--; /* towards zero */
    u |= 1;
    memcpy(&f, &u, sizeof f);
    return f;
}

int64_t td__int_from_f64(double d, int64_t lo, int64_t hi)
{
    if (isnan(d))
        return 0;
    /* Compared as doubles; (double)INT64_MAX is 2^63, which is why >= is right. */
    if (d <= (double)lo)
        return lo;
    if (d >= (double)hi)
        return hi;
    return (int64_t)d;
}
