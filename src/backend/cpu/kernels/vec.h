/* vec.h -- vectors as wide as the instruction set that the including file is compiled for.
 *
 * Plain loops vectorise well where each element is on its own. Sums over rows that keep one
 * accumulator per channel do not: the compiler will not hold an array of accumulators in registers
 * over the outer loop. There the kernels use these types (a GNU extension that GCC and Clang share
 * and lower on every target). Memory may be unaligned; bf16 is widened on load and rounded to
 * nearest even on store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_VEC_H
#define TD_BACKEND_CPU_KERNELS_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "base/half.h"

#if defined(TD_ISA_avx512)
#define TD_VEC_LANES 16
#elif defined(TD_ISA_avx2)
#define TD_VEC_LANES 8
#else
#define TD_VEC_LANES 4
#endif

typedef float td__vf __attribute__((vector_size(TD_VEC_LANES * 4)));
typedef int32_t td__vi __attribute__((vector_size(TD_VEC_LANES * 4)));
typedef uint32_t td__vu __attribute__((vector_size(TD_VEC_LANES * 4)));
typedef uint16_t td__vh __attribute__((vector_size(TD_VEC_LANES * 2)));

#define TD_INLINE static inline __attribute__((always_inline))

TD_INLINE td__vf td__vf_set(float x)
{
    return x - (td__vf){0.0f};
}

TD_INLINE td__vf td__vf_load(const float *p)
{
    td__vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

TD_INLINE void td__vf_store(float *p, td__vf v)
{
    memcpy(p, &v, sizeof v);
}

TD_INLINE td__vf td__vf_load_bf16(const td_bf16 *p)
{
    td__vh h;
    memcpy(&h, p, sizeof h);
#if defined(__AVX512F__) /* the compiler would widen halves and join them */
    return (td__vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#else
    return (td__vf)(__builtin_convertvector(h, td__vu) << 16);
#endif
}

/* v rounded to bf16, in the upper halves; the lower ones hold rubbish. */
TD_INLINE td__vu td__vf_round_bf16(td__vf v)
{
    td__vu u = (td__vu)v;
    td__vu nan = (td__vu)(v != v);
    td__vu r = u + 0x7fffu + ((u >> 16) & 1u);
    return (r & ~nan) | ((u | 0x400000u) & nan);
}

/* Pairs (lower half a, upper half b) of two vectors rounded to bf16. */
TD_INLINE td__vu td__vf_pair_bf16(td__vf a, td__vf b)
{
#if defined(__AVX512BF16__)
    const __m512i lower = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)a));
    const __m512i upper = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)b));
    return (td__vu)_mm512_or_si512(lower, _mm512_slli_epi32(upper, 16));
#else
    return td__vf_round_bf16(a) >> 16 | (td__vf_round_bf16(b) & 0xffff0000u);
#endif
}

TD_INLINE void td__vf_store_bf16(td_bf16 *p, td__vf v)
{
#if defined(__AVX512BF16__)
    __m256bh h = _mm512_cvtneps_pbh((__m512)v);
#elif defined(__AVX512F__)
    __m256i h = _mm512_cvtepi32_epi16((__m512i)(td__vf_round_bf16(v) >> 16));
#else
    td__vh h = __builtin_convertvector(td__vf_round_bf16(v) >> 16, td__vh);
#endif
    memcpy(p, &h, sizeof h);
}

/* Element i of a tensor that is bf16 or f32; `bf16` is a constant at every call, so that the branch
 * goes away. */
TD_INLINE td__vf td__vf_get(const void *p, int64_t i, int bf16)
{
    return bf16 ? td__vf_load_bf16((const td_bf16 *)p + i) : td__vf_load((const float *)p + i);
}

TD_INLINE void td__vf_put(void *p, int64_t i, td__vf v, int bf16)
{
    if (bf16)
        td__vf_store_bf16((td_bf16 *)p + i, v);
    else
        td__vf_store((float *)p + i, v);
}

TD_INLINE float td__f_get(const void *p, int64_t i, int bf16)
{
    return bf16 ? td__bf16_to_f32(((const td_bf16 *)p)[i]) : ((const float *)p)[i];
}

TD_INLINE void td__f_put(void *p, int64_t i, float v, int bf16)
{
    if (bf16)
        ((td_bf16 *)p)[i] = td__bf16_from_f32(v);
    else
        ((float *)p)[i] = v;
}

/* v where keep > 0, else 0: the mask of relu from its output. */
TD_INLINE td__vf td__vf_where_positive(td__vf keep, td__vf v)
{
    return (td__vf)((td__vi)v & (keep > 0.0f));
}

TD_INLINE td__vf td__vf_relu(td__vf v)
{
    return (td__vf)((td__vi)v & (v > 0.0f));
}

#endif
