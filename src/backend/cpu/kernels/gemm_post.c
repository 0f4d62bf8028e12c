/* gemm_post.c -- see gemm_post.h. One vector of sums after the other goes through all that is to be
 * done to it, in registers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/gemm_post.h"

#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

#define INLINE static inline __attribute__((always_inline))

/* What is done, as constants: code without branches in the loops. */
typedef struct what {
    bool bf16, bias, pre, mask;
    td_act act;
} what;

INLINE td__vf activate(td__vf v, td_act act)
{
    float x[TD_VEC_LANES];

    if (act == TD_ACT_NONE)
        return v;
    if (act == TD_ACT_RELU)
        return (td__vf)((td__vi)v & ~(v < 0.0f)); /* NaN stays NaN */
    td__vf_store(x, v);
    for (int i = 0; i < TD_VEC_LANES; i++)
        x[i] = act == TD_ACT_GELU ? v_gelu(x[i]) : v_gelu_tanh(x[i]);
    return td__vf_load(x);
}

INLINE void put(void *p, int64_t at, td__vf v, bool bf16)
{
#if defined(__AVX512BF16__)
    if (bf16) {
        const __m256bh h = _mm512_cvtneps_pbh((__m512)v);
        memcpy((td_bf16 *)p + at, &h, sizeof h);
        return;
    }
#endif
    td__vf_put(p, at, v, bf16);
}

/* One vector: sums and bias from there, the rest at element `at` of post's matrices and of c. */
INLINE void finish(void *c, const td__gemm_post *post, int64_t at, const float *sums,
                   const float *bias, const what w)
{
    td__vf v = td__vf_load(sums);

    if (w.bias)
        v += td__vf_load(bias);
    if (w.pre)
        put(post->pre, at, v, w.bf16);
    v = activate(v, w.act);
    if (w.mask)
        v = td__vf_where_positive(td__vf_get(post->mask, at, w.bf16), v);
    put(c, at, v, w.bf16);
}

/* Copies of n < TD_VEC_LANES elements of `size` bytes; a library call would cost more. */
INLINE void copy_short(void *to, const void *from, int64_t n, size_t size)
{
#if defined(__AVX512BW__)
    const __mmask16 lanes = (__mmask16)((1u << n) - 1u);

    if (size == 4)
        _mm512_mask_storeu_epi32(to, lanes, _mm512_maskz_loadu_epi32(lanes, from));
    else
        _mm256_mask_storeu_epi16(to, lanes, _mm256_maskz_loadu_epi16(lanes, from));
#else
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)i * size, size);
#endif
}

/* The columns that do not fill a vector: through short buffers. */
INLINE void finish_tail(void *c, const td__gemm_post *post, int64_t at, const float *sums,
                        const float *bias, int64_t n, const what w)
{
    const size_t size = w.bf16 ? 2 : 4;
    float s[TD_VEC_LANES] = {0}, b[TD_VEC_LANES] = {0};
    float out[TD_VEC_LANES], pre[TD_VEC_LANES], mask[TD_VEC_LANES] = {0};
    const int64_t start = at * (int64_t)size;

    copy_short(s, sums, n, 4);
    if (w.bias)
        copy_short(b, bias, n, 4);
    if (w.mask)
        copy_short(mask, (const char *)post->mask + start, n, size);
    finish(out, &(td__gemm_post){.pre = pre, .mask = mask}, 0, s, b, w);
    if (w.pre)
        copy_short((char *)post->pre + start, pre, n, size);
    copy_short((char *)c + start, out, n, size);
}

INLINE void post_rows(void *c, int64_t ldc, const float *sums, int64_t ld, int64_t rows,
                      int64_t cols, const td__gemm_post *post, const what w)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *s = sums + r * ld;
        int64_t j = 0;
        for (; j + TD_VEC_LANES <= cols; j += TD_VEC_LANES)
            finish(c, post, r * ldc + j, s + j, post->bias + (w.bias ? j : 0), w);
        if (j < cols)
            finish_tail(c, post, r * ldc + j, s + j, post->bias + (w.bias ? j : 0), cols - j, w);
    }
}

#define POST_ROWS(...) \
    post_rows(c, ldc, sums, ld, rows, cols, post, (what){.bf16 = bf16, __VA_ARGS__})

/* The common combinations get code of their own; others share one that is careful, per gelu. */
INLINE void post_block(void *c, int64_t ldc, const float *sums, int64_t ld, int64_t rows,
                       int64_t cols, const td__gemm_post *post, const bool bf16)
{
    const bool bias = post->bias, pre = post->pre, mask = post->mask;

    if (!pre && !mask && !bias && post->act == TD_ACT_NONE)
        POST_ROWS(.bias = false);
    else if (!pre && !mask && bias && post->act == TD_ACT_NONE)
        POST_ROWS(.bias = true);
    else if (!pre && !mask && bias && post->act == TD_ACT_RELU)
        POST_ROWS(.bias = true, .act = TD_ACT_RELU);
    else if (post->act == TD_ACT_GELU)
        POST_ROWS(.bias = bias, .pre = pre, .mask = mask, .act = TD_ACT_GELU);
    else if (post->act == TD_ACT_GELU_TANH)
        POST_ROWS(.bias = bias, .pre = pre, .mask = mask, .act = TD_ACT_GELU_TANH);
    else
        POST_ROWS(.bias = bias, .pre = pre, .mask = mask, .act = post->act);
}

void TD_ISA_SYM(td__gemm_post_block)(void *c, int64_t ldc, td_dtype dtype, const float *sums,
                                     int64_t ld, int64_t rows, int64_t cols,
                                     const td__gemm_post *post)
{
    if (dtype == TD_BF16)
        post_block(c, ldc, sums, ld, rows, cols, post, true);
    else
        post_block(c, ldc, sums, ld, rows, cols, post, false);
}
