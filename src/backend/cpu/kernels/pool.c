/* pool.c -- pooling over NHWC images; see the header. The inner loop is always over channels, of
 * which a strip at a time is held in registers or the first cache. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/pool.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/vec.h"

enum { STRIP = 64 };

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


/* bf16 rounding without the branch of the scalar conversion, so that loops vectorise. */
TD_INLINE void store_strip(void *y, int64_t at, const float *v, int64_t n, const int bf16)
{
    if (!bf16) {
        memcpy((float *)y + at, v, (size_t)n * sizeof *v);
        return;
    }
    int64_t i = 0;
    for (; i + TD_VEC_LANES <= n; i += TD_VEC_LANES)
        td__vf_store_bf16((td_bf16 *)y + at + i, td__vf_load(v + i));
    for (; i < n; i++)
        ((td_bf16 *)y)[at + i] = td__bf16_from_f32(v[i]);
}

TD_INLINE void max_strip(const td__pool *p, float *best, int32_t *index, const void *x, int64_t n,
                         int64_t oh, int64_t ow, int64_t c, int64_t cn, const int bf16)
{
    span rows = window(oh, p->size[0], p->stride[0], p->pad[0], p->h);
    span cols = window(ow, p->size[1], p->stride[1], p->pad[1], p->w);
    bool first = true;
    for (int64_t i = rows.lo; i < rows.hi; i++) {
        for (int64_t j = cols.lo; j < cols.hi; j++) {
            int64_t row = oh * p->stride[0] - p->pad[0] + i;
            int64_t col = ow * p->stride[1] - p->pad[1] + j;
            int64_t at = ((n * p->h + row) * p->w + col) * p->c + c;
            int32_t k = (int32_t)(i * p->size[1] + j);
            for (int64_t l = 0; l < cn; l++) {
                float v = td__f_get(x, at + l, bf16);
                bool take = first || v > best[l] || v != v;
                best[l] = take ? v : best[l];
                index[l] = take ? k : index[l];
            }
            first = false;
        }
    }
}

TD_INLINE void max_all(const td__pool *p, void *y, uint8_t *where, const void *x, const int bf16)
{
    for (int64_t n = 0; n < p->n; n++) {
        for (int64_t oh = 0; oh < p->oh; oh++) {
            for (int64_t ow = 0; ow < p->ow; ow++) {
                int64_t out = ((n * p->oh + oh) * p->ow + ow) * p->c;
                for (int64_t c = 0; c < p->c; c += STRIP) {
                    int64_t cn = p->c - c < STRIP ? p->c - c : STRIP;
                    float best[STRIP] = {0};
                    int32_t index[STRIP] = {0};
                    if (cn == STRIP) /* a constant trip count for the common widths */
                        max_strip(p, best, index, x, n, oh, ow, c, STRIP, bf16);
                    else
                        max_strip(p, best, index, x, n, oh, ow, c, cn, bf16);
                    store_strip(y, out + c, best, cn, bf16);
                    for (int64_t l = 0; l < cn; l++)
                        where[out + c + l] = (uint8_t)index[l];
                }
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

TD_INLINE void max_back_all(const td__pool *p, void *dx, const void *dy, const uint8_t *where,
                            const int bf16)
{
    for (int64_t n = 0; n < p->n; n++) {
        for (int64_t h = 0; h < p->h; h++) {
            span rows = covering(h, p->size[0], p->stride[0], p->pad[0], p->oh);
            for (int64_t w = 0; w < p->w; w++) {
                span cols = covering(w, p->size[1], p->stride[1], p->pad[1], p->ow);
                int64_t in = ((n * p->h + h) * p->w + w) * p->c;
                for (int64_t c = 0; c < p->c; c += STRIP) {
                    int64_t cn = p->c - c < STRIP ? p->c - c : STRIP;
                    float acc[STRIP] = {0};
                    for (int64_t i = rows.lo; i < rows.hi; i++) {
                        for (int64_t j = cols.lo; j < cols.hi; j++) {
                            int64_t at = ((n * p->oh + i) * p->ow + j) * p->c + c;
                            int k = (int)((h + p->pad[0] - i * p->stride[0]) * p->size[1] + w +
                                          p->pad[1] - j * p->stride[1]);
                            for (int64_t l = 0; l < cn; l++) {
                                float g = td__f_get(dy, at + l, bf16);
                                acc[l] += where[at + l] == k ? g : 0.0f;
                            }
                        }
                    }
                    store_strip(dx, in + c, acc, cn, bf16);
                }
            }
        }
    }
}

static void pool_max_back(const td__pool *p, void *dx, const void *dy, const uint8_t *where)
{
    if (p->bf16)
        max_back_all(p, dx, dy, where, 1);
    else
        max_back_all(p, dx, dy, where, 0);
}

TD_INLINE void avg_all(const td__pool *p, void *y, const void *x, const int bf16)
{
    float scale = 1.0f / (float)(p->size[0] * p->size[1]);
    for (int64_t n = 0; n < p->n; n++) {
        for (int64_t oh = 0; oh < p->oh; oh++) {
            span rows = window(oh, p->size[0], p->stride[0], p->pad[0], p->h);
            for (int64_t ow = 0; ow < p->ow; ow++) {
                span cols = window(ow, p->size[1], p->stride[1], p->pad[1], p->w);
                int64_t out = ((n * p->oh + oh) * p->ow + ow) * p->c;
                for (int64_t c = 0; c < p->c; c += STRIP) {
                    int64_t cn = p->c - c < STRIP ? p->c - c : STRIP;
                    float acc[STRIP] = {0};
                    for (int64_t i = rows.lo; i < rows.hi; i++) {
                        int64_t row = oh * p->stride[0] - p->pad[0] + i;
                        for (int64_t j = cols.lo; j < cols.hi; j++) {
                            int64_t col = ow * p->stride[1] - p->pad[1] + j;
                            int64_t at = ((n * p->h + row) * p->w + col) * p->c + c;
                            for (int64_t l = 0; l < cn; l++)
                                acc[l] += td__f_get(x, at + l, bf16);
                        }
                    }
                    for (int64_t l = 0; l < cn; l++)
                        acc[l] *= scale;
                    store_strip(y, out + c, acc, cn, bf16);
                }
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

TD_INLINE void avg_back_all(const td__pool *p, void *dx, const void *dy, const int bf16)
{
    float scale = 1.0f / (float)(p->size[0] * p->size[1]);
    for (int64_t n = 0; n < p->n; n++) {
        for (int64_t h = 0; h < p->h; h++) {
            span rows = covering(h, p->size[0], p->stride[0], p->pad[0], p->oh);
            for (int64_t w = 0; w < p->w; w++) {
                span cols = covering(w, p->size[1], p->stride[1], p->pad[1], p->ow);
                int64_t in = ((n * p->h + h) * p->w + w) * p->c;
                for (int64_t c = 0; c < p->c; c += STRIP) {
                    int64_t cn = p->c - c < STRIP ? p->c - c : STRIP;
                    float acc[STRIP] = {0};
                    for (int64_t i = rows.lo; i < rows.hi; i++) {
                        for (int64_t j = cols.lo; j < cols.hi; j++) {
                            int64_t at = ((n * p->oh + i) * p->ow + j) * p->c + c;
                            for (int64_t l = 0; l < cn; l++)
                                acc[l] += td__f_get(dy, at + l, bf16);
                        }
                    }
                    for (int64_t l = 0; l < cn; l++)
                        acc[l] *= scale;
                    store_strip(dx, in + c, acc, cn, bf16);
                }
            }
        }
    }
}

static void pool_avg_back(const td__pool *p, void *dx, const void *dy)
{
    if (p->bf16)
        avg_back_all(p, dx, dy, 1);
    else
        avg_back_all(p, dx, dy, 0);
}

const td__pool_kernels TD_ISA_SYM(td__pool) = {
    .max = pool_max,
    .max_back = pool_max_back,
    .avg = pool_avg,
    .avg_back = pool_avg_back,
};
