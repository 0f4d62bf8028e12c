/* gemm_lay_avx512bf16.c -- kernels/gemm_lay.c once more, for processors that round to bf16 in one
 * instruction. */
/* SPDX-License-Identifier: Apache-2.0 */
#define TD_ISA avx512bf16
#define TD_ISA_avx512 1
#include "backend/cpu/kernels/gemm_lay.c"
