/* gemm_lay.h -- laying out the factors of a matrix product: rounding, pairing, transposing.
 *
 * The source is a matrix of elements (k, x), x being B's columns or A's rows, contiguous along one
 * of the two. The target holds 32-bit units in rows: B wants a row per unit, running along x; A
 * wants a row per x, running along units. Where the two directions differ, blocks of 16 x 16 units
 * are transposed in registers. Whatever the source does not have is zero in the target. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_GEMM_LAY_H
#define TD_BACKEND_CPU_KERNELS_GEMM_LAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

/* From source element to unit. */
typedef enum td__gemm_unit {
    TD__UNIT_F32_FROM_F32,
    TD__UNIT_F32_FROM_BF16, /* widened */
    TD__UNIT_F32_ROUNDED,   /* an f32 rounded to bf16, and widened again */
    TD__UNIT_PAIR_FROM_BF16,
    TD__UNIT_PAIR_FROM_F32 /* rounded */
} td__gemm_unit;

typedef struct td__gemm_lay {
    td__gemm_unit unit;
    const void *src;
    int64_t ld;       /* elements of the source from line to line */
    bool src_along_k; /* the source is contiguous along k */
    int64_t k, x;     /* elements that the source has */
    void *dst;
    bool dst_along_k;  /* rows of the target run along units (A), else along x (B) */
    int64_t units, xs; /* target size, padding included. Rows are written in pieces of 16, the
                               last one whole: the target must have room for that */
    int64_t row;       /* bytes from row to row of the target within a block of 16 rows */
    int64_t u16, x16;  /* bytes from block to block along units and along x */
} td__gemm_lay;

TD_ISA_DECLARE(void, td__gemm_lay_out, (const td__gemm_lay *l));
void td__gemm_lay_out_avx512bf16(const td__gemm_lay *l);

#endif
