/* row_norm.c -- see row_norm.h. Rows are widened once and stay in the cache for the passes over
 * them. dgamma and dbeta are summed over FOLD rows at a time, and these sums then added up:
 * rounding errors grow with rows / FOLD + FOLD instead of rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/row_norm.h"

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/widen.h"

enum { FOLD = 64 };

void TD_ISA_SYM(td__layer_norm)(const td__row_norm *p, void *y, float *mean, float *rstd,
                                const void *x, const float *gamma, const float *beta,
                                float *scratch)
{
    const int64_t d = p->width;
    const float width = d > 0 ? (float)d : 1.0f;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *in = widen_at(scratch, p->dtype, x, r * d, d);
        float *out = narrow_begin(scratch, p->dtype, y, r * d);
        const float m = row_sum(in, d) / width;
        const float s = 1.0f / sqrtf(row_spread(in, m, d) / width + p->eps);

        mean[r] = m;
        rstd[r] = s;
#pragma GCC ivdep
        for (int64_t i = 0; i < d; i++)
            out[i] = (in[i] - m) * s * gamma[i] + beta[i];
        narrow_end(out, p->dtype, y, r * d, d);
    }
}

void TD_ISA_SYM(td__rms_norm)(const td__row_norm *p, void *y, float *mean, float *rstd,
                              const void *x, const float *gamma, const float *beta, float *scratch)
{
    const int64_t d = p->width;
    const float width = d > 0 ? (float)d : 1.0f;

    (void)mean;
    (void)beta;
    for (int64_t r = 0; r < p->rows; r++) {
        const float *in = widen_at(scratch, p->dtype, x, r * d, d);
        float *out = narrow_begin(scratch, p->dtype, y, r * d);
        const float s = 1.0f / sqrtf(row_dot(in, in, d) / width + p->eps);

        rstd[r] = s;
#pragma GCC ivdep
        for (int64_t i = 0; i < d; i++)
            out[i] = in[i] * s * gamma[i];
        narrow_end(out, p->dtype, y, r * d, d);
    }
}

/* total += part, part = 0 */
static void fold(float *total, float *part, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        total[i] += part[i];
        part[i] = 0;
    }
}

/* One pass over a row of layer norm's backward, n = (x - m) s:
 *     sum = sum gamma dy,  dot = sum gamma dy n,  pg += dy n,  pb += dy */
static void layer_back_sums(float *pg, float *pb, const float *dy, const float *x,
                            const float *gamma, float m, float s, int64_t d, float *sum, float *dot)
{
    td__vf sum0 = {0}, sum1 = {0}, dot0 = {0}, dot1 = {0};
    const td__vf vm = td__vf_set(m), vs = td__vf_set(s);
    int64_t i = 0;

#define STEP(at, sum_, dot_)                                       \
    do {                                                           \
        td__vf g_ = td__vf_load(dy + (at));                        \
        td__vf n_ = (td__vf_load(x + (at)) - vm) * vs;             \
        td__vf h_ = g_ * td__vf_load(gamma + (at));                \
        td__vf_store(pg + (at), td__vf_load(pg + (at)) + g_ * n_); \
        td__vf_store(pb + (at), td__vf_load(pb + (at)) + g_);      \
        (sum_) += h_;                                              \
        (dot_) += h_ * n_;                                         \
    } while (0)
    for (; i + 2 * TD_VEC_LANES <= d; i += 2 * TD_VEC_LANES) {
        STEP(i, sum0, dot0);
        STEP(i + TD_VEC_LANES, sum1, dot1);
    }
#undef STEP
    *sum = vf_total(sum0 + sum1);
    *dot = vf_total(dot0 + dot1);
    for (; i < d; i++) {
        float n = (x[i] - m) * s;

        pg[i] += dy[i] * n;
        pb[i] += dy[i];
        *sum += dy[i] * gamma[i];
        *dot += dy[i] * gamma[i] * n;
    }
}

void TD_ISA_SYM(td__layer_norm_back)(const td__row_norm *p, void *dx, float *dgamma, float *dbeta,
                                     const void *dy, const void *x, const float *gamma,
                                     const float *mean, const float *rstd, float *scratch)
{
    const int64_t d = p->width;
    float *pg = scratch + 2 * d, *pb = scratch + 3 * d; /* (D): sums over up to FOLD rows */

    memset(pg, 0, 2 * (size_t)d * sizeof *pg);
    memset(dgamma, 0, (size_t)d * sizeof *dgamma);
    memset(dbeta, 0, (size_t)d * sizeof *dbeta);
    for (int64_t r = 0; r < p->rows; r++) {
        const float *gy = widen_at(scratch, p->dtype, dy, r * d, d);
        const float *in = widen_at(scratch + d, p->dtype, x, r * d, d);
        float *out = narrow_begin(scratch, p->dtype, dx, r * d);
        const float m = mean[r], s = rstd[r];
        float sum, dot;

        layer_back_sums(pg, pb, gy, in, gamma, m, s, d, &sum, &dot);
        sum /= (float)d;
        dot /= (float)d;
#pragma GCC ivdep
        for (int64_t i = 0; i < d; i++)
            out[i] = s * (gamma[i] * gy[i] - sum - (in[i] - m) * s * dot);
        narrow_end(out, p->dtype, dx, r * d, d);
        if (r % FOLD == FOLD - 1 || r == p->rows - 1) {
            fold(dgamma, pg, d);
            fold(dbeta, pb, d);
        }
    }
}

/* dot = sum gamma dy x, pg += dy x s */
static float rms_back_sums(float *pg, const float *dy, const float *x, const float *gamma, float s,
                           int64_t d)
{
    td__vf dot0 = {0}, dot1 = {0};
    const td__vf vs = td__vf_set(s);
    int64_t i = 0;

#define STEP(at, dot_)                                              \
    do {                                                            \
        td__vf h_ = td__vf_load(dy + (at)) * td__vf_load(x + (at)); \
        td__vf_store(pg + (at), td__vf_load(pg + (at)) + h_ * vs);  \
        (dot_) += h_ * td__vf_load(gamma + (at));                   \
    } while (0)
    for (; i + 2 * TD_VEC_LANES <= d; i += 2 * TD_VEC_LANES) {
        STEP(i, dot0);
        STEP(i + TD_VEC_LANES, dot1);
    }
#undef STEP
    float dot = vf_total(dot0 + dot1);

    for (; i < d; i++) {
        pg[i] += dy[i] * x[i] * s;
        dot += dy[i] * x[i] * gamma[i];
    }
    return dot;
}

void TD_ISA_SYM(td__rms_norm_back)(const td__row_norm *p, void *dx, float *dgamma, float *dbeta,
                                   const void *dy, const void *x, const float *gamma,
                                   const float *mean, const float *rstd, float *scratch)
{
    const int64_t d = p->width;
    float *pg = scratch + 2 * d; /* (D) */

    (void)mean;
    (void)dbeta;
    memset(pg, 0, (size_t)d * sizeof *pg);
    memset(dgamma, 0, (size_t)d * sizeof *dgamma);
    for (int64_t r = 0; r < p->rows; r++) {
        const float *gy = widen_at(scratch, p->dtype, dy, r * d, d);
        const float *in = widen_at(scratch + d, p->dtype, x, r * d, d);
        float *out = narrow_begin(scratch, p->dtype, dx, r * d);
        const float s = rstd[r];
        const float pull = s * s * rms_back_sums(pg, gy, in, gamma, s, d) / (float)d;

#pragma GCC ivdep
        for (int64_t i = 0; i < d; i++)
            out[i] = s * (gamma[i] * gy[i] - in[i] * pull);
        narrow_end(out, p->dtype, dx, r * d, d);
        if (r % FOLD == FOLD - 1 || r == p->rows - 1)
            fold(dgamma, pg, d);
    }
}
