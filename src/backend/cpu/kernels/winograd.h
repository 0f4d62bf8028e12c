/* winograd.h -- the transforms of Winograd's minimal filtering F(2x2, 3x3) over NHWC images.
 *
 *   Y = A' [ (G g G') . (B' d B) ] A      d: 4x4 pixels of x, g: 3x3 taps, Y: 2x2 pixels of y
 *
 *   B' = 1  0 -1  0     G = 1    0    0      A' = 1  1  1  0
 *        0  1  1  0         1/2  1/2  1/2         0  1 -1 -1
 *        0 -1  1  0         1/2 -1/2  1/2
 *        0  1  0 -1         0    0    1
 *
 * 16 products where the direct sum takes 36; per frequency f the product over channels is a matrix
 * product over tiles. The gradient to the weight is dg = G' [ (A dY A') . (B' d B) ] G, which uses
 * the same 16 frequencies. B and A hold only 0 and +-1, so rounding stays at the level of the
 * direct sum.
 *
 * Words     tile: 2x2 pixels of y and the 4x4 pixels of x they depend on; tiles are numbered
 *           through samples, then rows, then columns.
 * Channels  must be multiples of 16. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_WINOGRAD_H
#define TD_BACKEND_CPU_KERNELS_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

/* The convolution x (n, h, w, c) -> y (n, oh, ow, o), 3x3, stride 1. */
typedef struct td__wino {
    int64_t n, h, w, c, oh, ow, o;
    int64_t pad[2];
    int64_t rows, cols; /* tiles per sample: ceil(oh / 2), ceil(ow / 2) */
    bool bf16;          /* activations are bf16, else f32 */
    bool v_bf16;        /* transformed factors are bf16, else f32 */
} td__wino;

/* Where element (k, n) of a packed (k, n) matrix lies (gemm.h): panels of `panel` columns, `units`
 * units high. */
typedef struct td__wino_packing {
    int64_t panel, units;
    int64_t matrix; /* elements of one packed matrix, one per frequency */
} td__wino_packing;

typedef struct td__wino_kernels {
    /* v[f * stride + (t - first) * c + channel] = B' d B of tiles [first, first + count).
     * zeros: c zero elements of x's type. */
    void (*input)(const td__wino *g, void *v, int64_t stride, const void *x, const void *zeros,
                  int64_t first, int64_t count);
    /* The same in bf16 for the left factor of back_weight: tiles in pairs (td__gemm_args.a_paired),
     * pair (t - first) / 2 * c + channel of matrix f, f * stride pairs on; a last odd tile is
     * paired with zeros. */
    void (*input_pairs)(const td__wino *g, void *v, int64_t stride, const void *x,
                        const void *zeros, int64_t first, int64_t count);
    /* y = act(A' m A + bias) from m, f32, laid out like v with o channels; bias may be NULL. */
    void (*output)(const td__wino *g, void *y, const float *m, int64_t stride, const float *bias,
                   bool relu, int64_t first, int64_t count);
    /* z = A dy A', packed as the right factor (k = tiles of the block, n = o). */
    void (*gradient)(const td__wino *g, void *z, const td__wino_packing *p, const void *dy,
                     const void *zeros, int64_t first, int64_t count);
    /* G w G' of w (o, c, 3, 3), packed: (k = c, n = o), or flipped (k = o, n = c). */
    void (*weight)(void *u, const td__wino_packing *p, const float *w, int64_t o, int64_t c,
                   bool flipped, bool bf16);
    /* dw (o, c, 3, 3) = G' du G from du[f * stride + c * o ...], f32 (c, o). */
    void (*weight_back)(float *dw, const float *du, int64_t stride, int64_t o, int64_t c);
} td__wino_kernels;

extern const td__wino_kernels td__wino_scalar, td__wino_avx2, td__wino_avx512, td__wino_avx512bf16;

#endif
