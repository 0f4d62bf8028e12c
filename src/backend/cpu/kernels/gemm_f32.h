/* gemm_f32.h -- the inner kernel of the f32 matrix product: registers hold a block of C. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_GEMM_F32_H
#define TD_BACKEND_CPU_KERNELS_GEMM_F32_H

#include "backend/cpu/gemm_impl.h"
#include "backend/cpu/isa.h"

/* Rows and columns of the largest block, by instruction set: as many accumulators as the register
 * file leaves beside one row of B and one broadcast element of A. */
enum {
    TD__GEMM_ROWS_scalar = 3,
    TD__GEMM_ROWS_avx2 = 6,
    TD__GEMM_ROWS_avx512 = 14,
    TD__GEMM_PANEL_scalar = 16,
    TD__GEMM_PANEL_avx2 = 16,
    TD__GEMM_PANEL_avx512 = 32
};

TD_ISA_DECLARE(void, td__gemm_block_f32, (const td__gemm_block *g));

#endif
