/* gemm_tile_emul.c -- the tile kernel on emulated registers: slow, for tests on any machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#define TILE_EMULATE
#include "backend/cpu/gemm_tile.h"

void td__gemm_block_tile_emul(const td__gemm_block *g)
{
    tile_block(g);
}
