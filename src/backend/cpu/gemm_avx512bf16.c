/* gemm_avx512bf16.c -- the inner kernel of the bf16 product with vdpbf16ps: as kernels/gemm_f32.c,
 * with two neighbours along k in each 32-bit lane. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "backend/cpu/gemm_impl.h"

enum { MAX_ROWS = 14, VECS = 2, PANEL = 32, LINE = 16 /* units of a cache line */ };

typedef int pair_any __attribute__((aligned(2), may_alias));

static inline __attribute__((always_inline)) void block(const td__gemm_block *g, const int rows,
                                                        const int vecs)
{
    __m512 acc[MAX_ROWS][VECS];
    const int64_t row = g->a_row, step = g->a_step;

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            _mm_prefetch((const char *)(g->c + r * g->ldc + v * 16), _MM_HINT_T0);
            acc[r][v] = _mm512_setzero_ps();
        }
    for (int s = 0; s < g->segs; s++) {
        const char *a = g->a + g->a_off[s];
        const char *b = g->b + s * g->b_seg;
        const char *third[TD__GEMM_THIRDS];
#pragma GCC unroll 5
        for (int i = 0; i < (rows + 2) / 3; i++)
            third[i] = a + 3 * i * row;
        for (int64_t left = g->units; left > 0; left -= LINE) {
            if (g->a_ahead) {
#pragma GCC unroll 16
                for (int r = 0; r < rows; r++)
                    _mm_prefetch(third[r / 3] + r % 3 * row + g->a_ahead, _MM_HINT_T0);
            }
#pragma GCC unroll 4
            for (int64_t u = left < LINE ? left : LINE; u > 0; u--, b += PANEL * 4) {
                __m512bh bv[VECS];
#pragma GCC unroll 2
                for (int v = 0; v < vecs; v++)
                    bv[v] = (__m512bh)_mm512_load_si512(b + v * 64);
#pragma GCC unroll 16
                for (int r = 0; r < rows; r++) {
                    const pair_any *pair = (const pair_any *)(third[r / 3] + r % 3 * row);
                    const __m512bh av = (__m512bh)_mm512_set1_epi32(*pair);
#pragma GCC unroll 2
                    for (int v = 0; v < vecs; v++)
                        acc[r][v] = _mm512_dpbf16_ps(acc[r][v], av, bv[v]);
                }
#pragma GCC unroll 5
                for (int i = 0; i < (rows + 2) / 3; i++)
                    third[i] += step;
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            float *c = g->c + r * g->ldc + v * 16;
            if (g->accumulate)
                acc[r][v] = _mm512_add_ps(acc[r][v], _mm512_loadu_ps(c));
            _mm512_storeu_ps(c, acc[r][v]);
        }
}

#define ROWS(n)                                    \
    static void block_##n(const td__gemm_block *g) \
    {                                              \
        block(g, n, VECS);                         \
    }                                              \
    static void half_##n(const td__gemm_block *g)  \
    {                                              \
        block(g, n, VECS / 2);                     \
    }
/* clang-format off */
ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7)
ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
    /* clang-format on */

    /* By rows, then whole and half panels. */
    static td__gemm_block_fn *const BLOCKS[MAX_ROWS + 1][2] = {
        {NULL, NULL},        {block_1, half_1},   {block_2, half_2},   {block_3, half_3},
        {block_4, half_4},   {block_5, half_5},   {block_6, half_6},   {block_7, half_7},
        {block_8, half_8},   {block_9, half_9},   {block_10, half_10}, {block_11, half_11},
        {block_12, half_12}, {block_13, half_13}, {block_14, half_14},
};

void td__gemm_block_avx512bf16(const td__gemm_block *g)
{
    BLOCKS[g->rows][g->half](g);
}
