/* widen.h -- arrays of bf16 and f16 to f32 and back.
 *
 * Inline, so that each instruction set gets its own code: include from files in kernels/ only.
 * Rounding is to nearest even, as in base/half.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_KERNELS_WIDEN_H
#define TD_BASE_KERNELS_WIDEN_H

#include <stdint.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "base/half.h"

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

#endif
