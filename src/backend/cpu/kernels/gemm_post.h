/* gemm_post.h -- from sums to results: bias, activation, relu mask, rounding. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_GEMM_POST_H
#define TD_BACKEND_CPU_KERNELS_GEMM_POST_H

#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"

/* Finish `rows` by `cols` sums (row stride ld) into c. post's pointers and c are already moved to
 * the block's first element; c may be sums itself. */
TD_ISA_DECLARE(void, td__gemm_post_block,
               (void *c, int64_t ldc, td_dtype dtype, const float *sums, int64_t ld, int64_t rows,
                int64_t cols, const td__gemm_post *post));
void td__gemm_post_block_avx512bf16(void *c, int64_t ldc, td_dtype dtype, const float *sums,
                                    int64_t ld, int64_t rows, int64_t cols,
                                    const td__gemm_post *post);

#endif
