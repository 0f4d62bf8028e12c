/* rows.h -- sums, products and maxima over one row of floats, for kernels that reduce rows.
 *
 * Each sum runs in 4 vectors of partial sums, added up in a fixed order at the end: fast, and the
 * same bits for the same width and instruction set. Include from files in kernels/ only. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_ROWS_H
#define TD_BACKEND_CPU_KERNELS_ROWS_H

#include <math.h>

#include "backend/cpu/kernels/vec.h"

enum { ROW_STEP = 4 * TD_VEC_LANES };

/* The lanes of v, added as a tree. */
TD_INLINE float vf_total(td__vf v)
{
    float a[TD_VEC_LANES];

    td__vf_store(a, v);
    for (int w = TD_VEC_LANES / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            a[i] += a[i + w];
    return a[0];
}

TD_INLINE td__vf vf_max(td__vf a, td__vf b)
{
    td__vi take = a > b;

    return (td__vf)(((td__vi)a & take) | ((td__vi)b & ~take));
}

/* expr(i) is a vector from element i on, tail(i) a number. */
#define ROW_SUM(total, n, expr, tail)                        \
    do {                                                     \
        td__vf s0_ = {0}, s1_ = {0}, s2_ = {0}, s3_ = {0};   \
        int64_t i_ = 0;                                      \
        for (; i_ + ROW_STEP <= (n); i_ += ROW_STEP) {       \
            s0_ += expr(i_);                                 \
            s1_ += expr(i_ + TD_VEC_LANES);                  \
            s2_ += expr(i_ + 2 * TD_VEC_LANES);              \
            s3_ += expr(i_ + 3 * TD_VEC_LANES);              \
        }                                                    \
        for (; i_ + TD_VEC_LANES <= (n); i_ += TD_VEC_LANES) \
            s0_ += expr(i_);                                 \
        (total) = vf_total((s0_ + s1_) + (s2_ + s3_));       \
        for (; i_ < (n); i_++)                               \
            (total) += tail(i_);                             \
    } while (0)

static inline float row_sum(const float *x, int64_t n)
{
    float total;

#define V(i) td__vf_load(x + (i))
#define T(i) x[i]
    ROW_SUM(total, n, V, T);
#undef V
#undef T
    return total;
}

static inline float row_dot(const float *x, const float *y, int64_t n)
{
    float total;

#define V(i) (td__vf_load(x + (i)) * td__vf_load(y + (i)))
#define T(i) (x[i] * y[i])
    ROW_SUM(total, n, V, T);
#undef V
#undef T
    return total;
}

/* sum (x - mean)^2 */
static inline float row_spread(const float *x, float mean, int64_t n)
{
    const td__vf m = td__vf_set(mean);
    float total;

#define V(i) ((td__vf_load(x + (i)) - m) * (td__vf_load(x + (i)) - m))
#define T(i) ((x[i] - mean) * (x[i] - mean))
    ROW_SUM(total, n, V, T);
#undef V
#undef T
    return total;
}

/* The largest element; NaN is passed over, -inf for an empty row. */
static inline float row_max(const float *x, int64_t n)
{
    td__vf m0 = td__vf_set(-INFINITY), m1 = m0;
    float a[TD_VEC_LANES], top = -INFINITY;
    int64_t i = 0;

    for (; i + 2 * TD_VEC_LANES <= n; i += 2 * TD_VEC_LANES) {
        m0 = vf_max(td__vf_load(x + i), m0);
        m1 = vf_max(td__vf_load(x + i + TD_VEC_LANES), m1);
    }
    td__vf_store(a, vf_max(m0, m1));
    for (int k = 0; k < TD_VEC_LANES; k++)
        top = a[k] > top ? a[k] : top;
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

#endif
