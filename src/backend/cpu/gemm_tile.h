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

static inline void tile_block_32(const td__gemm_block *g)
{
    const bool contiguous = g->a_row == 64; /* the driver's copy: worth prefetching */
    const int64_t ldc = g->ldc * 4;
    float *c2 = g->c + 16 * g->ldc;
    TILE_REGS(t);

    if (g->accumulate) {
        TILE_LOAD(t, 0, g->c, ldc);
        TILE_LOAD(t, 1, g->c + 16, ldc);
        TILE_LOAD(t, 2, c2, ldc);
        TILE_LOAD(t, 3, c2 + 16, ldc);
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
            TILE_LOAD(t, 7, b + 64, TILE_PANEL_ROW);
            TILE_DP(t, 0, 4, 6);
            TILE_LOAD(t, 5, a + g->a_half, g->a_row);
            TILE_DP(t, 1, 4, 7);
            if (contiguous) {
                tile_prefetch(a + 2 * g->a_step);
                tile_prefetch(a + 2 * g->a_step + g->a_half);
            }
            TILE_DP(t, 2, 5, 6);
            TILE_DP(t, 3, 5, 7);
            a += g->a_step;
            b += 16 * TILE_PANEL_ROW;
        }
    }
    TILE_STORE(t, 0, g->c, ldc);
    TILE_STORE(t, 1, g->c + 16, ldc);
    TILE_STORE(t, 2, c2, ldc);
    TILE_STORE(t, 3, c2 + 16, ldc);
}

static inline void tile_block_16(const td__gemm_block *g)
{
    const int64_t ldc = g->ldc * 4;
    TILE_REGS(t);

    if (g->accumulate) {
        TILE_LOAD(t, 0, g->c, ldc);
        TILE_LOAD(t, 1, g->c + 16, ldc);
    } else {
        TILE_ZERO(t, 0);
        TILE_ZERO(t, 1);
    }
    for (int s = 0; s < g->segs; s++) {
        const char *a = g->a + g->a_off[s], *b = g->b + s * g->b_seg;
        for (int64_t u = 0; u < g->units; u += 16) {
            TILE_LOAD(t, 4, a, g->a_row);
            TILE_LOAD(t, 6, b, TILE_PANEL_ROW);
            TILE_LOAD(t, 7, b + 64, TILE_PANEL_ROW);
            TILE_DP(t, 0, 4, 6);
            TILE_DP(t, 1, 4, 7);
            a += g->a_step;
            b += 16 * TILE_PANEL_ROW;
        }
    }
    TILE_STORE(t, 0, g->c, ldc);
    TILE_STORE(t, 1, g->c + 16, ldc);
}

static inline void tile_block(const td__gemm_block *g)
{
    if (g->rows > 16)
        tile_block_32(g);
    else
        tile_block_16(g);
}

#endif
