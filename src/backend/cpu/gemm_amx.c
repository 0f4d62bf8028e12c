/* gemm_amx.c -- the tile kernel on AMX, and the tile configuration of a thread.
 *
 * One configuration serves all kernels: palette 1, eight tiles of 16 rows by 64 bytes. Edges are
 * padded with zeros instead of being configured, since loading a configuration costs as much as
 * dozens of tile products and clears the registers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_tile.h"

/* The memory form of a tile configuration, as the instruction reads it. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "ldtilecfg reads 64 bytes");

/* Constant data, not a local: compilers have taken ldtilecfg to read 8 bytes only, and dropped the
 * stores to the rest. */
_Alignas(64) static const tile_config CONFIG = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

void td__amx_enter(void)
{
    if (td__cpu_isa() >= TD_ISA_AMX)
        _tile_loadconfig(&CONFIG);
}

void td__amx_leave(void)
{
    if (td__cpu_isa() >= TD_ISA_AMX)
        _tile_release();
}

void td__gemm_block_amx(const td__gemm_block *g)
{
    tile_block(g);
}
