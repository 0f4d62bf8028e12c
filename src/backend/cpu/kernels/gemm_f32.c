/* gemm_f32.c -- see gemm_f32.h.
 *
 * For each k: load one row of the panel (a few vectors), broadcast the elements of A one after the
 * other, multiply-add into the accumulators. Vector types of the compiler keep one source for all
 * instruction sets; loops over rows have constant bounds and are unrolled whole, so that the
 * accumulators live in registers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/gemm_f32.h"

#include <stddef.h>

#if defined(TD_ISA_avx512)
#define LANES 16
#elif defined(TD_ISA_avx2)
#define LANES 8
#else
#define LANES 4
#endif
enum {
    MAX_ROWS = TD_ISA_PASTE(TD__GEMM_ROWS, TD_ISA),
    PANEL = TD_ISA_PASTE(TD__GEMM_PANEL, TD_ISA),
    VECS = PANEL / LANES,
    LINE = 16 /* units of a cache line */
};

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float vec_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline __attribute__((always_inline)) void block(const td__gemm_block *g, const int rows,
                                                        const int vecs)
{
    vec acc[MAX_ROWS][VECS];
    const int64_t row = g->a_row / (int64_t)sizeof(float);
    const int64_t step = g->a_step / (int64_t)sizeof(float);

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            __builtin_prefetch(g->c + r * g->ldc + v * LANES, 1);
            acc[r][v] = (vec){0};
        }
    for (int s = 0; s < g->segs; s++) {
        const float *a = (const float *)(g->a + g->a_off[s]);
        const float *b = (const float *)(g->b + s * g->b_seg);
        const float *third[TD__GEMM_THIRDS];
#pragma GCC unroll 5
        for (int i = 0; i < (rows + 2) / 3; i++)
            third[i] = a + 3 * i * row;
        for (int64_t left = g->units; left > 0; left -= LINE) {
            if (g->a_ahead) {
#pragma GCC unroll 16
                for (int r = 0; r < rows; r++)
                    __builtin_prefetch((const char *)(third[r / 3] + r % 3 * row) + g->a_ahead);
            }
#pragma GCC unroll 4
            for (int64_t u = left < LINE ? left : LINE; u > 0; u--, b += g->b_row) {
                vec bv[VECS];
#pragma GCC unroll 4
                for (int v = 0; v < vecs; v++)
                    bv[v] = *(const vec_any *)(b + v * LANES);
#pragma GCC unroll 16
                for (int r = 0; r < rows; r++) {
                    const vec av = third[r / 3][r % 3 * row] - (vec){0};
#pragma GCC unroll 4
                    for (int v = 0; v < vecs; v++)
                        acc[r][v] += av * bv[v];
                }
#pragma GCC unroll 5
                for (int i = 0; i < (rows + 2) / 3; i++)
                    third[i] += step;
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            vec_any *c = (vec_any *)(g->c + r * g->ldc + v * LANES);
            if (g->accumulate)
                acc[r][v] += *c;
            *c = acc[r][v];
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
ROWS(1) ROWS(2) ROWS(3)
#if !defined(TD_ISA_scalar)
ROWS(4) ROWS(5) ROWS(6)
#endif
#if defined(TD_ISA_avx512)
ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
#endif

/* By rows, then whole and half panels. */
static td__gemm_block_fn *const BLOCKS[MAX_ROWS + 1][2] = {
    {NULL, NULL},         {block_1, half_1},    {block_2, half_2},    {block_3, half_3},
#if !defined(TD_ISA_scalar)
    {block_4, half_4},    {block_5, half_5},    {block_6, half_6},
#endif
#if defined(TD_ISA_avx512)
    {block_7, half_7},    {block_8, half_8},    {block_9, half_9},    {block_10, half_10},
    {block_11, half_11},  {block_12, half_12},  {block_13, half_13},  {block_14, half_14},
#endif
};
/* clang-format on */

void TD_ISA_SYM(td__gemm_block_f32)(const td__gemm_block *g)
{
    BLOCKS[g->rows][g->half](g);
}
