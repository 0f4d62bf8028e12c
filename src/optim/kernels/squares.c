/* squares.c -- a chunk's sum of squares. The square of an f32 is exact in f64 and the order of the
 * additions is fixed by the lanes, so every instruction set gives the same bits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/kernels/kernels.h"

double TD_ISA_SYM(td__optim_k_squares)(const float *x, size_t n, float scale, float clip)
{
    double lane[TD_OPTIM_LANES] = {0};
    size_t whole = n - n % TD_OPTIM_LANES;

    for (size_t at = 0; at < whole; at += TD_OPTIM_LANES)
        for (size_t l = 0; l < TD_OPTIM_LANES; l++) {
            double v = (double)td__optim_grad(x[at + l], scale, clip);
            lane[l] += v * v;
        }
    for (size_t l = 0; l < n - whole; l++) {
        double v = (double)td__optim_grad(x[whole + l], scale, clip);
        lane[l] += v * v;
    }
    return td__optim_fold(lane);
}
