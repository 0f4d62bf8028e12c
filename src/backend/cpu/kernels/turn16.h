/* turn16.h -- the transpose of 16 rows of 16 words of 32 bits, in registers where they suffice. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_TURN16_H
#define TD_BACKEND_CPU_KERNELS_TURN16_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* The first n <= 16 words of the 16 rows at from[] become n rows of 16 words, `row` bytes apart. */
#if defined(__AVX512F__)
static inline __attribute__((always_inline)) void td__turn16(void *to, int64_t row, int n,
                                                             const void *const *from)
{
    const __mmask16 columns = (__mmask16)((1u << n) - 1u);
    __m512i a[16], b[16];

    /* Exchange halves of pairs of rows: 32-bit, then 64-bit pieces within 128-bit lanes... */
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_maskz_loadu_epi32(columns, from[i]);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    /* ...a[4 g + j] then holds, in lane l, column 4 l + j of rows 4 g .. 4 g + 3: the lanes. */
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        b[j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88); /* lanes 0, 2 of rows 0 .. 7 */
        b[4 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
        b[8 + j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd); /* lanes 1, 3 */
        b[12 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        a[j] = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
        a[8 + j] = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
        a[4 + j] = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
        a[12 + j] = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        if (i < n)
            _mm512_storeu_si512((char *)to + i * row, a[i]);
}
#else
static inline void td__turn16(void *to, int64_t row, int n, const void *const *from)
{
    for (int i = 0; i < n; i++) {
        uint32_t line[16];
        for (int j = 0; j < 16; j++)
            memcpy(&line[j], (const char *)from[j] + i * 4, 4);
        memcpy((char *)to + i * row, line, 64);
    }
}
#endif

#endif
