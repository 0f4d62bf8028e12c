/* compress.c -- see compress.h.
 *
 * Sums run in LANES accumulators, which are added up in one order at the end: so they become
 * vectors, and have the same bits in vectors of any width. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/kernels/compress.h"

#include <string.h>

#include "base/kernels/widen.h"

enum { LANES = 16, STRIP = 256, WORD = 32 };

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- Half precision -------------------------------------------------------------------------- */

void TD_ISA_SYM(td__pack_bf16)(td_bf16 *y, const float *x, size_t n)
{
    narrow_bf16(y, x, (int64_t)n);
}

void TD_ISA_SYM(td__unpack_bf16)(float *y, const td_bf16 *x, size_t n)
{
    widen_bf16(y, x, (int64_t)n);
}

void TD_ISA_SYM(td__add_bf16)(float *restrict y, const td_bf16 *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += td__bf16_to_f32(x[i]);
}

void TD_ISA_SYM(td__pack_f16)(td_f16 *y, const float *x, float scale, size_t n)
{
    float strip[STRIP];
    for (size_t i = 0; i < n; i += STRIP) {
        size_t m = least(STRIP, n - i);
        for (size_t j = 0; j < m; j++)
            strip[j] = x[i + j] * scale;
        narrow_f16(y + i, strip, (int64_t)m);
    }
}

void TD_ISA_SYM(td__unpack_f16)(float *y, const td_f16 *x, float scale, size_t n)
{
    widen_f16(y, x, (int64_t)n);
    for (size_t i = 0; i < n; i++)
        y[i] *= scale;
}

void TD_ISA_SYM(td__add_f16)(float *restrict y, const td_f16 *restrict x, float scale, size_t n)
{
    float strip[STRIP];
    for (size_t i = 0; i < n; i += STRIP) {
        size_t m = least(STRIP, n - i);
        widen_f16(strip, x + i, (int64_t)m);
        for (size_t j = 0; j < m; j++)
            y[i + j] += strip[j] * scale;
    }
}

uint32_t TD_ISA_SYM(td__largest_bits)(const float *x, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = bits_of(x[i]) & 0x7fffffffu;
        most = u > most ? u : most;
    }
    return most;
}

/* ---- Signs ----------------------------------------------------------------------------------- */

/* The lanes, pair by pair. */
static inline float join(const float *lane)
{
    float sum[LANES];
    memcpy(sum, lane, sizeof sum);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

float TD_ISA_SYM(td__sum_abs)(const float *x, size_t n)
{
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += float_of(bits_of(x[i + (size_t)j]) & 0x7fffffffu);
    for (int j = 0; i < n; i++, j++)
        lane[j] += float_of(bits_of(x[i]) & 0x7fffffffu);
    return join(lane);
}

void TD_ISA_SYM(td__pack_signs)(uint32_t *restrict sign, float *restrict x, float scale, size_t n)
{
    size_t i = 0;
    for (; i + WORD <= n; i += WORD) {
        uint32_t word = 0;
        for (uint32_t j = 0; j < WORD; j++)
            word |= bits_of(x[i + j]) >> 31 << j;
        sign[i / WORD] = word;
    }
    if (i < n) {
        uint32_t word = 0;
        for (uint32_t j = 0; i + j < n; j++)
            word |= bits_of(x[i + j]) >> 31 << j;
        sign[i / WORD] = word;
    }
    for (i = 0; i < n; i++)
        x[i] -= float_of((bits_of(x[i]) & 0x80000000u) | bits_of(scale));
}

/* scale with the sign of element j of a word. */
static inline float signed_scale(uint32_t word, uint32_t j, float scale)
{
    return float_of((word >> j << 31) | bits_of(scale));
}

void TD_ISA_SYM(td__unpack_signs)(float *restrict y, const uint32_t *restrict sign, float scale,
                                  size_t n)
{
    size_t i = 0;
    for (; i + WORD <= n; i += WORD)
        for (uint32_t j = 0; j < WORD; j++)
            y[i + j] = signed_scale(sign[i / WORD], j, scale);
    for (; i < n; i++)
        y[i] = signed_scale(sign[i / WORD], (uint32_t)(i % WORD), scale);
}

void TD_ISA_SYM(td__add_signs)(float *restrict y, const uint32_t *restrict sign, float scale,
                               size_t n)
{
    size_t i = 0;
    for (; i + WORD <= n; i += WORD)
        for (uint32_t j = 0; j < WORD; j++)
            y[i + j] += signed_scale(sign[i / WORD], j, scale);
    for (; i < n; i++)
        y[i] += signed_scale(sign[i / WORD], (uint32_t)(i % WORD), scale);
}

/* ---- Top-k ----------------------------------------------------------------------------------- */

void TD_ISA_SYM(td__accumulate_velocity)(float *restrict u, float *restrict v,
                                         const float *restrict g, float scale, float m,
                                         int nesterov, size_t n)
{
    if (nesterov)
        for (size_t i = 0; i < n; i++) {
            float s = scale * g[i];
            u[i] = m * (u[i] + s);
            v[i] += u[i] + s;
        }
    else
        for (size_t i = 0; i < n; i++) {
            u[i] = m * u[i] + scale * g[i];
            v[i] += u[i];
        }
}

void TD_ISA_SYM(td__accumulate)(float *restrict v, const float *restrict g, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] += scale * g[i];
}

/* Few are collected as a rule: blocks without any are skipped a vector at a time. */
size_t TD_ISA_SYM(td__collect)(uint32_t *restrict index, const float *restrict x, uint32_t low,
                               size_t n)
{
    size_t found = 0, i = 0;
    for (; i + WORD <= n; i += WORD) {
        uint32_t any = 0;
        for (size_t j = 0; j < WORD; j++)
            any |= (bits_of(x[i + j]) & 0x7fffffffu) >= low;
        for (size_t j = 0; any && j < WORD; j++) {
            index[found] = (uint32_t)(i + j);
            found += (bits_of(x[i + j]) & 0x7fffffffu) >= low;
        }
    }
    for (; i < n; i++) {
        index[found] = (uint32_t)i;
        found += (bits_of(x[i]) & 0x7fffffffu) >= low;
    }
    return found;
}

double TD_ISA_SYM(td__sum_squares)(const float *x, size_t n)
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)x[i + (size_t)j] * (double)x[i + (size_t)j];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

/* ---- Low rank -------------------------------------------------------------------------------- */

static inline float dot(const float *restrict a, const float *restrict b, size_t n)
{
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += a[i] * b[i];
    return join(lane);
}

void TD_ISA_SYM(td__low_rank_p)(float *p, const float *m, const float *q, size_t rows, size_t cols,
                                int rank)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < (size_t)rank; c++)
            p[c * rows + i] = dot(m + i * cols, q + c * cols, cols);
}

void TD_ISA_SYM(td__low_rank_q)(float *q, const float *m, const float *p, size_t rows, size_t cols,
                                int rank)
{
    memset(q, 0, (size_t)rank * cols * sizeof *q);
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < (size_t)rank; c++) {
            const float *restrict row = m + i * cols;
            float *restrict to = q + c * cols;
            float by = p[c * rows + i];
            for (size_t j = 0; j < cols; j++)
                to[j] += by * row[j];
        }
}

void TD_ISA_SYM(td__low_rank_set)(float *m, const float *p, const float *q, size_t rows,
                                  size_t cols, int rank)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < (size_t)rank; c++) {
            float *restrict row = m + i * cols;
            const float *restrict from = q + c * cols;
            float by = p[c * rows + i];
            for (size_t j = 0; j < cols; j++)
                row[j] = (c ? row[j] : 0.0f) + by * from[j];
        }
}

void TD_ISA_SYM(td__low_rank_subtract)(float *m, const float *p, const float *q, size_t rows,
                                       size_t cols, int rank)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < (size_t)rank; c++) {
            float *restrict row = m + i * cols;
            const float *restrict from = q + c * cols;
            float by = p[c * rows + i];
            for (size_t j = 0; j < cols; j++)
                row[j] -= by * from[j];
        }
}
