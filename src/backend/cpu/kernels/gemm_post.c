/* gemm_post.c -- see gemm_post.h. Works on pieces of 32 columns that stay in registers or in the
 * first-level cache; all loops over a piece have constant bounds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/gemm_post.h"

#include <string.h>

#include "base/half.h"

#define INLINE static inline __attribute__((always_inline))

enum { PIECE = 32 };

/* exp by 2^n * e^r, |r| <= ln(2)/2; relative error below 2e-7. Arguments are clamped to where the
 * result is finite and normal. */
INLINE float exp_f32(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float n, r, p;
    uint32_t bits;

    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    n = (x * 1.44269504f + magic) - magic;
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    bits = (uint32_t)((int32_t)n + 127) << 23;
    memcpy(&n, &bits, sizeof n);
    return p * n;
}

/* x Phi(x) with Abramowitz and Stegun 7.1.26 for the error function (absolute error 1.5e-7). */
INLINE float gelu(float x)
{
    const float z = __builtin_fabsf(x) * 0.70710678f;
    const float t = 1.0f / (1.0f + 0.3275911f * z);
    float p = 1.061405429f;
    float half_erfc;

    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    half_erfc = 0.5f * p * t * exp_f32(-z * z);
    return x * (x < 0.0f ? half_erfc : 1.0f - half_erfc);
}

/* 0.5 x (1 + tanh u) = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
INLINE float gelu_tanh(float x)
{
    const float u2 = 1.59576912f * (x + 0.044715f * x * x * x);

    return x / (1.0f + exp_f32(-u2));
}

INLINE void get(float *restrict v, const void *p, td_dtype dtype, int64_t n)
{
    if (dtype == TD_F32)
        memcpy(v, p, (size_t)n * 4);
    else
        for (int64_t i = 0; i < n; i++)
            v[i] = td__bf16_to_f32(((const td_bf16 *)p)[i]);
}

INLINE void put(void *p, const float *restrict v, td_dtype dtype, int64_t n)
{
    td_bf16 h[PIECE];

    if (dtype == TD_F32) {
        memcpy(p, v, (size_t)n * 4);
        return;
    }
    for (int i = 0; i < PIECE; i++) {
        uint32_t u, rounded;
        memcpy(&u, &v[i], 4);
        rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        h[i] = (td_bf16)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
    }
    memcpy(p, h, (size_t)n * 2);
}

/* `n` is a constant in the call for whole pieces, so that the copies become vector moves. */
INLINE void piece(char *c, char *pre, const char *mask, const float *sums, const float *bias,
                  td_dtype dtype, td_act act, int64_t n)
{
    float v[PIECE], w[PIECE];

    if (n < PIECE) {
        memset(v, 0, sizeof v);
        memset(w, 0, sizeof w);
    }
    get(v, sums, TD_F32, n);
    if (bias) {
        get(w, bias, TD_F32, n);
        for (int i = 0; i < PIECE; i++)
            v[i] += w[i];
    }
    if (pre)
        put(pre, v, dtype, n);
    if (act == TD_ACT_RELU)
        for (int i = 0; i < PIECE; i++)
            v[i] = v[i] < 0.0f ? 0.0f : v[i]; /* NaN stays NaN */
    else if (act == TD_ACT_GELU)
        for (int i = 0; i < PIECE; i++)
            v[i] = gelu(v[i]);
    else if (act == TD_ACT_GELU_TANH)
        for (int i = 0; i < PIECE; i++)
            v[i] = gelu_tanh(v[i]);
    if (mask) {
        get(w, mask, dtype, n);
        for (int i = 0; i < PIECE; i++)
            v[i] = w[i] > 0.0f ? v[i] : 0.0f;
    }
    put(c, v, dtype, n);
}

void TD_ISA_SYM(td__gemm_post_block)(void *c, int64_t ldc, td_dtype dtype, const float *sums,
                                     int64_t ld, int64_t rows, int64_t cols,
                                     const td__gemm_post *post)
{
    const int64_t size = dtype == TD_F32 ? 4 : 2;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j += PIECE) {
            const int64_t at = (r * ldc + j) * size;
            char *pre = post->pre ? (char *)post->pre + at : NULL;
            const char *mask = post->mask ? (const char *)post->mask + at : NULL;
            const float *bias = post->bias ? post->bias + j : NULL;
            const float *s = sums + r * ld + j;

            if (cols - j >= PIECE)
                piece((char *)c + at, pre, mask, s, bias, dtype, post->act, PIECE);
            else
                piece((char *)c + at, pre, mask, s, bias, dtype, post->act, cols - j);
        }
}
