/* narrow.h -- from double to narrower types, rounded once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_NARROW_H
#define TD_BASE_NARROW_H

#include <stdint.h>

/* d as f32, rounded to odd: cut towards zero, the last bit set where something was cut off. A
 * second rounding to a type with at least two bits less then gives what one rounding of d would. */
float td__f32_odd_from_f64(double d);

/* d cut towards zero; what is out of [lo, hi] becomes the nearest end, NaN becomes 0. */
int64_t td__int_from_f64(double d, int64_t lo, int64_t hi);

#endif
