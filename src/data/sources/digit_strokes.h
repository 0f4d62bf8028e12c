/* digit_strokes.h -- how the ten digits are written: pen strokes through control points.
 *
 * A stroke is a smooth curve (Catmull-Rom) through its points; a point that is given twice is a
 * corner. Coordinates are hundredths of a box, x to the right, y down. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_DIGIT_STROKES_H
#define TD_DATA_DIGIT_STROKES_H

#include <stdint.h>

enum { TD__STROKE_POINTS = 16, TD__STYLE_STROKES = 2, TD__DIGIT_STYLES = 4 };

typedef struct td__stroke {
    int8_t n; /* points; 0: no stroke */
    int8_t point[TD__STROKE_POINTS][2];
} td__stroke;

typedef struct td__digit_style {
    td__stroke stroke[TD__STYLE_STROKES];
} td__digit_style;

typedef struct td__digit {
    int styles;
    td__digit_style style[TD__DIGIT_STYLES];
} td__digit;

extern const td__digit td__digits[10];

#endif
