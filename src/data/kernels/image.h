/* image.h -- inner loops over pixels. Compiled per instruction set (base/isa.h), all of which give
 * the same bits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_KERNELS_IMAGE_H
#define TD_DATA_KERNELS_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"

/* y[i] = x[i] * scale + shift */
TD_ISA_DECLARE(void, td__scale_u8,
               (float *restrict y, const uint8_t *restrict x, size_t n, float scale, float shift));
TD_ISA_DECLARE(void, td__scale_f32,
               (float *restrict y, const float *restrict x, size_t n, float scale, float shift));

enum { TD__CANVAS = 32 }; /* pixels of a line of a canvas; images may be narrower */

typedef struct td__segment {
    float x0, y0, x1, y1;
} td__segment;

/* d2[y][x] = the least of itself and the squared distance of pixel (x, y) from the segment, for
 * lines first .. last. */
TD_ISA_DECLARE(void, td__segment_distance,
               (float (*restrict d2)[TD__CANVAS], const td__segment *s, int first, int last));
/* ink = at most 1: how much of each pixel a pen of this radius covers at squared distance d2, times
 * strength; ink is raised to it. */
TD_ISA_DECLARE(void, td__pen,
               (float *restrict ink, const float *restrict d2, size_t n, float radius,
                float strength));
/* y[i] = ink[i] * gain + base + noise * (byte i of random, centred), kept in 0 .. 1 */
TD_ISA_DECLARE(void, td__develop,
               (float *restrict y, const float *restrict ink, const uint8_t *restrict random,
                size_t n, float gain, float base, float noise));

#endif
