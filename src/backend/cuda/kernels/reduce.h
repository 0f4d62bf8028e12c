/* reduce.h -- arguments of the reductions, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_REDUCE_H
#define TD_BACKEND_CUDA_KERNELS_REDUCE_H

#include "backend/cuda/kernels/io.h"

enum td__reduce_op { TD__REDUCE_SUM, TD__REDUCE_MAX };

/* in[0] -> out[0]. Where the elements of a result lie: kept axes say which result, reduced axes
 * which element of it. */
typedef struct td__reduce_args {
    td__io io;
    long long results, count, per_split; /* count: elements of a result */
    int op, splits, out_dtype;
    int n_kept, n_reduced;
    long long kept[TD__IO_DIMS], kept_step[TD__IO_DIMS];
    long long reduced[TD__IO_DIMS], reduced_step[TD__IO_DIMS];
    float scale; /* of the result */
} td__reduce_args;

/* partial (splits, results) f32 in in[0] -> out[0], and in[1] -> out[1] in a grid of two rows */
typedef struct td__finish_args {
    td__io io;
    long long results;
    int op, splits, out_dtype;
    float scale;
} td__finish_args;

/* x as (outer, size, inner); argmax -> i32 */
typedef struct td__argmax_args {
    td__io io;
    long long outer, size, inner;
} td__argmax_args;

#endif
