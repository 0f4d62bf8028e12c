/* pieces.c -- see pieces.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/pieces.h"

#include <string.h>

#include "backend/cpu/kernels/vmath.h"
#include "backend/cpu/kernels/widen.h"

enum { BLOCK = 1024 };

/* Elements [at, at + m) of inputs [begin, end), to `to`. */
static void tree(float *to, const void *const *x, td_dtype t, int begin, int end, int64_t at,
                 int64_t m)
{
    _Alignas(64) float other[BLOCK];
    int half = 1;
    if (end - begin == 1) {
        const float *from = widen_at(other, t, x[begin], at, m);
        memcpy(to, from, (size_t)m * sizeof *to);
        return;
    }
    while (2 * half < end - begin)
        half *= 2;
    tree(to, x, t, begin, begin + half, at, m);
    tree(other, x, t, begin + half, end, at, m);
    for (int64_t i = 0; i < m; i++)
        to[i] += other[i];
}

void TD_ISA_SYM(td__pieces_sum)(float *y, const void *const *x, int n, td_dtype t, int64_t count)
{
    _Alignas(64) float sum[BLOCK]; /* y may be an input that is read last */
    if (n == 1 && x[0] == y)
        return;
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t m = count - at < BLOCK ? count - at : BLOCK;
        tree(sum, x, t, 0, n, at, m);
        memcpy(y + at, sum, (size_t)m * sizeof *y);
    }
}

void TD_ISA_SYM(td__xent_piece_back)(float *dx, const float *x, const float *lse, const float *dlse,
                                     const float *dsum, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, dx += width, x += width) {
        float flat = dsum ? dsum[r] : 0, scale = dlse[r], top = lse[r];
#pragma GCC ivdep
        for (int64_t k = 0; k < width; k++)
            dx[k] = scale * v_exp(x[k] - top) + flat;
    }
}
