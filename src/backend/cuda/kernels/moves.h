/* moves.h -- arguments of the kernels that move elements, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_MOVES_H
#define TD_BACKEND_CUDA_KERNELS_MOVES_H

#include "backend/cuda/kernels/io.h"

/* For every index of a box: out[out_at + index . out_step] = in[in_at + index' . in_step], where
 * index' is (index - lo) / by along each axis, or `fill` where an axis has no such index'. */
typedef struct td__move_args {
    td__io io;
    long long n;
    int ndim, nbytes; /* of an element */
    long long dim[TD__IO_DIMS], in_step[TD__IO_DIMS], out_step[TD__IO_DIMS];
    long long lo[TD__IO_DIMS], hi[TD__IO_DIMS], by[TD__IO_DIMS];
    long long out_at;
    int in; /* which input */
    unsigned long long fill;
} td__move_args;

/* Rows of `lots` times 16 bytes, `in_pitch` and `out_pitch` such lots apart. */
typedef struct td__move_rows_args {
    td__io io;
    long long rows, lots, in_pitch, out_pitch;
} td__move_rows_args;

typedef struct td__one_hot_args {
    td__io io;
    long long n, depth;
    int ids, dtype;
} td__one_hot_args;

/* x seen as (outer, size, inner), the index as (outer, count, inner); other axes of x may be
 * longer than the index's. */
typedef struct td__gather_args {
    td__io io;
    long long n; /* elements of the index; back: of dx */
    int ndim, axis, nbytes, ids;
    long long x[TD__IO_DIMS], index[TD__IO_DIMS]; /* shapes */
    unsigned long long missing;                   /* what an id outside of x gives */
} td__gather_args;

#endif
