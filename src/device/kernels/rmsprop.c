/* rmsprop.c -- the update of RMSprop; the maths is in optim/opt_rmsprop.c.
 *
 * One pass over blocks that fit the first-level cache: the divisor of a block is made first, so
 * that centred and momentum forms need no loop of their own for each combination. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "device/kernels/kernels.h"

enum { BLOCK = 256 };

void TD_ISA_SYM(td__optim_k_rmsprop)(const td__optim_hyper *h, const td__optim_slice *s)
{
    const float scale = h->scale, clip = h->clip, lr = h->lr, l2 = h->l2, eps = h->eps;
    const float alpha = h->beta2, alphac = h->beta2c, mu = h->momentum;
    float step[BLOCK];

    for (size_t at = 0; at < s->n; at += BLOCK) {
        size_t n = s->n - at < BLOCK ? s->n - at : BLOCK;
        float *restrict p = s->p + at;
        float *restrict square = s->s[0] + at;
        const float *restrict grad = s->g + at;

        if (h->centered) {
            float *restrict mean = s->s[1] + at;
            for (size_t i = 0; i < n; i++) {
                float g = td__optim_grad(grad[i], scale, clip) + l2 * p[i];
                float q = alpha * square[i] + alphac * g * g;
                float m = mean[i] + alphac * (g - mean[i]);
                square[i] = q;
                mean[i] = m;
                step[i] = g / (sqrtf(q - m * m) + eps);
            }
        } else {
            for (size_t i = 0; i < n; i++) {
                float g = td__optim_grad(grad[i], scale, clip) + l2 * p[i];
                float q = alpha * square[i] + alphac * g * g;
                square[i] = q;
                step[i] = g / (sqrtf(q) + eps);
            }
        }
        if (mu > 0) {
            float *restrict buf = s->s[h->centered ? 2 : 1] + at;
            for (size_t i = 0; i < n; i++) {
                buf[i] = mu * buf[i] + step[i];
                p[i] -= lr * buf[i];
            }
        } else {
            for (size_t i = 0; i < n; i++)
                p[i] -= lr * step[i];
        }
    }
}
