/* io.h -- what the argument of every kernel of the backend begins with, for C and CUDA: the
 * addresses of one call. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_IO_H
#define TD_BACKEND_CUDA_KERNELS_IO_H

/* The key of a run; the same bytes as td_run_ctx. */
typedef struct td__io_key {
    unsigned long long seed;
    unsigned step, micro_batch;
} td__io_key;

enum { TD__IO_IN = 16, TD__IO_OUT = 6, TD__IO_DIMS = 6 };
typedef struct td__io {
    const void *in[TD__IO_IN];
    void *out[TD__IO_OUT];
    void *scratch;
    const td__io_key *key;
} td__io;

/* An image tensor: sizes (N, C, H, W), and steps along them in elements. */
typedef struct td__image {
    long long dim[4], step[4];
} td__image;

/* Types of elements, numbered as td_dtype. */
enum td__io_dtype {
    TD__IO_F32,
    TD__IO_BF16,
    TD__IO_F16,
    TD__IO_F64,
    TD__IO_I32,
    TD__IO_I64,
    TD__IO_U8,
    TD__IO_BOOL
};

#endif
