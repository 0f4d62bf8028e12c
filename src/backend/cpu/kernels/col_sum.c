/* col_sum.c -- see col_sum.h. A strip of vectors is summed in registers down a run of rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/col_sum.h"

#include "backend/cpu/kernels/vec.h"

enum { RUN = 64, STRIP = 4 };

TD_INLINE void strip(float *y, const void *x, int bf16, int64_t rows, int64_t cols, int64_t at,
                     const int vecs)
{
    td__vf total[STRIP] = {0};

    for (int64_t r0 = 0; r0 < rows; r0 += RUN) {
        const int64_t r1 = rows - r0 < RUN ? rows : r0 + RUN;
        td__vf acc[STRIP] = {0};
        for (int64_t r = r0; r < r1; r++)
            for (int v = 0; v < vecs; v++)
                acc[v] += td__vf_get(x, r * cols + at + v * TD_VEC_LANES, bf16);
        for (int v = 0; v < vecs; v++)
            total[v] += acc[v];
    }
    for (int v = 0; v < vecs; v++)
        td__vf_store(y + at + v * TD_VEC_LANES, total[v]);
}

TD_INLINE void col_sum(float *y, const void *x, int bf16, int64_t rows, int64_t cols)
{
    int64_t at = 0;

    for (; at + STRIP * TD_VEC_LANES <= cols; at += STRIP * TD_VEC_LANES)
        strip(y, x, bf16, rows, cols, at, STRIP);
    for (; at + TD_VEC_LANES <= cols; at += TD_VEC_LANES)
        strip(y, x, bf16, rows, cols, at, 1);
    for (; at < cols; at++) {
        float total = 0;
        for (int64_t r0 = 0; r0 < rows; r0 += RUN) {
            float acc = 0;
            for (int64_t r = r0; r < rows && r < r0 + RUN; r++)
                acc += td__f_get(x, r * cols + at, bf16);
            total += acc;
        }
        y[at] = total;
    }
}

void TD_ISA_SYM(td__col_sum)(float *y, const void *x, td_dtype dtype, int64_t rows, int64_t cols)
{
    if (dtype == TD_BF16)
        col_sum(y, x, 1, rows, cols);
    else
        col_sum(y, x, 0, rows, cols);
}
