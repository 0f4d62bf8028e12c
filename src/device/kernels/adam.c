/* adam.c -- the update of Adam and AdamW; the maths is in optim/opt_adam.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "device/kernels/kernels.h"

void TD_ISA_SYM(td__optim_k_adam)(const td__optim_hyper *h, const td__optim_slice *s)
{
    const float scale = h->scale, clip = h->clip, lr = h->lr, l2 = h->l2, shrink = h->shrink;
    const float beta1c = h->beta1c, beta2 = h->beta2, beta2c = h->beta2c;
    const float eps = h->eps, root = h->root;
    float *restrict p = s->p;
    float *restrict mean = s->s[0];
    float *restrict square = s->s[1];
    const float *restrict grad = s->g;

    for (size_t i = 0; i < s->n; i++) {
        float g = td__optim_grad(grad[i], scale, clip) + l2 * p[i];
        float m = mean[i] + beta1c * (g - mean[i]);
        float v = beta2 * square[i] + beta2c * g * g;
        mean[i] = m;
        square[i] = v;
        p[i] = p[i] * shrink - lr * (m / (sqrtf(v) * root + eps));
    }
}
