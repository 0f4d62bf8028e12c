/* tile.h -- tile registers: eight of 16 rows by 64 bytes, and the bf16 product of two of them.
 *
 * Two implementations with the same meaning. The real one maps to AMX instructions (the thread must
 * hold the configuration of td__amx_enter). The other, chosen by defining TILE_EMULATE before
 * including this, keeps the registers in a struct and computes in plain C, so that everything
 * around the instructions (blocking, packing, edges) is tested on any machine.
 *
 *   TILE_REGS(t)              declares the register file t (nothing for the real ones)
 *   TILE_ZERO(t, c)
 *   TILE_LOAD(t, r, p, row)   16 rows of 64 bytes from p, `row` bytes apart
 *   TILE_STORE(t, r, p, row)
 *   TILE_DP(t, c, a, b)       c (16, 16) f32 += a (16, 16 pairs) * b (16 pairs, 16), pairs of bf16
 *
 * Register numbers are constants. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_TILE_H
#define TD_BACKEND_CPU_TILE_H

#ifndef TILE_EMULATE

#include <immintrin.h>

#define TILE_REGS(t) ((void)0)
#define TILE_ZERO(t, c) _tile_zero(c)
#define TILE_LOAD(t, r, p, row) _tile_loadd(r, (p), (row))
#define TILE_STORE(t, r, p, row) _tile_stored(r, (p), (row))
#define TILE_DP(t, c, a, b) _tile_dpbf16ps(c, a, b)

#else

#include <string.h>

#include "base/half.h"

typedef union tile {
    float f[16][16];
    td_bf16 h[16][16][2];
    unsigned char bytes[16][64];
} tile;

static inline void tile_load(tile *t, const void *p, int64_t row)
{
    for (int r = 0; r < 16; r++)
        memcpy(t->bytes[r], (const char *)p + r * row, 64);
}

static inline void tile_store(const tile *t, void *p, int64_t row)
{
    for (int r = 0; r < 16; r++)
        memcpy((char *)p + r * row, t->bytes[r], 64);
}

static inline void tile_dp(tile *c, const tile *a, const tile *b)
{
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++)
                for (int i = 0; i < 2; i++)
                    c->f[m][n] += td__bf16_to_f32(a->h[m][k][i]) * td__bf16_to_f32(b->h[k][n][i]);
}

#define TILE_REGS(t) tile t[8]
#define TILE_ZERO(t, c) memset(&(t)[c], 0, sizeof(tile))
#define TILE_LOAD(t, r, p, row) tile_load(&(t)[r], (p), (row))
#define TILE_STORE(t, r, p, row) tile_store(&(t)[r], (p), (row))
#define TILE_DP(t, c, a, b) tile_dp(&(t)[c], &(t)[a], &(t)[b])

#endif
#endif
