/* image.c -- inner loops over pixels; see image.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/kernels/image.h"

#include <math.h>

void TD_ISA_SYM(td__scale_u8)(float *restrict y, const uint8_t *restrict x, size_t n, float scale,
                              float shift)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i] * scale + shift;
}

void TD_ISA_SYM(td__scale_f32)(float *restrict y, const float *restrict x, size_t n, float scale,
                               float shift)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * scale + shift;
}

static inline float smaller(float a, float b)
{
    return a < b ? a : b;
}

static inline float within(float x, float lo, float hi)
{
    x = x < lo ? lo : x;
    return x > hi ? hi : x;
}

void TD_ISA_SYM(td__segment_distance)(float (*restrict d2)[TD__CANVAS], const td__segment *s,
                                      int first, int last)
{
    float dx = s->x1 - s->x0, dy = s->y1 - s->y0;
    float per_length2 = 1.0f / (dx * dx + dy * dy + 1e-12f);

    for (int y = first; y <= last; y++) {
        float py = (float)y - s->y0;
        for (int x = 0; x < TD__CANVAS; x++) {
            float px = (float)x - s->x0;
            float t = within((px * dx + py * dy) * per_length2, 0.0f, 1.0f); /* along it */
            float ex = px - t * dx, ey = py - t * dy;
            d2[y][x] = smaller(d2[y][x], ex * ex + ey * ey);
        }
    }
}

void TD_ISA_SYM(td__pen)(float *restrict ink, const float *restrict d2, size_t n, float radius,
                         float strength)
{
    for (size_t i = 0; i < n; i++) {
        float cover = within(radius + 0.5f - sqrtf(d2[i]), 0.0f, 1.0f) * strength;
        ink[i] = ink[i] < cover ? cover : ink[i];
    }
}

void TD_ISA_SYM(td__develop)(float *restrict y, const float *restrict ink,
                             const uint8_t *restrict random, size_t n, float gain, float base,
                             float noise)
{
    for (size_t i = 0; i < n; i++)
        y[i] = within(ink[i] * gain + base + ((float)random[i] - 127.5f) * noise, 0.0f, 1.0f);
}
