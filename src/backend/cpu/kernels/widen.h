/* widen.h -- f32 blocks from and to tensors of any floating type, for kernels that compute in f32.
 *
 * Inline, so that each instruction set gets its own code: include from files in kernels/ only. A
 * kernel works on short blocks that stay in the first-level cache; widening one costs little there.
 * Rounding is to nearest even, as in base/half.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_WIDEN_H
#define TD_BACKEND_CPU_KERNELS_WIDEN_H

#include <stdint.h>

#include "base/kernels/widen.h"
#include "tandem/types.h"

/* Elements [at, at + n) of a tensor of type f32, bf16 or f16 as floats: in place where it is f32,
 * else in buf. */
static inline const float *widen_at(float *buf, td_dtype t, const void *x, int64_t at, int64_t n)
{
    if (t == TD_F32)
        return (const float *)x + at;
    if (t == TD_BF16)
        widen_bf16(buf, (const td_bf16 *)x + at, n);
    else
        widen_f16(buf, (const td_f16 *)x + at, n);
    return buf;
}

/* Where to compute floats for elements [at, ...) of a tensor: there if it is f32, else in buf. */
static inline float *narrow_begin(float *buf, td_dtype t, void *y, int64_t at)
{
    return t == TD_F32 ? (float *)y + at : buf;
}

/* Then put the n floats of buf there, unless they already are. */
static inline void narrow_end(const float *buf, td_dtype t, void *y, int64_t at, int64_t n)
{
    if (t == TD_BF16)
        narrow_bf16((td_bf16 *)y + at, buf, n);
    else if (t == TD_F16)
        narrow_f16((td_f16 *)y + at, buf, n);
}

#endif
