/* xent.c -- cross entropy of softmax with class indices; see softmax.h and ops/op_xent.c.
 *
 * Logits are the largest tensor of a language model, so each pass reads (and the backward writes)
 * them once: blocks of a row that fit the first-level cache, with a running maximum m and
 *     s = sum exp(x - m),   rescaled by exp(m_old - m_new) where a block raises m. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/softmax.h"

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/vmath.h"
#include "backend/cpu/kernels/widen.h"

enum { BLOCK = 1024 };

static int64_t target_at(const td__xent *p, const void *target, int64_t r)
{
    return p->target_dtype == TD_I32 ? ((const int32_t *)target)[r] : ((const int64_t *)target)[r];
}

static bool counts(const td__xent *p, int64_t t)
{
    return !(p->use_ignore && t == p->ignore_index);
}

static float logit_at(const td__xent *p, const void *x, int64_t i)
{
    float v;

    return *widen_at(&v, p->dtype, x, i, 1);
}

void TD_ISA_SYM(td__xent)(const td__xent *p, float *loss, float *lse, const void *logits,
                          const void *target)
{
    _Alignas(64) float buf[BLOCK];
    _Alignas(64) float e[BLOCK];
    double total = 0;
    int64_t counted = 0;

    for (int64_t r = 0; r < p->rows; r++) {
        int64_t first = r * p->width, t = target_at(p, target, r);
        float top = -INFINITY, sum = 0;
        double all = 0; /* sum of the logits, for smoothing */

        for (int64_t i = 0; i < p->width; i += BLOCK) {
            int64_t n = p->width - i < BLOCK ? p->width - i : BLOCK;
            const float *x = widen_at(buf, p->dtype, logits, first + i, n);
            float block_top = row_max(x, n);

            if (block_top > top) {
                sum *= v_exp_neg(top - block_top);
                top = block_top;
            }
            /* As long as all is -inf, any other base gives the 0 it must be. */
            const float base = top == -INFINITY ? 0.0f : top;
            for (int64_t k = 0; k < n; k++)
                e[k] = v_exp_neg(x[k] - base);
            sum += row_sum(e, n);
            if (p->smoothing > 0)
                all += (double)row_sum(x, n);
        }
        lse[r] = top + v_log(sum);
        if (!counts(p, t))
            continue;
        counted++;
        double hit = t >= 0 && t < p->width ? (double)logit_at(p, logits, first + t) : (double)NAN;
        total += (1 - p->smoothing) * ((double)lse[r] - hit) +
                 p->smoothing * ((double)lse[r] - all / (double)p->width);
    }
    *loss = counted ? (float)(total / (double)counted) : 0.0f;
}

void TD_ISA_SYM(td__xent_back)(const td__xent *p, void *dlogits, const void *logits,
                               const void *target, const float *lse, const float *dloss)
{
    _Alignas(64) float buf[BLOCK];
    int64_t counted = 0;

    for (int64_t r = 0; r < p->rows; r++)
        counted += counts(p, target_at(p, target, r));
    const float scale = counted ? (float)((double)*dloss / (double)counted) : 0.0f;
    const float flat = (float)(p->smoothing / (double)p->width);

    for (int64_t r = 0; r < p->rows; r++) {
        int64_t first = r * p->width, t = target_at(p, target, r);
        size_t size = p->dtype == TD_F32 ? sizeof(float) : sizeof(td_bf16);

        if (!counts(p, t) || t < 0 || t >= p->width) {
            memset((char *)dlogits + (size_t)first * size, 0, (size_t)p->width * size);
            continue;
        }
        float hit = v_exp(logit_at(p, logits, first + t) - lse[r]) - flat;

        for (int64_t i = 0; i < p->width; i += BLOCK) {
            int64_t n = p->width - i < BLOCK ? p->width - i : BLOCK;
            const float *x = widen_at(buf, p->dtype, logits, first + i, n);
            float *y = narrow_begin(buf, p->dtype, dlogits, first + i);

#pragma GCC ivdep
            for (int64_t k = 0; k < n; k++)
                y[k] = (v_exp(x[k] - lse[r]) - flat) * scale;
            if (t >= i && t < i + n)
                y[t - i] = (hit - (float)(1 - p->smoothing)) * scale;
            narrow_end(y, p->dtype, dlogits, first + i, n);
        }
    }
}
