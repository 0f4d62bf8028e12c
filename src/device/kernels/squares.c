/* squares.c -- a chunk's sum of squares. The square of an f32 is exact in f64 and the order of the
 * additions is fixed by the lanes, so every instruction set gives the same bits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

#include "device/kernels/kernels.h"

/* The lanes as vectors of the set's own width. */
#if defined(TD_ISA_avx512)
#define NBYTES 64
#elif defined(TD_ISA_avx2)
#define NBYTES 32
#else
#define NBYTES 16
#endif
typedef double doubles __attribute__((vector_size(NBYTES)));
typedef float floats __attribute__((vector_size(NBYTES / 2)));
typedef int32_t masks __attribute__((vector_size(NBYTES / 2)));
enum { WIDTH = NBYTES / 8, PARTS = TD_OPTIM_LANES / WIDTH };

double TD_ISA_SYM(td__optim_k_squares)(const float *x, size_t n, float scale, float clip)
{
    doubles sum[PARTS] = {{0}};
    double lane[TD_OPTIM_LANES];
    size_t whole = n - n % TD_OPTIM_LANES;
    const floats high = (floats){0} + clip, low = -high;

    for (size_t at = 0; at < whole; at += TD_OPTIM_LANES)
        for (size_t k = 0; k < PARTS; k++) {
            floats v;
            memcpy(&v, x + at + k * WIDTH, sizeof v);
            v *= scale;
            masks above = v > high, below = v < low;
            v = (floats)(((masks)v & ~(above | below)) | ((masks)high & above) |
                         ((masks)low & below));
            doubles d = __builtin_convertvector(v, doubles);
            sum[k] += d * d;
        }
    memcpy(lane, sum, sizeof lane);
    for (size_t l = 0; l < n - whole; l++) {
        double v = (double)td__optim_grad(x[whole + l], scale, clip);
        lane[l] += v * v;
    }
    return td__optim_fold(lane);
}
