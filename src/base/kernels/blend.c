/* blend.c -- see blend.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kernels/blend.h"

void TD_ISA_SYM(td__blend)(float *restrict y, float a, const float *restrict x, float b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * y[i] + b * x[i];
}

void TD_ISA_SYM(td__scaled_copy)(float *restrict y, const float *restrict x, float b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = b * x[i];
}
