/* half.c -- IEEE binary16 by integer arithmetic: the same bits with and without F16C.
 *
 * f16 has 1 sign, 5 exponent (bias 15) and 10 mantissa bits; f32 has 1, 8 (bias 127) and 23. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"

float td__f16_to_f32(td_f16 h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
    uint32_t u;

    if (exponent == 31) { /* infinity, NaN (made quiet) */
        u = sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0);
    } else if (exponent) {
        u = sign | (exponent + 112) << 23 | mantissa << 13;
    } else if (mantissa) { /* denormal: shift the leading one into place */
        int shift = __builtin_clz(mantissa) - 21;
        u = sign | (uint32_t)(113 - shift) << 23 | ((mantissa << shift) & 0x3ffu) << 13;
    } else {
        u = sign;
    }
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

td_f16 td__f16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;

    if (a > 0x7f800000u) /* NaN: keep the upper payload bits, make it quiet */
        return (td_f16)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return (td_f16)(sign | 0x7c00u);
    if (a >= 0x38800000u) { /* normal: rebias, round to nearest even; a carry raises the exponent */
        uint32_t r = a - 0x38000000u;
        return (td_f16)(sign | ((r + 0xfffu + ((r >> 13) & 1u)) >> 13));
    }
    if (a <= 0x33000000u) /* at most half of the smallest denormal: zero (the tie goes to even) */
        return (td_f16)sign;

    /* Denormal: value = m * 2^(e-150) in units of 2^-24. */
    uint32_t m = (a & 0x7fffffu) | 0x800000u;
    uint32_t shift = 126u - (a >> 23); /* 14 .. 24 */
    uint32_t r = m >> shift, rest = m & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    r += rest > half || (rest == half && (r & 1u));
    return (td_f16)(sign | r);
}
