/* pieces.h -- sums of partial products in a tree (ops/op_pieces_sum.c), and the gradient of a piece
 * of the logits (ops/op_xent_piece.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_PIECES_H
#define TD_BACKEND_CPU_KERNELS_PIECES_H

#include <stdint.h>

#include "backend/cpu/isa.h"
#include "tandem/types.h"

/* y may be x[0] where that is f32. */
typedef void td__pieces_sum_fn(float *y, const void *const *x, int n, td_dtype t, int64_t count);
TD_ISA_DECLARE(void, td__pieces_sum,
               (float *y, const void *const *x, int n, td_dtype t, int64_t count));

/* dx = dlse exp(x - lse) + dsum by row; dsum NULL: 0. dx may be x. */
typedef void td__xent_piece_back_fn(float *dx, const float *x, const float *lse, const float *dlse,
                                    const float *dsum, int64_t rows, int64_t width);
TD_ISA_DECLARE(void, td__xent_piece_back,
               (float *dx, const float *x, const float *lse, const float *dlse, const float *dsum,
                int64_t rows, int64_t width));

#endif
