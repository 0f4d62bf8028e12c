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

void td__amx_enter(void)
{
    tile_config config = {.palette = 1};

    if (td__cpu_isa() < TD_ISA_AMX)
        return;
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
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
