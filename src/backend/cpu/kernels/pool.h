/* pool.h -- pooling over NHWC images, f32 or bf16.
 *
 * Backward loops gather: an input pixel adds up what the windows that cover it send back, in
 * row-major order of the windows, in f32. So bf16 gradients are rounded once, and nothing needs to
 * be zeroed first. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_POOL_H
#define TD_BACKEND_CPU_KERNELS_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct td__pool {
    int64_t n, c, h, w, oh, ow; /* x (n, h, w, c), y (n, oh, ow, c) */
    int64_t size[2], stride[2], pad[2];
    bool bf16;
} td__pool;

typedef struct td__pool_kernels {
    void (*max)(const td__pool *p, void *y, uint8_t *where, const void *x);
    void (*max_back)(const td__pool *p, void *dx, const void *dy, const uint8_t *where);
    void (*avg)(const td__pool *p, void *y, const void *x);
    void (*avg_back)(const td__pool *p, void *dx, const void *dy);
} td__pool_kernels;

extern const td__pool_kernels td__pool_scalar, td__pool_avx2, td__pool_avx512;

#endif
