/* softmax.c -- softmax over rows; see softmax.h. A row is widened once, then passed over in the
 * cache: maximum, exponentials and their sum, scaling. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/softmax.h"

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/vmath.h"
#include "backend/cpu/kernels/widen.h"

void TD_ISA_SYM(td__softmax)(void *y, const void *x, td_dtype t, int64_t rows, int64_t width,
                             float *scratch)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *in = widen_at(scratch, t, x, r * width, width);
        float *out = narrow_begin(scratch, t, y, r * width);
        float top = row_max(in, width);

#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++)
            out[i] = v_exp_neg(in[i] - top);
        float scale = 1.0f / row_sum(out, width);
        for (int64_t i = 0; i < width; i++)
            out[i] *= scale;
        narrow_end(out, t, y, r * width, width);
    }
}

void TD_ISA_SYM(td__log_softmax)(void *y, const void *x, td_dtype t, int64_t rows, int64_t width,
                                 float *scratch)
{
    float *e = scratch + width; /* exponentials; only their sum matters */

    for (int64_t r = 0; r < rows; r++) {
        const float *in = widen_at(scratch, t, x, r * width, width);
        float *out = narrow_begin(scratch, t, y, r * width);
        float top = row_max(in, width);

#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++)
            e[i] = v_exp_neg(in[i] - top);
        float log_sum = v_log(row_sum(e, width));
#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++)
            out[i] = in[i] - top - log_sum;
        narrow_end(out, t, y, r * width, width);
    }
}

void TD_ISA_SYM(td__softmax_back)(void *dx, const void *y, const void *dy, td_dtype t, int64_t rows,
                                  int64_t width, float *scratch)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *p = widen_at(scratch, t, y, r * width, width);
        const float *d = widen_at(scratch + width, t, dy, r * width, width);
        float *out = narrow_begin(scratch, t, dx, r * width);
        float dot = row_dot(p, d, width);

#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++)
            out[i] = p[i] * (d[i] - dot);
        narrow_end(out, t, dx, r * width, width);
    }
}

void TD_ISA_SYM(td__log_softmax_back)(void *dx, const void *y, const void *dy, td_dtype t,
                                      int64_t rows, int64_t width, float *scratch)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *p = widen_at(scratch, t, y, r * width, width);
        const float *d = widen_at(scratch + width, t, dy, r * width, width);
        float *out = narrow_begin(scratch, t, dx, r * width);
        float sum = row_sum(d, width);

#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++)
            out[i] = d[i] - v_exp(p[i]) * sum;
        narrow_end(out, t, dx, r * width, width);
    }
}
