/* blend.c -- see blend.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kernels/blend.h"

#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

void TD_ISA_SYM(td__blend)(float *restrict y, float a, const float *restrict x, float b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * y[i] + b * x[i];
}

void TD_ISA_SYM(td__blended)(float *restrict z, const float *restrict y, float a,
                             const float *restrict x, float b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        z[i] = a * y[i] + b * x[i];
}

void TD_ISA_SYM(td__scaled_copy)(float *restrict y, const float *restrict x, float b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = b * x[i];
}

/* A vector that is stored past the caches. */
#if defined(__AVX512F__)
enum { WIDTH = 16 };
static void stream(float *y, const float *x, float b)
{
    _mm512_stream_ps(y, _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(b)));
}
#elif defined(__AVX__)
enum { WIDTH = 8 };
static void stream(float *y, const float *x, float b)
{
    _mm256_stream_ps(y, _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(b)));
}
#elif defined(__x86_64__)
enum { WIDTH = 4 };
static void stream(float *y, const float *x, float b)
{
    _mm_stream_ps(y, _mm_mul_ps(_mm_loadu_ps(x), _mm_set1_ps(b)));
}
#else
enum { WIDTH = 1 };
static void stream(float *y, const float *x, float b)
{
    *y = b * *x;
}
#endif

void TD_ISA_SYM(td__scaled_stream)(float *y, const float *x, float b, size_t n)
{
    size_t i = 0;
    for (; i < n && (uintptr_t)(y + i) % (WIDTH * sizeof *y); i++)
        y[i] = b * x[i];
    for (; i + WIDTH <= n; i += WIDTH)
        stream(y + i, x + i, b);
    for (; i < n; i++)
        y[i] = b * x[i];
#if defined(__x86_64__)
    _mm_sfence();
#endif
}
