/* gemm_lay.c -- see gemm_lay.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/gemm_lay.h"

#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "backend/cpu/kernels/turn16.h"
#include "base/half.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct units16 {
    _Alignas(64) uint32_t v[16];
} units16;

INLINE bool is_pair(td__gemm_unit unit)
{
    return unit == TD__UNIT_PAIR_FROM_BF16 || unit == TD__UNIT_PAIR_FROM_F32;
}

INLINE size_t src_size(td__gemm_unit unit)
{
    return unit == TD__UNIT_F32_FROM_BF16 || unit == TD__UNIT_PAIR_FROM_BF16 ? 2 : 4;
}

/* Round an f32, given by its bits, to bf16 in the low half. No branch for NaN, so that loops
 * vectorise; a select keeps it quiet. */
INLINE uint32_t round_bits(uint32_t u)
{
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;

    return (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded;
}

#if defined(__AVX512BF16__)
/* Two times 16 floats, rounded: the first 16 in the lower half. */
INLINE __m512i round_32(const void *first, const void *second)
{
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
}
#endif

/* 16 whole units that follow one another along k in one line of the source. */
INLINE void along_whole(uint32_t *restrict out, const void *restrict src, td__gemm_unit unit)
{
    const uint32_t *w = src;
    const uint16_t *h = src;

    switch (unit) {
    case TD__UNIT_F32_FROM_F32:
    case TD__UNIT_PAIR_FROM_BF16: memcpy(out, src, 64); break;
    case TD__UNIT_F32_FROM_BF16:
        for (int i = 0; i < 16; i++)
            out[i] = (uint32_t)h[i] << 16;
        break;
    case TD__UNIT_F32_ROUNDED:
        for (int i = 0; i < 16; i++)
            out[i] = round_bits(w[i]) << 16;
        break;
    case TD__UNIT_PAIR_FROM_F32:
#if defined(__AVX512BF16__)
        _mm512_storeu_si512(out, round_32(w, w + 16));
#else
        for (int i = 0; i < 16; i++)
            out[i] = round_bits(w[2 * i]) | round_bits(w[2 * i + 1]) << 16;
#endif
        break;
    }
}

/* The same when the line has only n elements left (n may be 0). */
INLINE void along(uint32_t *restrict out, const void *restrict src, int64_t n, td__gemm_unit unit)
{
    const int64_t whole = is_pair(unit) ? 32 : 16;
    _Alignas(64) unsigned char line[128] = {0};

    if (n >= whole) {
        along_whole(out, src, unit);
        return;
    }
    if (n > 0)
        memcpy(line, src, (size_t)n * src_size(unit));
    along_whole(out, line, unit);
}

/* One unit each of 16 neighbours along x: element j of line s0, paired with that of s1. */
INLINE void across_whole(uint32_t *restrict out, const void *s0, const void *s1, td__gemm_unit unit)
{
    const uint32_t *w0 = s0, *w1 = s1;
    const uint16_t *h0 = s0, *h1 = s1;

    switch (unit) {
    case TD__UNIT_F32_FROM_F32:
    case TD__UNIT_F32_FROM_BF16:
    case TD__UNIT_F32_ROUNDED: along_whole(out, s0, unit); break;
    case TD__UNIT_PAIR_FROM_BF16:
        for (int i = 0; i < 16; i++)
            out[i] = (uint32_t)h0[i] | (uint32_t)h1[i] << 16;
        break;
    case TD__UNIT_PAIR_FROM_F32:
#if defined(__AVX512BF16__)
        /* Interleave the halves: word i of the first with word i of the second. */
        _mm512_storeu_si512(
            out, _mm512_permutexvar_epi16(_mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11,
                                                           26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                                           5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0),
                                          round_32(w0, w1)));
#else
        for (int i = 0; i < 16; i++)
            out[i] = round_bits(w0[i]) | round_bits(w1[i]) << 16;
#endif
        break;
    }
}

/* The same with n <= 16 neighbours left and with s0, s1 NULL where the source has no such line. */
INLINE void across(uint32_t *restrict out, const void *s0, const void *s1, int64_t n,
                   td__gemm_unit unit)
{
    _Alignas(64) unsigned char l0[64] = {0}, l1[64] = {0};

    if (n >= 16 && s0 && (s1 || !is_pair(unit))) {
        across_whole(out, s0, s1, unit);
        return;
    }
    if (n > 16)
        n = 16;
    if (s0 && n > 0)
        memcpy(l0, s0, (size_t)n * src_size(unit));
    if (s1 && n > 0)
        memcpy(l1, s1, (size_t)n * src_size(unit));
    across_whole(out, l0, l1, unit);
}

/* Source and target run the same way: line by line, whole pieces first, then what is left. */
INLINE void lay_straight(const td__gemm_lay *l, const td__gemm_unit unit)
{
    const int64_t per = is_pair(unit) ? 2 : 1, elem = (int64_t)src_size(unit);
    const int64_t line = l->ld * elem;
    const char *src = l->src;

    if (l->src_along_k) {
        const int64_t pieces = (l->units + 15) / 16;
        for (int64_t x = 0; x < l->xs; x++) {
            const int64_t whole = x < l->x ? l->k / (16 * per) : 0;
            char *dst = (char *)l->dst + x / 16 * l->x16 + x % 16 * l->row;
            const char *s = src + x * line;
            int64_t i = 0;
            for (; i < whole && i < pieces; i++)
                along_whole((uint32_t *)(void *)(dst + i * l->u16), s + i * 16 * per * elem, unit);
            for (; i < pieces; i++)
                along((uint32_t *)(void *)(dst + i * l->u16), s + i * 16 * per * elem,
                      x < l->x ? l->k - i * 16 * per : 0, unit);
        }
        return;
    }
    const int64_t pieces = (l->xs + 15) / 16;
    for (int64_t u = 0; u < l->units; u++) {
        const int64_t k = u * per, whole = k + per <= l->k ? l->x / 16 : 0;
        char *dst = (char *)l->dst + u / 16 * l->u16 + u % 16 * l->row;
        const char *s = src + k * line;
        int64_t i = 0;
        for (; i < whole && i < pieces; i++)
            across_whole((uint32_t *)(void *)(dst + i * l->x16), s + i * 16 * elem,
                         s + line + i * 16 * elem, unit);
        for (; i < pieces; i++)
            across((uint32_t *)(void *)(dst + i * l->x16), k < l->k ? s + i * 16 * elem : NULL,
                   k + 1 < l->k ? s + line + i * 16 * elem : NULL, l->x - i * 16, unit);
    }
}

/* They cross: blocks of 16 x 16 units are read line by line and written transposed. Units that are
 * just the source's bytes are read in place. */
INLINE void lay_crossed(const td__gemm_lay *l, const td__gemm_unit unit)
{
    const int64_t per = is_pair(unit) ? 2 : 1, elem = (int64_t)src_size(unit);
    const int64_t line = l->ld * elem;
    const bool same =
        unit == TD__UNIT_F32_FROM_F32 || (l->src_along_k && unit == TD__UNIT_PAIR_FROM_BF16);
    const char *src = l->src;

    for (int64_t x = 0; x < l->xs; x += 16)
        for (int64_t u = 0; u < l->units; u += 16) {
            char *dst = (char *)l->dst + u / 16 * l->u16 + x / 16 * l->x16;
            const int64_t k = u * per;
            const int64_t rows = l->dst_along_k ? l->xs - x : l->units - u;
            const bool whole = l->x - x >= 16 && l->k - k >= 16 * per;
            units16 t[16];
            const void *from[16];

            for (int64_t i = 0; i < 16; i++) {
                const int64_t ki = k + i * per;
                const char *s =
                    l->src_along_k ? src + (x + i) * line + k * elem : src + ki * line + x * elem;
                from[i] = t[i].v;
                if (same && whole) {
                    from[i] = s;
                    __builtin_prefetch(s + 512);
                } else if (l->src_along_k)
                    along(t[i].v, s, x + i < l->x ? l->k - k : 0, unit);
                else
                    across(t[i].v, ki < l->k ? s : NULL, ki + 1 < l->k ? s + line : NULL, l->x - x,
                           unit);
            }
            if (rows >= 16)
                td__turn16(dst, l->row, 16, from);
            else
                td__turn16(dst, l->row, (int)rows, from);
        }
}

INLINE void lay(const td__gemm_lay *l, const td__gemm_unit unit)
{
    if (l->src_along_k == l->dst_along_k)
        lay_straight(l, unit);
    else
        lay_crossed(l, unit);
}

void TD_ISA_SYM(td__gemm_lay_out)(const td__gemm_lay *l)
{
    switch (l->unit) {
    case TD__UNIT_F32_FROM_F32: lay(l, TD__UNIT_F32_FROM_F32); break;
    case TD__UNIT_F32_FROM_BF16: lay(l, TD__UNIT_F32_FROM_BF16); break;
    case TD__UNIT_F32_ROUNDED: lay(l, TD__UNIT_F32_ROUNDED); break;
    case TD__UNIT_PAIR_FROM_BF16: lay(l, TD__UNIT_PAIR_FROM_BF16); break;
    case TD__UNIT_PAIR_FROM_F32: lay(l, TD__UNIT_PAIR_FROM_F32); break;
    }
}
