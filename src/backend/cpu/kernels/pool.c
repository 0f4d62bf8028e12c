/* pool.c -- pooling over NHWC images; see the header. A strip of channels, one to four vectors, is
 * carried through a window in registers; channels that fill no vector go one by one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/pool.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/vec.h"

enum { LANES = TD_VEC_LANES };

typedef uint8_t vec_u8 __attribute__((vector_size(TD_VEC_LANES)));

/* The window positions [lo, hi) along one axis that lie inside the image, for output o. */
typedef struct span {
    int64_t lo, hi;
} span;

TD_INLINE span window(int64_t o, int64_t size, int64_t stride, int64_t pad, int64_t extent)
{
    int64_t first = o * stride - pad;
    span s = {first < 0 ? -first : 0, extent - first < size ? extent - first : size};
    return s;
}

/* The outputs [lo, hi) along one axis whose windows cover input i. */
TD_INLINE span covering(int64_t i, int64_t size, int64_t stride, int64_t pad, int64_t outputs)
{
    int64_t at = i + pad, lo = at - size + 1;
    span s = {lo <= 0 ? 0 : (lo + stride - 1) / stride, at / stride + 1};
    if (s.hi > outputs)
        s.hi = outputs;
    return s;
}

/* Element index of the first channel of a pixel. */
TD_INLINE int64_t pixel(int64_t n, int64_t row, int64_t col, int64_t h, int64_t w, int64_t c)
{
    return ((n * h + row) * w + col) * c;
}

/* One output pixel, or what happens to one input pixel: all loops below visit pixels like this. */
typedef struct visit {
    int64_t n, row, col; /* sample and position of the pixel */
    span rows, cols;     /* window positions or covering outputs */
} visit;

TD_INLINE void max_strip(const td__pool *p, const visit *v, void *y, uint8_t *where, const void *x,
                         int64_t c, const int nv, const int bf16)
{
    int64_t out = pixel(v->n, v->row, v->col, p->oh, p->ow, p->c) + c;
    int64_t row0 = v->row * p->stride[0] - p->pad[0], col0 = v->col * p->stride[1] - p->pad[1];
    int64_t start = pixel(v->n, row0 + v->rows.lo, col0 + v->cols.lo, p->h, p->w, p->c) + c;
    td__vf best[4];
    td__vi index[4];

#pragma GCC unroll 4
    for (int u = 0; u < nv; u++) {
        best[u] = td__vf_get(x, start + u * LANES, bf16);
        index[u] = (int32_t)(v->rows.lo * p->size[1] + v->cols.lo) - (td__vi){0};
    }
    for (int64_t i = v->rows.lo; i < v->rows.hi; i++) {
        for (int64_t j = v->cols.lo; j < v->cols.hi; j++) {
            int64_t at = pixel(v->n, row0 + i, col0 + j, p->h, p->w, p->c) + c;
            int32_t k = (int32_t)(i * p->size[1] + j);
#pragma GCC unroll 4
            for (int u = 0; u < nv; u++) {
                td__vf value = td__vf_get(x, at + u * LANES, bf16);
                td__vi take = (value > best[u]) | (value != value);
                best[u] = (td__vf)(((td__vi)value & take) | ((td__vi)best[u] & ~take));
                index[u] = (k & take) | (index[u] & ~take);
            }
        }
    }
#pragma GCC unroll 4
    for (int u = 0; u < nv; u++) {
        vec_u8 narrow = __builtin_convertvector(index[u], vec_u8);
        td__vf_put(y, out + u * LANES, best[u], bf16);
        memcpy(where + out + u * LANES, &narrow, sizeof narrow);
    }
}

static void max_one(const td__pool *p, const visit *v, void *y, uint8_t *where, const void *x,
                    int64_t c)
{
    int64_t out = pixel(v->n, v->row, v->col, p->oh, p->ow, p->c) + c;
    int64_t row0 = v->row * p->stride[0] - p->pad[0], col0 = v->col * p->stride[1] - p->pad[1];
    float best = 0.0f;
    int64_t index = -1;

    for (int64_t i = v->rows.lo; i < v->rows.hi; i++) {
        for (int64_t j = v->cols.lo; j < v->cols.hi; j++) {
            float value =
                td__f_get(x, pixel(v->n, row0 + i, col0 + j, p->h, p->w, p->c) + c, p->bf16);
            if (index < 0 || value > best || value != value) {
                best = value;
                index = i * p->size[1] + j;
            }
        }
    }
    td__f_put(y, out, best, p->bf16);
    where[out] = (uint8_t)index;
}

TD_INLINE void max_all(const td__pool *p, void *y, uint8_t *where, const void *x, const int bf16)
{
    visit v;
    for (v.n = 0; v.n < p->n; v.n++) {
        for (v.row = 0; v.row < p->oh; v.row++) {
            v.rows = window(v.row, p->size[0], p->stride[0], p->pad[0], p->h);
            for (v.col = 0; v.col < p->ow; v.col++) {
                int64_t c = 0;
                v.cols = window(v.col, p->size[1], p->stride[1], p->pad[1], p->w);
                for (; c + 4 * LANES <= p->c; c += 4 * LANES)
                    max_strip(p, &v, y, where, x, c, 4, bf16);
                for (; c + LANES <= p->c; c += LANES)
                    max_strip(p, &v, y, where, x, c, 1, bf16);
                for (; c < p->c; c++)
                    max_one(p, &v, y, where, x, c);
            }
        }
    }
}

static void pool_max(const td__pool *p, void *y, uint8_t *where, const void *x)
{
    if (p->bf16)
        max_all(p, y, where, x, 1);
    else
        max_all(p, y, where, x, 0);
}

/* Both gradients: what covering windows send to an input pixel. where == NULL is the average. */
TD_INLINE void back_strip(const td__pool *p, const visit *v, void *dx, const void *dy,
                          const uint8_t *where, float scale, int64_t c, const int nv,
                          const int bf16)
{
    int64_t in = pixel(v->n, v->row, v->col, p->h, p->w, p->c) + c;
    td__vf acc[4];
#pragma GCC unroll 4
    for (int u = 0; u < nv; u++)
        acc[u] = td__vf_set(0.0f);
    for (int64_t i = v->rows.lo; i < v->rows.hi; i++) {
        for (int64_t j = v->cols.lo; j < v->cols.hi; j++) {
            int64_t at = pixel(v->n, i, j, p->oh, p->ow, p->c) + c;
            int32_t k = (int32_t)((v->row + p->pad[0] - i * p->stride[0]) * p->size[1] + v->col +
                                  p->pad[1] - j * p->stride[1]);
#pragma GCC unroll 4
            for (int u = 0; u < nv; u++) {
                td__vf value = td__vf_get(dy, at + u * LANES, bf16);
                if (where) {
                    vec_u8 narrow;
                    memcpy(&narrow, where + at + u * LANES, sizeof narrow);
                    value =
                        (td__vf)((td__vi)value & (__builtin_convertvector(narrow, td__vi) == k));
                }
                acc[u] += value;
            }
        }
    }
#pragma GCC unroll 4
    for (int u = 0; u < nv; u++)
        td__vf_put(dx, in + u * LANES, where ? acc[u] : acc[u] * scale, bf16);
}

static void back_one(const td__pool *p, const visit *v, void *dx, const void *dy,
                     const uint8_t *where, float scale, int64_t c)
{
    int64_t in = pixel(v->n, v->row, v->col, p->h, p->w, p->c) + c;
    float acc = 0.0f;

    for (int64_t i = v->rows.lo; i < v->rows.hi; i++) {
        for (int64_t j = v->cols.lo; j < v->cols.hi; j++) {
            int64_t at = pixel(v->n, i, j, p->oh, p->ow, p->c) + c;
            int64_t k = (v->row + p->pad[0] - i * p->stride[0]) * p->size[1] + v->col + p->pad[1] -
                        j * p->stride[1];
            if (!where || where[at] == k)
                acc += td__f_get(dy, at, p->bf16);
        }
    }
    td__f_put(dx, in, where ? acc : acc * scale, p->bf16);
}

TD_INLINE void back_all(const td__pool *p, void *dx, const void *dy, const uint8_t *where,
                        const int bf16)
{
    float scale = 1.0f / (float)(p->size[0] * p->size[1]);
    visit v;
    for (v.n = 0; v.n < p->n; v.n++) {
        for (v.row = 0; v.row < p->h; v.row++) {
            v.rows = covering(v.row, p->size[0], p->stride[0], p->pad[0], p->oh);
            for (v.col = 0; v.col < p->w; v.col++) {
                int64_t c = 0;
                v.cols = covering(v.col, p->size[1], p->stride[1], p->pad[1], p->ow);
                for (; c + 4 * LANES <= p->c; c += 4 * LANES)
                    back_strip(p, &v, dx, dy, where, scale, c, 4, bf16);
                for (; c + LANES <= p->c; c += LANES)
                    back_strip(p, &v, dx, dy, where, scale, c, 1, bf16);
                for (; c < p->c; c++)
                    back_one(p, &v, dx, dy, where, scale, c);
            }
        }
    }
}

/* Windows side by side that cover the image exactly: each input belongs to one, so an output is
 * handed down as it is, without arithmetic. */
#define DEFINE_HAND_DOWN(T)                                                            \
    static void hand_down_##T(const td__pool *p, T *restrict dx, const T *restrict dy, \
                              const uint8_t *restrict where)                           \
    {                                                                                  \
        for (int64_t at = 0; at < p->n * p->oh * p->ow; at++) {                        \
            int64_t row = at / p->ow * p->size[0], col = at % p->ow * p->size[1];      \
            const T *from = dy + at * p->c;                                            \
            const uint8_t *which = where + at * p->c;                                  \
            for (int64_t k = 0; k < p->size[0] * p->size[1]; k++) {                    \
                int64_t line = row + k / p->size[1], pix = col + k % p->size[1];       \
                T *to = dx + (line * p->w + pix) * p->c;                               \
                for (int64_t c = 0; c < p->c; c++)                                     \
                    to[c] = which[c] == (uint8_t)k ? from[c] : 0;                      \
            }                                                                          \
        }                                                                              \
    }
DEFINE_HAND_DOWN(uint16_t)
DEFINE_HAND_DOWN(uint32_t)

static bool side_by_side(const td__pool *p)
{
    for (int i = 0; i < 2; i++)
        if (p->size[i] != p->stride[i] || p->pad[i] != 0 ||
            (i ? p->ow : p->oh) * p->size[i] != (i ? p->w : p->h))
            return false;
    return true;
}

static void pool_max_back(const td__pool *p, void *dx, const void *dy, const uint8_t *where)
{
    if (side_by_side(p) && p->bf16)
        hand_down_uint16_t(p, dx, dy, where);
    else if (side_by_side(p))
        hand_down_uint32_t(p, dx, dy, where);
    else if (p->bf16)
        back_all(p, dx, dy, where, 1);
    else
        back_all(p, dx, dy, where, 0);
}

static void pool_avg_back(const td__pool *p, void *dx, const void *dy)
{
    if (p->bf16)
        back_all(p, dx, dy, NULL, 1);
    else
        back_all(p, dx, dy, NULL, 0);
}

TD_INLINE void avg_strip(const td__pool *p, const visit *v, void *y, const void *x, float scale,
                         int64_t c, const int nv, const int bf16)
{
    int64_t out = pixel(v->n, v->row, v->col, p->oh, p->ow, p->c) + c;
    int64_t row0 = v->row * p->stride[0] - p->pad[0], col0 = v->col * p->stride[1] - p->pad[1];
    td__vf acc[4];
#pragma GCC unroll 4
    for (int u = 0; u < nv; u++)
        acc[u] = td__vf_set(0.0f);
    for (int64_t i = v->rows.lo; i < v->rows.hi; i++) {
        for (int64_t j = v->cols.lo; j < v->cols.hi; j++) {
            int64_t at = pixel(v->n, row0 + i, col0 + j, p->h, p->w, p->c) + c;
#pragma GCC unroll 4
            for (int u = 0; u < nv; u++)
                acc[u] += td__vf_get(x, at + u * LANES, bf16);
        }
    }
#pragma GCC unroll 4
    for (int u = 0; u < nv; u++)
        td__vf_put(y, out + u * LANES, acc[u] * scale, bf16);
}

static void avg_one(const td__pool *p, const visit *v, void *y, const void *x, float scale,
                    int64_t c)
{
    int64_t row0 = v->row * p->stride[0] - p->pad[0], col0 = v->col * p->stride[1] - p->pad[1];
    float acc = 0.0f;

    for (int64_t i = v->rows.lo; i < v->rows.hi; i++)
        for (int64_t j = v->cols.lo; j < v->cols.hi; j++)
            acc += td__f_get(x, pixel(v->n, row0 + i, col0 + j, p->h, p->w, p->c) + c, p->bf16);
    td__f_put(y, pixel(v->n, v->row, v->col, p->oh, p->ow, p->c) + c, acc * scale, p->bf16);
}

TD_INLINE void avg_all(const td__pool *p, void *y, const void *x, const int bf16)
{
    float scale = 1.0f / (float)(p->size[0] * p->size[1]);
    visit v;
    for (v.n = 0; v.n < p->n; v.n++) {
        for (v.row = 0; v.row < p->oh; v.row++) {
            v.rows = window(v.row, p->size[0], p->stride[0], p->pad[0], p->h);
            for (v.col = 0; v.col < p->ow; v.col++) {
                int64_t c = 0;
                v.cols = window(v.col, p->size[1], p->stride[1], p->pad[1], p->w);
                for (; c + 4 * LANES <= p->c; c += 4 * LANES)
                    avg_strip(p, &v, y, x, scale, c, 4, bf16);
                for (; c + LANES <= p->c; c += LANES)
                    avg_strip(p, &v, y, x, scale, c, 1, bf16);
                for (; c < p->c; c++)
                    avg_one(p, &v, y, x, scale, c);
            }
        }
    }
}

static void pool_avg(const td__pool *p, void *y, const void *x)
{
    if (p->bf16)
        avg_all(p, y, x, 1);
    else
        avg_all(p, y, x, 0);
}

const td__pool_kernels TD_ISA_SYM(td__pool) = {
    .max = pool_max,
    .max_back = pool_max_back,
    .avg = pool_avg,
    .avg_back = pool_avg_back,
};
