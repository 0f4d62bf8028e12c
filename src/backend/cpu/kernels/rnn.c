/* rnn.c -- gates and states of recurrent layers; see rnn.h. Rows are widened to f32 once, computed
 * with in the cache and rounded once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/rnn.h"

#include "backend/cpu/kernels/vmath.h"
#include "backend/cpu/kernels/widen.h"

void TD_ISA_SYM(td__lstm_cell_run)(const td__lstm_cell *a)
{
    const int64_t h = a->h;
    const float *restrict gx = widen_at(a->scratch, a->dtype, a->gx, 0, 4 * h);
    float *restrict g = a->sums;
    float *restrict c = a->c;
    const float *c_prev = a->c_prev;

#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++) {
        float i = v_sigmoid(g[j] + gx[j]), f = v_sigmoid(g[h + j] + gx[h + j]);
        float n = v_tanh(g[2 * h + j] + gx[2 * h + j]);

        g[j] = i;
        g[h + j] = f;
        g[2 * h + j] = n;
        c[j] = f * c_prev[j] + i * n;
    }
#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++)
        g[3 * h + j] = v_sigmoid(g[3 * h + j] + gx[3 * h + j]);
    float *y = narrow_begin(a->scratch, a->dtype, a->y, 0);
#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++)
        y[j] = g[3 * h + j] * v_tanh(c[j]);
    narrow_end(y, a->dtype, a->y, 0, h);
    if (a->dtype == TD_F32)
        memcpy(a->gates, g, 4 * (size_t)h * sizeof *g);
    else
        narrow_end(g, a->dtype, a->gates, 0, 4 * h);
}

void TD_ISA_SYM(td__lstm_cell_back_run)(const td__lstm_cell_back *a)
{
    const int64_t h = a->h;
    const float *restrict g = widen_at(a->scratch, a->dtype, a->gates, 0, 4 * h);
    const float *restrict dy = widen_at(a->scratch + 4 * h, a->dtype, a->dy, 0, h);
    float *restrict d = narrow_begin(a->scratch + 5 * h, a->dtype, a->dgx, 0);
    const float *restrict dh = a->dh;
    const float *c_prev = a->c_prev, *c = a->c;
    float *restrict dc = a->dc;

#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++) {
        float through = dh[j] + dy[j], tc = v_tanh(c[j]), o = g[3 * h + j];

        d[3 * h + j] = through * tc * o * (1.0f - o);
        dc[j] += through * o * (1.0f - tc * tc);
    }
#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++) {
        float i = g[j], f = g[h + j], n = g[2 * h + j], carry = dc[j];

        d[j] = carry * n * i * (1.0f - i);
        d[h + j] = carry * c_prev[j] * f * (1.0f - f);
        d[2 * h + j] = carry * i * (1.0f - n * n);
        dc[j] = carry * f;
    }
    narrow_end(d, a->dtype, a->dgx, 0, 4 * h);
}

void TD_ISA_SYM(td__gru_cell_run)(const td__gru_cell *a)
{
    const int64_t h = a->h;
    const float *restrict gx = widen_at(a->scratch, a->dtype, a->gx, 0, 3 * h);
    const float *h_prev = widen_at(a->scratch + 3 * h, a->dtype, a->h_prev, 0, h);
    const float *restrict sums = a->sums;
    float *restrict g = narrow_begin(a->scratch + 4 * h, a->dtype, a->gates, 0);

#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++) {
        g[j] = v_sigmoid(gx[j] + sums[j]);
        g[h + j] = v_sigmoid(gx[h + j] + sums[h + j]);
        g[3 * h + j] = sums[2 * h + j];
    }
#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++)
        g[2 * h + j] = v_tanh(gx[2 * h + j] + g[j] * g[3 * h + j]);
    float *y = narrow_begin(a->scratch, a->dtype, a->y, 0); /* gx is no longer needed */
#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++)
        y[j] = (1.0f - g[h + j]) * g[2 * h + j] + g[h + j] * h_prev[j];
    narrow_end(y, a->dtype, a->y, 0, h);
    narrow_end(g, a->dtype, a->gates, 0, 4 * h);
}

void TD_ISA_SYM(td__gru_cell_back_run)(const td__gru_cell_back *a)
{
    const int64_t h = a->h;
    const float *restrict g = widen_at(a->scratch, a->dtype, a->gates, 0, 4 * h);
    const float *restrict dy = widen_at(a->scratch + 4 * h, a->dtype, a->dy, 0, h);
    const float *restrict h_prev = widen_at(a->scratch + 5 * h, a->dtype, a->h_prev, 0, h);
    float *restrict dx = narrow_begin(a->scratch + 6 * h, a->dtype, a->dgx, 0);
    float *restrict dg = narrow_begin(a->scratch + 9 * h, a->dtype, a->dgh, 0);
    float *restrict dh = a->dh;

#pragma GCC ivdep
    for (int64_t j = 0; j < h; j++) {
        float r = g[j], z = g[h + j], n = g[2 * h + j];
        float through = dh[j] + dy[j];
        float dn = through * (1.0f - z) * (1.0f - n * n);
        float dz = through * (h_prev[j] - n) * z * (1.0f - z);
        float dr = dn * g[3 * h + j] * r * (1.0f - r);

        dx[j] = dr;
        dg[j] = dr;
        dx[h + j] = dz;
        dg[h + j] = dz;
        dx[2 * h + j] = dn;
        dg[2 * h + j] = dn * r;
        dh[j] = through * z;
    }
    narrow_end(dx, a->dtype, a->dgx, 0, 3 * h);
    narrow_end(dg, a->dtype, a->dgh, 0, 3 * h);
}
