/* channel_norm.c -- per-channel sums and maps of a (rows, channels) matrix; see the header.
 *
 * Sums run over blocks of rows that stay in the first caches; within a block, up to four vectors of
 * channels are summed at a time with accumulators in registers, and a block's f32 sums are added to
 * the channel's sums in double. Variances are taken of x - first row, which is within a few
 * deviations of the mean, so that nothing cancels. The order of all sums depends on the shape
 * only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/channel_norm.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/vec.h"

enum { LANES = TD_VEC_LANES, BLOCK_ELEMS = 32 * 1024 };

static int64_t block_rows(int64_t channels)
{
    int64_t rows = BLOCK_ELEMS / (channels > 0 ? channels : 1);
    return rows < 16 ? 16 : rows > 128 ? 128 : rows; /* short f32 sums */
}

/* NV vectors of channels from c on, over all rows. */
TD_INLINE void sums_columns(float *sum, const void *x, int64_t rows, int64_t channels, int64_t c,
                            const int nv, const int bf16)
{
    double total[4 * LANES] = {0};
    int64_t step = block_rows(channels);

    for (int64_t r = 0; r < rows; r += step) {
        int64_t end = r + step < rows ? r + step : rows;
        td__vf a[4];
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            a[v] = td__vf_set(0.0f);
        for (int64_t i = r; i < end; i++) {
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                a[v] += td__vf_get(x, i * channels + c + v * LANES, bf16);
        }
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            for (int l = 0; l < LANES; l++)
                total[v * LANES + l] += (double)a[v][l];
    }
    for (int l = 0; l < nv * LANES; l++)
        sum[c + l] = (float)total[l];
}

TD_INLINE void sums(float *sum, const void *x, int64_t rows, int64_t channels, const int bf16)
{
    int64_t c = 0;
    for (; c + 4 * LANES <= channels; c += 4 * LANES)
        sums_columns(sum, x, rows, channels, c, 4, bf16);
    for (; c + LANES <= channels; c += LANES)
        sums_columns(sum, x, rows, channels, c, 1, bf16);
    for (; c < channels; c++) {
        double total = 0;
        for (int64_t r = 0; r < rows; r++)
            total += (double)td__f_get(x, r * channels + c, bf16);
        sum[c] = (float)total;
    }
}

static void norm_sums(float *sum, const void *x, bool bf16, int64_t rows, int64_t channels)
{
    if (bf16)
        sums(sum, x, rows, channels, 1);
    else
        sums(sum, x, rows, channels, 0);
}

/* One block, NV vectors of channels from c on. */
TD_INLINE void stats_block(double *sum, double *sq, const void *x, int64_t row0, int64_t n,
                           int64_t c, int64_t channels, const int nv, const int bf16)
{
    td__vf shift[4], a[4], b[4];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
        shift[v] = td__vf_get(x, c + v * LANES, bf16);
        a[v] = b[v] = td__vf_set(0.0f);
    }
    for (int64_t r = row0; r < row0 + n; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            td__vf d = td__vf_get(x, r * channels + c + v * LANES, bf16) - shift[v];
            a[v] += d;
            b[v] += d * d;
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
        for (int i = 0; i < LANES; i++) {
            sum[c + v * LANES + i] += (double)a[v][i];
            sq[c + v * LANES + i] += (double)b[v][i];
        }
    }
}

TD_INLINE void stats(double *mean, double *m2, const void *x, int64_t rows, int64_t channels,
                     const int bf16)
{
    for (int64_t c = 0; c < channels; c++)
        mean[c] = m2[c] = 0.0;
    int64_t step = block_rows(channels);
    for (int64_t r = 0; r < rows; r += step) {
        int64_t n = rows - r < step ? rows - r : step, c = 0;
        for (; c + 4 * LANES <= channels; c += 4 * LANES)
            stats_block(mean, m2, x, r, n, c, channels, 4, bf16);
        for (; c + LANES <= channels; c += LANES)
            stats_block(mean, m2, x, r, n, c, channels, 1, bf16);
        for (; c < channels; c++) {
            float shift = td__f_get(x, c, bf16), a = 0.0f, b = 0.0f;
            for (int64_t i = r; i < r + n; i++) {
                float d = td__f_get(x, i * channels + c, bf16) - shift;
                a += d;
                b += d * d;
            }
            mean[c] += (double)a;
            m2[c] += (double)b;
        }
    }
    for (int64_t c = 0; c < channels; c++) {
        double d = mean[c] / (double)rows;
        double v = m2[c] - mean[c] * d;
        mean[c] = d + (double)td__f_get(x, c, bf16);
        m2[c] = v > 0.0 || v != v ? v : 0.0;
    }
}

static void norm_stats(double *mean, double *m2, const void *x, bool bf16, int64_t rows,
                       int64_t channels)
{
    if (bf16)
        stats(mean, m2, x, rows, channels, 1);
    else
        stats(mean, m2, x, rows, channels, 0);
}

TD_INLINE void apply(void *y, const void *x, const void *residual, const float *mean,
                     const float *scale, const float *shift, int64_t rows, int64_t channels,
                     const int relu, const int add, const int bf16)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * channels, c = 0;
        for (; c + LANES <= channels; c += LANES) {
            td__vf v =
                (td__vf_get(x, at + c, bf16) - td__vf_load(mean + c)) * td__vf_load(scale + c) +
                td__vf_load(shift + c);
            if (add)
                v += td__vf_get(residual, at + c, bf16);
            td__vf_put(y, at + c, relu ? td__vf_relu(v) : v, bf16);
        }
        for (; c < channels; c++) {
            float v = (td__f_get(x, at + c, bf16) - mean[c]) * scale[c] + shift[c];
            if (add)
                v += td__f_get(residual, at + c, bf16);
            td__f_put(y, at + c, relu && !(v > 0.0f) ? 0.0f : v, bf16);
        }
    }
}

static void norm_apply(void *y, const void *x, const void *residual, const float *mean,
                       const float *scale, const float *shift, bool relu, bool bf16, int64_t rows,
                       int64_t channels)
{
    switch ((relu ? 4 : 0) + (residual ? 2 : 0) + (bf16 ? 1 : 0)) {
    case 0: apply(y, x, residual, mean, scale, shift, rows, channels, 0, 0, 0); break;
    case 1: apply(y, x, residual, mean, scale, shift, rows, channels, 0, 0, 1); break;
    case 2: apply(y, x, residual, mean, scale, shift, rows, channels, 0, 1, 0); break;
    case 3: apply(y, x, residual, mean, scale, shift, rows, channels, 0, 1, 1); break;
    case 4: apply(y, x, residual, mean, scale, shift, rows, channels, 1, 0, 0); break;
    case 5: apply(y, x, residual, mean, scale, shift, rows, channels, 1, 0, 1); break;
    case 6: apply(y, x, residual, mean, scale, shift, rows, channels, 1, 1, 0); break;
    default: apply(y, x, residual, mean, scale, shift, rows, channels, 1, 1, 1); break;
    }
}

/* What the backward loops read. */
typedef struct back {
    void *dz_out;
    const void *dy, *x, *y;
    const float *mean;
    int64_t rows, channels;
} back;

TD_INLINE void back_block(double *s1, double *s2, const back *p, int64_t row0, int64_t n, int64_t c,
                          const int nv, const int masked, const int keep, const int bf16)
{
    td__vf mean[4], a[4], b[4];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
        mean[v] = td__vf_load(p->mean + c + v * LANES);
        a[v] = b[v] = td__vf_set(0.0f);
    }
    for (int64_t r = row0; r < row0 + n; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            int64_t at = r * p->channels + c + v * LANES;
            td__vf dz = td__vf_get(p->dy, at, bf16);
            if (masked)
                dz = td__vf_where_positive(td__vf_get(p->y, at, bf16), dz);
            if (keep)
                td__vf_put(p->dz_out, at, dz, bf16);
            a[v] += dz;
            b[v] += dz * (td__vf_get(p->x, at, bf16) - mean[v]);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
        for (int i = 0; i < LANES; i++) {
            s1[c + v * LANES + i] += (double)a[v][i];
            s2[c + v * LANES + i] += (double)b[v][i];
        }
    }
}

TD_INLINE void back_sums(double *s1, double *s2, const back *p, const int masked, const int keep,
                         const int bf16)
{
    for (int64_t c = 0; c < p->channels; c++)
        s1[c] = s2[c] = 0.0;
    int64_t step = block_rows(p->channels);
    for (int64_t r = 0; r < p->rows; r += step) {
        int64_t n = p->rows - r < step ? p->rows - r : step, c = 0;
        for (; c + 4 * LANES <= p->channels; c += 4 * LANES)
            back_block(s1, s2, p, r, n, c, 4, masked, keep, bf16);
        for (; c + LANES <= p->channels; c += LANES)
            back_block(s1, s2, p, r, n, c, 1, masked, keep, bf16);
        for (; c < p->channels; c++) {
            float a = 0.0f, b = 0.0f;
            for (int64_t i = r; i < r + n; i++) {
                int64_t at = i * p->channels + c;
                float dz = td__f_get(p->dy, at, bf16);
                if (masked && !(td__f_get(p->y, at, bf16) > 0.0f))
                    dz = 0.0f;
                if (keep)
                    td__f_put(p->dz_out, at, dz, bf16);
                a += dz;
                b += dz * (td__f_get(p->x, at, bf16) - p->mean[c]);
            }
            s1[c] += (double)a;
            s2[c] += (double)b;
        }
    }
}

static void norm_back_sums(double *s1, double *s2, void *dz_out, const void *dy, const void *x,
                           const void *y, const float *mean, bool bf16, int64_t rows,
                           int64_t channels)
{
    back p = {dz_out, dy, x, y, mean, rows, channels};
    switch ((y ? 4 : 0) + (dz_out ? 2 : 0) + (bf16 ? 1 : 0)) {
    case 0: back_sums(s1, s2, &p, 0, 0, 0); break;
    case 1: back_sums(s1, s2, &p, 0, 0, 1); break;
    case 2: back_sums(s1, s2, &p, 0, 1, 0); break;
    case 3: back_sums(s1, s2, &p, 0, 1, 1); break;
    case 4: back_sums(s1, s2, &p, 1, 0, 0); break;
    case 5: back_sums(s1, s2, &p, 1, 0, 1); break;
    case 6: back_sums(s1, s2, &p, 1, 1, 0); break;
    default: back_sums(s1, s2, &p, 1, 1, 1); break;
    }
}

TD_INLINE void back_apply(void *dx, const back *p, const float *k1, const float *k2,
                          const float *k3, const int masked, const int bf16)
{
    for (int64_t r = 0; r < p->rows; r++) {
        int64_t at = r * p->channels, c = 0;
        for (; c + LANES <= p->channels; c += LANES) {
            td__vf dz = td__vf_get(p->dy, at + c, bf16);
            if (masked)
                dz = td__vf_where_positive(td__vf_get(p->y, at + c, bf16), dz);
            td__vf xm = td__vf_get(p->x, at + c, bf16) - td__vf_load(p->mean + c);
            td__vf v = dz * td__vf_load(k1 + c) - td__vf_load(k2 + c) - xm * td__vf_load(k3 + c);
            td__vf_put(dx, at + c, v, bf16);
        }
        for (; c < p->channels; c++) {
            float dz = td__f_get(p->dy, at + c, bf16);
            if (masked && !(td__f_get(p->y, at + c, bf16) > 0.0f))
                dz = 0.0f;
            float xm = td__f_get(p->x, at + c, bf16) - p->mean[c];
            td__f_put(dx, at + c, dz * k1[c] - k2[c] - xm * k3[c], bf16);
        }
    }
}

static void norm_back_apply(void *dx, const void *dy, const void *x, const void *y,
                            const float *mean, const float *k1, const float *k2, const float *k3,
                            bool bf16, int64_t rows, int64_t channels)
{
    back p = {NULL, dy, x, y, mean, rows, channels};
    switch ((y ? 2 : 0) + (bf16 ? 1 : 0)) {
    case 0: back_apply(dx, &p, k1, k2, k3, 0, 0); break;
    case 1: back_apply(dx, &p, k1, k2, k3, 0, 1); break;
    case 2: back_apply(dx, &p, k1, k2, k3, 1, 0); break;
    default: back_apply(dx, &p, k1, k2, k3, 1, 1); break;
    }
}

const td__channel_norm_kernels TD_ISA_SYM(td__channel_norm) = {
    .sums = norm_sums,
    .stats = norm_stats,
    .apply = norm_apply,
    .back_sums = norm_back_sums,
    .back_apply = norm_back_apply,
};
