/* reduce.c -- see reduce.h.
 *
 * An operation on two elements is a small function; TREES makes from it the loops over 2, 3, 4 and
 * 8 arrays:
 *
 *     3   (a b) c        4   (a b) (c d)        8   ((a b) (c d)) ((e f) (g h))
 *
 * min and max keep NaN from either side. Integer sums and products wrap. bf16 and f16 are computed
 * in f32 and rounded after every operation, so that a partial sum can travel in its own type and
 * every order-safe algorithm gives the same bits; f32 is wide enough for the two roundings to be
 * one (24 bits >= 2 * 11 + 2). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/kernels/reduce.h"

#include "base/kernels/widen.h"

#define FLOAT_OPS(T, t)                              \
    static inline T sum_##t(T a, T b)                \
    {                                                \
        return a + b;                                \
    }                                                \
    static inline T prod_##t(T a, T b)               \
    {                                                \
        return a * b;                                \
    }                                                \
    static inline T min_##t(T a, T b)                \
    {                                                \
        return (int)(a < b) | (int)(a != a) ? a : b; \
    }                                                \
    static inline T max_##t(T a, T b)                \
    {                                                \
        return (int)(a > b) | (int)(a != a) ? a : b; \
    }
#define INTEGER_OPS(T, U, t)           \
    static inline T sum_##t(T a, T b)  \
    {                                  \
        return (T)((U)a + (U)b);       \
    }                                  \
    static inline T prod_##t(T a, T b) \
    {                                  \
        return (T)((U)a * (U)b);       \
    }                                  \
    static inline T min_##t(T a, T b)  \
    {                                  \
        return a < b ? a : b;          \
    }                                  \
    static inline T max_##t(T a, T b)  \
    {                                  \
        return a > b ? a : b;          \
    }
FLOAT_OPS(float, f32)
FLOAT_OPS(double, f64)
INTEGER_OPS(int32_t, uint32_t, i32)
INTEGER_OPS(int64_t, uint64_t, i64)
INTEGER_OPS(uint8_t, uint32_t, u8)

#define BF16_OP(op)                                                                 \
    static inline td_bf16 op##_bf16(td_bf16 a, td_bf16 b)                           \
    {                                                                               \
        return td__bf16_from_f32(op##_f32(td__bf16_to_f32(a), td__bf16_to_f32(b))); \
    }
BF16_OP(sum)
BF16_OP(prod)
BF16_OP(min)
BF16_OP(max)

/* ivdep: out is a part or does not overlap it, so no element is read after it was written. */
#define LOOP(T, expression) \
    _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++) out[i] = (expression);
#define TREES(T, t, op)                                                                \
    static void trees_##op##_##t(T *out, const void *const *part, int n, size_t count) \
    {                                                                                  \
        const T *a = part[0], *b = part[1];                                            \
        const T *c = n > 2 ? part[2] : a, *d = n > 3 ? part[3] : a;                    \
        if (n == 2) {                                                                  \
            LOOP(T, op##_##t(a[i], b[i]))                                              \
        } else if (n == 3) {                                                           \
            LOOP(T, op##_##t(op##_##t(a[i], b[i]), c[i]))                              \
        } else if (n == 4) {                                                           \
            LOOP(T, op##_##t(op##_##t(a[i], b[i]), op##_##t(c[i], d[i])))              \
        } else {                                                                       \
            const T *e = part[4], *f = part[5], *g = part[6], *h = part[7];            \
            LOOP(T, op##_##t(op##_##t(op##_##t(a[i], b[i]), op##_##t(c[i], d[i])),     \
                             op##_##t(op##_##t(e[i], f[i]), op##_##t(g[i], h[i]))))    \
        }                                                                              \
    }
#define TREES_OF(T, t) \
    TREES(T, t, sum)   \
    TREES(T, t, prod)  \
    TREES(T, t, min)   \
    TREES(T, t, max)
TREES_OF(float, f32)
TREES_OF(double, f64)
TREES_OF(int32_t, i32)
TREES_OF(int64_t, i64)
TREES_OF(uint8_t, u8)
TREES_OF(td_bf16, bf16)

#define DISPATCH(T, t)                                                                            \
    static void reduce_##t(T *out, const void *const *part, int n, size_t count, td_reduce_op op) \
    {                                                                                             \
        if (op == TD_REDUCE_PROD)                                                                 \
            trees_prod_##t(out, part, n, count);                                                  \
        else if (op == TD_REDUCE_MIN)                                                             \
            trees_min_##t(out, part, n, count);                                                   \
        else if (op == TD_REDUCE_MAX)                                                             \
            trees_max_##t(out, part, n, count);                                                   \
        else                                                                                      \
            trees_sum_##t(out, part, n, count);                                                   \
    }
DISPATCH(float, f32)
DISPATCH(double, f64)
DISPATCH(int32_t, i32)
DISPATCH(int64_t, i64)
DISPATCH(uint8_t, u8)
DISPATCH(td_bf16, bf16)

enum { BLOCK = 512 };

static void widen(float *y, const void *x, size_t at, size_t n, td_dtype t)
{
    if (t == TD_BF16)
        widen_bf16(y, (const td_bf16 *)x + at, (int64_t)n);
    else
        widen_f16(y, (const td_f16 *)x + at, (int64_t)n);
}

static void narrow(void *y, const float *x, size_t at, size_t n, td_dtype t)
{
    if (t == TD_BF16)
        narrow_bf16((td_bf16 *)y + at, x, (int64_t)n);
    else
        narrow_f16((td_f16 *)y + at, x, (int64_t)n);
}

/* buf[0] = buf[0] op buf[1], rounded to f16. */
static void pair_f16(float buf[][BLOCK], size_t n, td_reduce_op op)
{
    td_f16 rounded[BLOCK];

    reduce_f32(buf[0], (const void *const[]){buf[0], buf[1]}, 2, n, op);
    narrow_f16(rounded, buf[0], (int64_t)n);
    widen_f16(buf[0], rounded, (int64_t)n);
}

/* f16 has no conversion that compilers vectorise, so it goes through blocks of f32. The tree by
 * counting: after i parts, one buffer for each bit of i. */
static void reduce_f16(td_f16 *out, const void *const *part, int n, size_t count, td_reduce_op op)
{
    float buf[5][BLOCK];

    for (size_t at = 0; at < count; at += BLOCK) {
        size_t m = count - at < BLOCK ? count - at : BLOCK;
        int depth = 0;
        for (int i = 0; i < n; i++) {
            widen_f16(buf[depth++], (const td_f16 *)part[i] + at, (int64_t)m);
            for (int bits = i + 1; bits % 2 == 0; bits /= 2)
                pair_f16(&buf[--depth - 1], m, op);
        }
        while (depth > 1)
            pair_f16(&buf[--depth - 1], m, op);
        narrow_f16(out + at, buf[0], (int64_t)m);
    }
}

void TD_ISA_SYM(td__reduce_k)(void *out, const void *const *part, int n, size_t count,
                              td_dtype dtype, td_reduce_op op)
{
    switch (dtype) {
    case TD_F32: reduce_f32(out, part, n, count, op); break;
    case TD_F64: reduce_f64(out, part, n, count, op); break;
    case TD_I32: reduce_i32(out, part, n, count, op); break;
    case TD_I64: reduce_i64(out, part, n, count, op); break;
    case TD_U8: reduce_u8(out, part, n, count, op); break;
    case TD_BF16: reduce_bf16(out, part, n, count, op); break;
    default: reduce_f16(out, part, n, count, op); break;
    }
}

#define DIVIDE(T, t)                                 \
    static void divide_##t(T *x, size_t count, T by) \
    {                                                \
        for (size_t i = 0; i < count; i++)           \
            x[i] = (T)(x[i] / by);                   \
    }
DIVIDE(float, f32)
DIVIDE(double, f64)
DIVIDE(int32_t, i32)
DIVIDE(int64_t, i64)

static void divide_u8(uint8_t *x, size_t count, int by)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (uint8_t)((int)x[i] / by);
}

static void divide_half(void *x, size_t count, td_dtype t, int by)
{
    float buf[BLOCK];

    for (size_t at = 0; at < count; at += BLOCK) {
        size_t m = count - at < BLOCK ? count - at : BLOCK;
        widen(buf, x, at, m, t);
        divide_f32(buf, m, (float)by);
        narrow(x, buf, at, m, t);
    }
}

void TD_ISA_SYM(td__divide_k)(void *x, size_t count, td_dtype dtype, int by)
{
    switch (dtype) {
    case TD_F32: divide_f32(x, count, (float)by); break;
    case TD_F64: divide_f64(x, count, (double)by); break;
    case TD_I32: divide_i32(x, count, by); break;
    case TD_I64: divide_i64(x, count, by); break;
    case TD_U8: divide_u8(x, count, by); break;
    default: divide_half(x, count, dtype, by); break;
    }
}
