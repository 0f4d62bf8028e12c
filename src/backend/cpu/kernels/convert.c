/* convert.c -- see convert.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/convert.h"

#include "backend/cpu/kernels/widen.h"

void TD_ISA_SYM(td__bf16_to_f32_array)(float *y, const td_bf16 *x, int64_t n)
{
    widen_bf16(y, x, n);
}

void TD_ISA_SYM(td__f32_to_bf16_array)(td_bf16 *y, const float *x, int64_t n)
{
    narrow_bf16(y, x, n);
}
