/* adagrad.c -- the update of Adagrad; the maths is in optim/opt_adagrad.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "device/kernels/kernels.h"

void TD_ISA_SYM(td__optim_k_adagrad)(const td__optim_hyper *h, const td__optim_slice *s)
{
    const float scale = h->scale, clip = h->clip, lr = h->lr, l2 = h->l2, eps = h->eps;
    float *restrict p = s->p;
    float *restrict sum = s->s[0];
    const float *restrict grad = s->g;

    for (size_t i = 0; i < s->n; i++) {
        float g = td__optim_grad(grad[i], scale, clip) + l2 * p[i];
        float q = sum[i] + g * g;
        sum[i] = q;
        p[i] -= lr * (g / (sqrtf(q) + eps));
    }
}
