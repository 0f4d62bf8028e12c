/* vmath.h -- exp, log, tanh, erf, ... of one float, written so that loops over them vectorise.
 *
 * No branches, no tables, no calls: only arithmetic, bit moves and selections, which the compiler
 * turns into vector code of whatever width the file is built for. Include from files in kernels/
 * only. Errors are about 2 units in the last place of the result (tests/unit/test_cpu_elementwise.c
 * holds them to it); NaN gives NaN, infinities and overflow come out as in the C library. Results
 * below the smallest normal number may be flushed to zero.
 *
 * Polynomials and quotients were fitted by tools/fit_vmath.py. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_VMATH_H
#define TD_BACKEND_CPU_KERNELS_VMATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float v_from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t v_to_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float v_abs(float x)
{
    return v_from_bits(v_to_bits(x) & 0x7fffffffu);
}

/* y with the sign of x. */
static inline float v_copysign(float y, float x)
{
    return v_from_bits((v_to_bits(y) & 0x7fffffffu) | (v_to_bits(x) & 0x80000000u));
}

/* Adding 1.5 * 2^23 rounds to an integer, which then lies in the low bits. */
#define V_ROUND 12582912.0f

/* e^r for |r| <= ln(2)/2. */
static inline float v_exp_core(float r)
{
    float p = 1.3901288e-3f;

    p = p * r + 8.363140398e-3f;
    p = p * r + 4.16668533e-2f;
    p = p * r + 1.666657732e-1f;
    p = p * r + 4.999999955e-1f;
    return p * (r * r) + r + 1.0f;
}

/* x = n ln(2) + r with |r| <= ln(2)/2; returns V_ROUND + n, whose bits are V_ROUND's plus n. */
static inline float v_exp_split(float x, float *r)
{
    float t = x * 1.44269504f + V_ROUND;
    float n = t - V_ROUND;

    *r = x - n * 0.693359375f;
    *r = *r - n * -2.12194440e-4f;
    return t;
}

static inline float v_exp(float x)
{
    float r;

    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float t = v_exp_split(x, &r);
    /* 2^n in two factors: n reaches from -150 to 128, one exponent field does not. */
    int32_t n = (int32_t)(v_to_bits(t) - v_to_bits(V_ROUND));
    int32_t h = n >> 1;
    float s = v_from_bits((uint32_t)(h + 127) << 23);
    float u = v_from_bits((uint32_t)(n - h + 127) << 23);

    return v_exp_core(r) * s * u;
}

/* e^x for |x| <= 87.3 or NaN: nothing to clamp, and 2^n in one factor. */
static inline float v_exp_mid(float x)
{
    float r;
    float t = v_exp_split(x, &r);

    return v_exp_core(r) * v_from_bits((v_to_bits(t) << 23) + 0x3f800000u);
}

/* e^x for x <= 0, as softmax needs it. Zero below -87.3 (1.2e-38). */
static inline float v_exp_neg(float x)
{
    float y = v_exp_mid(x < -87.3f ? -87.3f : x);

    return x < -87.3f ? 0.0f : y;
}

/* log(1 + f) for sqrt(1/2) - 1 <= f <= sqrt(2) - 1, plus e ln(2). */
static inline float v_log_core(float f, float e)
{
    float z = f * f;
    float p = 7.037664036e-2f;

    p = p * f - 1.151460572e-1f;
    p = p * f + 1.167700611e-1f;
    p = p * f - 1.242014285e-1f;
    p = p * f + 1.424932212e-1f;
    p = p * f - 1.666805748e-1f;
    p = p * f + 2.000071478e-1f;
    p = p * f - 2.4999994e-1f;
    p = p * f + 3.333333117e-1f;
    float y = p * (f * z) + e * -2.12194440e-4f;

    y = y - 0.5f * z;
    return (f + y) + e * 0.693359375f;
}

static inline float v_log(float x)
{
    /* Numbers below the normal range are brought into it first. */
    float small = x < FLT_MIN ? 1.0f : 0.0f;
    float m = x < FLT_MIN ? x * 8388608.0f : x;
    /* m = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). */
    uint32_t u = v_to_bits(m) - 0x3f3504f3u;
    int32_t e = (int32_t)u >> 23;
    float f = v_from_bits((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float y = v_log_core(f, (float)e - 23.0f * small);

    y = x == INFINITY ? INFINITY : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

/* log(1 + z) for 0 <= z <= 1, exact for small z too. */
static inline float v_log1p_unit(float z)
{
    float big = z > 0.41421356f ? 1.0f : 0.0f;
    float f = z > 0.41421356f ? 0.5f * z - 0.5f : z;

    return v_log_core(f, big);
}

static inline float v_tanh(float x)
{
    float c = x > 9.0f ? 9.0f : x;

    c = c < -9.0f ? -9.0f : c;
    float z = c * c;
    float p = -1.224648189e-11f;
    float q = 1.289045552e-6f;

    p = p * z + 3.064287639e-8f;
    p = p * z + 2.803146405e-5f;
    p = p * z + 3.869515762e-3f;
    p = p * z + 1.368086268e-1f;
    p = p * z + 9.999999987e-1f;
    q = q * z + 3.940726962e-4f;
    q = q * z + 2.725018517e-2f;
    q = q * z + 4.701419477e-1f;
    q = q * z + 1.0f;
    float y = c * p / q;

    /* All or nothing beyond, and never past 1: callers form 1 - y*y and 1 + y. */
    y = y > 1.0f ? 1.0f : y;
    y = y < -1.0f ? -1.0f : y;
    y = x >= 9.0f ? 1.0f : y;
    return x <= -9.0f ? -1.0f : y;
}

static inline float v_erf(float x)
{
    float c = x > 3.925f ? 3.925f : x;

    c = c < -3.925f ? -3.925f : c;
    float z = c * c;
    float p = 2.046588956e-6f;
    float q = 3.805399851e-5f;

    p = p * z + 2.848517376e-4f;
    p = p * z + 3.771670102e-3f;
    p = p * z + 5.276669897e-2f;
    p = p * z + 1.905695517e-1f;
    p = p * z + 1.128379146f;
    q = q * z + 1.163695918e-3f;
    q = q * z + 1.498142124e-2f;
    q = q * z + 1.14173263e-1f;
    q = q * z + 5.022205994e-1f;
    q = q * z + 1.0f;
    float y = c * p / q;

    y = y > 1.0f ? 1.0f : y;
    y = y < -1.0f ? -1.0f : y;
    y = x >= 3.925f ? 1.0f : y;
    return x <= -3.925f ? -1.0f : y;
}

static inline float v_sigmoid(float x)
{
    return 1.0f / (1.0f + v_exp(-x));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
static inline float v_softplus(float x)
{
    return (x > 0.0f ? x : 0.0f) + v_log1p_unit(v_exp_neg(-v_abs(x)));
}

/* x (1 + erf(x / sqrt 2)) / 2 */
static inline float v_gelu(float x)
{
    return 0.5f * x * (1.0f + v_erf(x * 0.70710678f));
}

/* Its slope: Phi(x) + x phi(x); beyond 14 it is 0 or 1. */
static inline float v_gelu_slope(float x)
{
    x = x > 14.0f ? 14.0f : x;
    x = x < -14.0f ? -14.0f : x;
    float phi = v_exp_neg(-0.5f * x * x) * 0.39894228f;

    return 0.5f * (1.0f + v_erf(x * 0.70710678f)) + x * phi;
}

#define V_GELU_K 0.79788456f /* sqrt(2/pi) */
#define V_GELU_C 0.044715f

/* x (1 + tanh(u)) / 2 = x sigmoid(2 u) with u = k (x + c x^3): cheaper by exp than by tanh, and
 * exact for large negative x too. Beyond 10, where |2 u| is 87.3, nothing is left to compute. */
static inline float v_gelu_tanh(float x)
{
    float c = x > 10.0f ? 10.0f : x;

    c = c < -10.0f ? -10.0f : c;
    float y = x / (1.0f + v_exp_mid(-2.0f * V_GELU_K * (c + V_GELU_C * c * c * c)));

    return x < -10.0f ? -0.0f : y;
}

/* Its slope s + x s (1 - s) 2 u', where s = sigmoid(2 u); beyond 10 it is 0 or 1. */
static inline float v_gelu_tanh_slope(float x)
{
    x = x > 10.0f ? 10.0f : x;
    x = x < -10.0f ? -10.0f : x;
    float z = V_GELU_C * x * x;
    float s = 1.0f / (1.0f + v_exp_mid(-2.0f * V_GELU_K * (x + z * x)));

    return s + x * s * (1.0f - s) * (2.0f * V_GELU_K) * (1.0f + 3.0f * z);
}

/* Sine and cosine for |x| <= V_TRIG_MAX: x is reduced by multiples of pi/2 in double, in two steps
 * whose products are exact. Callers send larger arguments to the C library. */
#define V_TRIG_MAX 1e6f

static inline float v_trig(float x, int32_t quarter)
{
    double t = (double)x * 0.63661977236758134 + 6755399441055744.0; /* 1.5 * 2^52 */
    double n = t - 6755399441055744.0;
    double d = (double)x - n * 1.57079632673412561417; /* 33 bits of pi/2 */
    float r = (float)(d - n * 6.07710050630396597660e-11);
    int32_t k = (int32_t)n + quarter;
    float z = r * r;
    float s = -1.95873725e-4f;
    float c = 2.454760611e-5f;

    s = s * z + 8.332745394e-3f;
    s = s * z - 1.666666465e-1f;
    s = s * (z * r) + r;
    c = c * z - 1.388830129e-3f;
    c = c * z + 4.166666465e-2f;
    c = c * (z * z) - 0.5f * z + 1.0f;
    float y = k & 1 ? c : s;

    return k & 2 ? -y : y;
}

static inline float v_sin(float x)
{
    return v_trig(x, 0);
}

static inline float v_cos(float x)
{
    return v_trig(x, 1);
}

#endif
