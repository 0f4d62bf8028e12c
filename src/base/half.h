/* half.h -- bf16 and f16 to and from f32, round to nearest even, NaN kept quiet, no tables. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_HALF_H
#define TD_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t td_bf16; /* the upper half of an f32 */
typedef uint16_t td_f16;  /* IEEE 754 binary16 */

static inline float td__bf16_to_f32(td_bf16 h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline td_bf16 td__bf16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (td_bf16)((u >> 16) | 0x40u); /* NaN: keep the sign, make it quiet */
    return (td_bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float td__f16_to_f32(td_f16 h);
td_f16 td__f16_from_f32(float f);

#endif
