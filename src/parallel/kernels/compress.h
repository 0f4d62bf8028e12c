/* compress.h -- the inner loops of compressed gradients, once per instruction set (base/isa.h),
 * without fused products: every set gives the same bits, so unlike machines may train together. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_KERNELS_COMPRESS_H
#define TD_PARALLEL_KERNELS_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/half.h"
#include "base/isa.h"

/* ---- Half precision -------------------------------------------------------------------------- */

TD_ISA_DECLARE(void, td__pack_bf16, (td_bf16 * y, const float *x, size_t n));
/* y = x, or y += x */
TD_ISA_DECLARE(void, td__unpack_bf16, (float *y, const td_bf16 *x, size_t n));
TD_ISA_DECLARE(void, td__add_bf16, (float *y, const td_bf16 *x, size_t n));
/* y = x scale; y = x scale, or y += x scale. Scales are powers of two. */
TD_ISA_DECLARE(void, td__pack_f16, (td_f16 * y, const float *x, float scale, size_t n));
TD_ISA_DECLARE(void, td__unpack_f16, (float *y, const td_f16 *x, float scale, size_t n));
TD_ISA_DECLARE(void, td__add_f16, (float *y, const td_f16 *x, float scale, size_t n));
/* The bits of the largest magnitude; NaN is above all. */
TD_ISA_DECLARE(uint32_t, td__largest_bits, (const float *x, size_t n));

/* ---- Signs: 32 in a word, set where the number is negative ----------------------------------- */

TD_ISA_DECLARE(float, td__sum_abs, (const float *x, size_t n));
/* sign[(n + 31) / 32] of x; x becomes what is left: x - scale where x >= 0, else x + scale. */
TD_ISA_DECLARE(void, td__pack_signs, (uint32_t * sign, float *x, float scale, size_t n));
TD_ISA_DECLARE(void, td__unpack_signs, (float *y, const uint32_t *sign, float scale, size_t n));
TD_ISA_DECLARE(void, td__add_signs, (float *y, const uint32_t *sign, float scale, size_t n));

/* ---- Top-k ----------------------------------------------------------------------------------- */

/* One step of a rank's velocity u and of what it still owes, v: g' = scale g,
 *     u = m u + g',   v += u            or, nesterov,     u = m (u + g'),   v += u + g'. */
TD_ISA_DECLARE(void, td__accumulate_velocity,
               (float *u, float *v, const float *g, float scale, float m, int nesterov, size_t n));
/* v += scale g */
TD_ISA_DECLARE(void, td__accumulate, (float *v, const float *g, float scale, size_t n));
/* Where the bits of |x| are at least `low`: index, rising; how many. */
TD_ISA_DECLARE(size_t, td__collect, (uint32_t * index, const float *x, uint32_t low, size_t n));
TD_ISA_DECLARE(double, td__sum_squares, (const float *x, size_t n));

/* ---- Low rank: m (rows, cols), p (rank, rows), q (rank, cols) -------------------------------- */

/* p = m q^T */
TD_ISA_DECLARE(void, td__low_rank_p,
               (float *p, const float *m, const float *q, size_t rows, size_t cols, int rank));
/* q = p m */
TD_ISA_DECLARE(void, td__low_rank_q,
               (float *q, const float *m, const float *p, size_t rows, size_t cols, int rank));
/* m = p^T q; m -= p^T q */
TD_ISA_DECLARE(void, td__low_rank_set,
               (float *m, const float *p, const float *q, size_t rows, size_t cols, int rank));
TD_ISA_DECLARE(void, td__low_rank_subtract,
               (float *m, const float *p, const float *q, size_t rows, size_t cols, int rank));

#endif
