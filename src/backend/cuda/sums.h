/* sums.h -- sums over columns as actions of a kernel (plan_reduce.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_SUMS_H
#define TD_BACKEND_CUDA_SUMS_H

#include "backend/cuda/cuda.h"

/* In how many parts rows of this many columns are summed; the same on every GPU. */
int td__cuda_splits(int64_t rows, int64_t columns);
/* Elements of 16 bytes. */
static inline int td__cuda_lot(td_dtype t)
{
    return t == TD_BF16 ? 8 : 4;
}
/* Blocks for columns by splits: of kernels/columns.cuh for lots of that many elements; 0: one
 * thread per column. */
td__cuda_grid td__cuda_grid_columns(int64_t columns, int lot, int splits);
/* Bytes of scratch for td__cuda_add_column_sums(). */
size_t td__cuda_column_scratch(int64_t rows, int64_t columns);
/* to (columns) of out_dtype = sums over rows of from (rows, columns); scratch from that offset. */
TD_NODISCARD td_status td__cuda_add_column_sums(td__cuda *b, td_kernel *k, td__cuda_at from,
                                                td_dtype dtype, int64_t rows, int64_t columns,
                                                td__cuda_at to, td_dtype out_dtype, size_t scratch);
/* to[i] (columns) = the sum of `splits` rows of f32 at from[i], for n = 1 or 2 arrays. */
TD_NODISCARD td_status td__cuda_add_finish(td__cuda *b, td_kernel *k, const td__cuda_at from[2],
                                           int n, int splits, int64_t columns,
                                           const td__cuda_at to[2], td_dtype out_dtype);

#endif
