/* gemm_tile.h -- the inner kernel of the bf16 product on tile registers, written against tile.h;
 * gemm_amx.c and gemm_tile_emul.c each make one function of it.
 *
 * Two by two tiles: registers 0..3 hold 32 x 32 elements of C, 4 and 5 two tiles of A, 6 and 7 two
 * tiles of B, so that each loaded tile is used twice: 4 loads (32 cycles) per 4 products (64
 * cycles). Loads stand as early as registers allow; the processor's renaming overlaps the next
 * block's loads with this one's products. The panel of B stays in the first-level cache across the
 * row blocks of a pass, A streams from the second level and is prefetched two blocks ahead. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_GEMM_TILE_H
#define TD_BACKEND_CPU_GEMM_TILE_H

#include "backend/cpu/gemm_impl.h"
#include "backend/cpu/tile.h"

enum { TILE_PANEL_ROW = 32 * 4 }; /* bytes of one unit row of a panel */

static inline void tile_prefetch(const char *p)
{
    for (int line = 0; line < 16; line++)
        __builtin_prefetch(p + line * 64);
}

/* `two_rows`, `two_cols`: two tiles of C that way, or one; constants at every call. */
static inline __attribute__((always_inline)) void tile_block_of(const td__gemm_block *g,
                                                                const bool two_rows,
                                                                const bool two_cols)
{
    const bool contiguous = g->a_row == 64; /* the driver's copy: worth prefetching */
    const int64_t ldc = g->ldc * 4;
    float *c0 = g->c, *c1 = g->c + 16 * g->ldc;
    TILE_REGS(t);

    if (g->accumulate) {
        TILE_LOAD(t, 0, c0, ldc);
        if (two_cols)
            TILE_LOAD(t, 1, c0 + 16, ldc);
        if (two_rows)
            TILE_LOAD(t, 2, c1, ldc);
        if (two_rows && two_cols)
            TILE_LOAD(t, 3, c1 + 16, ldc);
    } else {
        TILE_ZERO(t, 0);
        TILE_ZERO(t, 1);
        TILE_ZERO(t, 2);
        TILE_ZERO(t, 3);
    }
    for (int s = 0; s < g->segs; s++) {
        const char *a = g->a + g->a_off[s], *b = g->b + s * g->b_seg;
        for (int64_t u = 0; u < g->units; u += 16) {
            TILE_LOAD(t, 6, b, TILE_PANEL_ROW);
            TILE_LOAD(t, 4, a, g->a_row);
            if (two_cols)
                TILE_LOAD(t, 7, b + 64, TILE_PANEL_ROW);
            TILE_DP(t, 0, 4, 6);
            if (two_rows)
                TILE_LOAD(t, 5, a + g->a_half, g->a_row);
            if (two_cols)
                TILE_DP(t, 1, 4, 7);
            if (contiguous) {
                tile_prefetch(a + 2 * g->a_step);
                if (two_rows)
                    tile_prefetch(a + 2 * g->a_step + g->a_half);
            }
            if (two_rows)
                TILE_DP(t, 2, 5, 6);
            if (two_rows && two_cols)
                TILE_DP(t, 3, 5, 7);
            a += g->a_step;
            b += 16 * TILE_PANEL_ROW;
        }
    }
    TILE_STORE(t, 0, c0, ldc);
    if (two_cols)
        TILE_STORE(t, 1, c0 + 16, ldc);
    if (two_rows)
        TILE_STORE(t, 2, c1, ldc);
    if (two_rows && two_cols)
        TILE_STORE(t, 3, c1 + 16, ldc);
}

static inline void tile_block(const td__gemm_block *g)
{
    if (g->rows > 16 && !g->half)
        tile_block_of(g, true, true);
    else if (g->rows > 16)
        tile_block_of(g, true, false);
    else if (!g->half)
        tile_block_of(g, false, true);
    else
        tile_block_of(g, false, false);
}

#endif
