/* widen.h -- f32 blocks from and to tensors of any floating type, for kernels that compute in f32.
 *
 * Inline, so that each instruction set gets its own code: include from files in kernels/ only. A
 * kernel works on short blocks that stay in the first-level cache; widening one costs little there.
 * Rounding is to nearest even, as in base/half.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_WIDEN_H
#define TD_BACKEND_CPU_KERNELS_WIDEN_H

#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "base/half.h"
#include "tandem/types.h"

static inline void widen_bf16(float *restrict y, const td_bf16 *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = td__bf16_to_f32(x[i]);
}

static inline void narrow_bf16(td_bf16 *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = td__bf16_from_f32(x[i]);
}

static inline void widen_f16(float *restrict y, const td_f16 *restrict x, int64_t n)
{
    int64_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    for (; i < n; i++)
        y[i] = td__f16_to_f32(x[i]);
}

static inline void narrow_f16(td_f16 *restrict y, const float *restrict x, int64_t n)
{
    int64_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        y[i] = td__f16_from_f32(x[i]);
}

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
