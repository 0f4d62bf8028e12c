/* sgd.c -- the update of stochastic gradient descent; the maths is in optim/opt_sgd.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/kernels/kernels.h"

void TD_ISA_SYM(td__optim_k_sgd)(const td__optim_hyper *h, const td__optim_slice *s)
{
    const float scale = h->scale, clip = h->clip, lr = h->lr, l2 = h->l2;
    const float mu = h->momentum, undamped = h->undamped;
    float *restrict p = s->p;
    float *restrict buf = s->s[0]; /* NULL without momentum */
    const float *restrict grad = s->g;

    if (!buf) {
        for (size_t i = 0; i < s->n; i++)
            p[i] -= lr * (td__optim_grad(grad[i], scale, clip) + l2 * p[i]);
    } else if (h->nesterov) {
        for (size_t i = 0; i < s->n; i++) {
            float g = td__optim_grad(grad[i], scale, clip) + l2 * p[i];
            float b = mu * buf[i] + undamped * g;
            buf[i] = b;
            p[i] -= lr * (g + mu * b);
        }
    } else {
        for (size_t i = 0; i < s->n; i++) {
            float g = td__optim_grad(grad[i], scale, clip) + l2 * p[i];
            float b = mu * buf[i] + undamped * g;
            buf[i] = b;
            p[i] -= lr * b;
        }
    }
}
