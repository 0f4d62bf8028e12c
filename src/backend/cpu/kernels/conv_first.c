/* conv_first.c -- see conv_first.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/conv_first.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/vec.h"

enum {
    LANES = TD_VEC_LANES,
    PIXELS = TD_VEC_LANES == 16 ? 12 : 4, /* pixels whose accumulators fit the registers */
};

static void first_widen(const td__first *g, float *to, const void *x)
{
    int64_t row = g->w * g->c, before = g->pad[1] * g->c;

    memset(to, 0, (size_t)(g->pad[0] * g->line) * sizeof *to);
    to += g->pad[0] * g->line;
    for (int64_t h = 0; h < g->h; h++, to += g->line) {
        memset(to, 0, (size_t)before * sizeof *to);
        for (int64_t i = 0; i < row; i++)
            to[before + i] = td__f_get(x, h * row + i, g->bf16);
        memset(to + before + row, 0, (size_t)(g->line - before - row) * sizeof *to);
    }
    memset(to, 0, (size_t)(g->pad[0] * g->line) * sizeof *to);
}

/* `pixels` outputs of a line from x on, two vectors of output channels. */
TD_INLINE void forward_block(const td__first *g, void *y, int64_t at, const float *x,
                             const float *w, const float *bias, const int relu, const int pixels,
                             const int bf16)
{
    td__vf acc[PIXELS][2];
    int64_t step = g->stride[1] * g->c, taps = g->kw * g->c;
#pragma GCC unroll 12
    for (int q = 0; q < pixels; q++) {
        acc[q][0] = bias ? td__vf_load(bias) : td__vf_set(0.0f);
        acc[q][1] = bias ? td__vf_load(bias + LANES) : td__vf_set(0.0f);
    }
    for (int64_t i = 0; i < g->kh; i++, x += g->line) {
        for (int64_t e = 0; e < taps; e++, w += g->o) {
            td__vf w0 = td__vf_load(w), w1 = td__vf_load(w + LANES);
#pragma GCC unroll 12
            for (int q = 0; q < pixels; q++) {
                td__vf v = td__vf_set(x[q * step + e]);
                acc[q][0] += v * w0;
                acc[q][1] += v * w1;
            }
        }
    }
#pragma GCC unroll 12
    for (int q = 0; q < pixels; q++) {
        td__vf_put(y, at + q * g->o, relu ? td__vf_relu(acc[q][0]) : acc[q][0], bf16);
        td__vf_put(y, at + q * g->o + LANES, relu ? td__vf_relu(acc[q][1]) : acc[q][1], bf16);
    }
}

TD_INLINE void forward_all(const td__first *g, void *y, const float *x, const float *w,
                           const float *bias, const int relu, const int bf16)
{
    for (int64_t p = 0; p < g->oh; p++) {
        const float *line = x + p * g->stride[0] * g->line;
        for (int64_t o = 0; o < g->o; o += 2 * LANES) {
            const float *b = bias ? bias + o : NULL;
            int64_t at = p * g->ow * g->o + o, q = 0, step = g->stride[1] * g->c;
            for (; q + PIXELS <= g->ow; q += PIXELS)
                forward_block(g, y, at + q * g->o, line + q * step, w + o, b, relu, PIXELS, bf16);
            for (; q < g->ow; q++)
                forward_block(g, y, at + q * g->o, line + q * step, w + o, b, relu, 1, bf16);
        }
    }
}

static void first_forward(const td__first *g, void *y, const float *x, const float *w,
                          const float *bias, bool relu)
{
    switch ((relu ? 2 : 0) + (g->bf16 ? 1 : 0)) {
    case 0: forward_all(g, y, x, w, bias, 0, 0); break;
    case 1: forward_all(g, y, x, w, bias, 0, 1); break;
    case 2: forward_all(g, y, x, w, bias, 1, 0); break;
    default: forward_all(g, y, x, w, bias, 1, 1); break;
    }
}

/* The 3 x taps x nv accumulators of output channels o.. over one image. */
TD_INLINE void weight_block(const td__first *g, float *dw, const float *x, const void *dy,
                            int64_t o, const int taps, const int nv, const int bf16)
{
    td__vf acc[27][2];
    int64_t step = g->stride[1] * g->c;
#pragma GCC unroll 27
    for (int t = 0; t < 3 * taps; t++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            acc[t][v] = td__vf_load(dw + t * g->o + o + v * LANES);
    for (int64_t p = 0; p < g->oh; p++) {
        const float *line = x + p * g->stride[0] * g->line;
        int64_t at = p * g->ow * g->o + o;
        for (int64_t q = 0; q < g->ow; q++, line += step, at += g->o) {
            td__vf d[2];
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++)
                d[v] = td__vf_get(dy, at + v * LANES, bf16);
#pragma GCC unroll 27
            for (int t = 0; t < 3 * taps; t++) {
                td__vf value = td__vf_set(line[t / taps * g->line + t % taps]);
#pragma GCC unroll 2
                for (int v = 0; v < nv; v++)
                    acc[t][v] += value * d[v];
            }
        }
    }
#pragma GCC unroll 27
    for (int t = 0; t < 3 * taps; t++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            td__vf_store(dw + t * g->o + o + v * LANES, acc[t][v]);
}

static void first_weight(const td__first *g, float *dw, const float *x, const void *dy)
{
    if (g->c == 1) {
        for (int64_t o = 0; o < g->o; o += 2 * LANES) {
            if (g->bf16)
                weight_block(g, dw, x, dy, o, 3, 2, 1);
            else
                weight_block(g, dw, x, dy, o, 3, 2, 0);
        }
    } else {
        for (int64_t o = 0; o < g->o; o += LANES) {
            if (g->bf16)
                weight_block(g, dw, x, dy, o, 9, 1, 1);
            else
                weight_block(g, dw, x, dy, o, 9, 1, 0);
        }
    }
}

const td__first_kernels TD_ISA_SYM(td__first) = {
    .widen = first_widen,
    .forward = first_forward,
    .weight = first_weight,
};
