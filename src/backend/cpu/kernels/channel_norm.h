/* channel_norm.h -- the loops under batch_norm and group_norm: per-channel sums and maps over a
 * matrix (rows, channels) in memory order, which is what an NHWC tensor is.
 *
 * Tensors x, y, dy, dx, residual are all f32 or all bf16. Vectors over channels are f32; sums come
 * back in double. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_CHANNEL_NORM_H
#define TD_BACKEND_CPU_KERNELS_CHANNEL_NORM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct td__channel_norm_kernels {
    /* sum[c] = sum over rows of x[., c]: the gradient of a bias. */
    void (*sums)(float *sum, const void *x, bool bf16, int64_t rows, int64_t channels);
    /* mean[c] = mean over rows of x[., c]; m2[c] = sum over rows of (x - mean)^2. */
    void (*stats)(double *mean, double *m2, const void *x, bool bf16, int64_t rows,
                  int64_t channels);
    /* y = (x - mean) scale + shift (+ residual), then relu if asked. residual may be NULL. */
    void (*apply)(void *y, const void *x, const void *residual, const float *mean,
                  const float *scale, const float *shift, bool relu, bool bf16, int64_t rows,
                  int64_t channels);
    /* dz = dy where y > 0 (everywhere if y is NULL); s1[c] = sum dz, s2[c] = sum dz (x - mean).
     * dz is also written to dz_out unless that is NULL. */
    void (*back_sums)(double *s1, double *s2, void *dz_out, const void *dy, const void *x,
                      const void *y, const float *mean, bool bf16, int64_t rows, int64_t channels);
    /* dx = k1 dz - k2 - (x - mean) k3. */
    void (*back_apply)(void *dx, const void *dy, const void *x, const void *y, const float *mean,
                       const float *k1, const float *k2, const float *k3, bool bf16, int64_t rows,
                       int64_t channels);
} td__channel_norm_kernels;

extern const td__channel_norm_kernels td__channel_norm_scalar, td__channel_norm_avx2,
    td__channel_norm_avx512;

#endif
