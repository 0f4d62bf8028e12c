/* atomic_float.h -- floats that several threads read and write at once, with no order between
 * them: relaxed atomic operations on ordinary arrays, so that code that has an array to itself can
 * use it as one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_ATOMIC_FLOAT_H
#define TD_BASE_ATOMIC_FLOAT_H

#include <stdbool.h>

static inline float td__float_load(const float *x)
{
    float v;
    __atomic_load(x, &v, __ATOMIC_RELAXED);
    return v;
}

static inline void td__float_store(float *x, float v)
{
    __atomic_store(x, &v, __ATOMIC_RELAXED);
}

/* Nobody's addition is lost. */
static inline void td__float_add(float *x, float v)
{
    float was = td__float_load(x), sum = was + v;
    while (!__atomic_compare_exchange(x, &was, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        sum = was + v;
}

#endif
