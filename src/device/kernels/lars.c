/* lars.c -- the update of LARS; the maths is in optim/opt_lars.c. lr is the tensor's own rate. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/kernels/kernels.h"

void TD_ISA_SYM(td__optim_k_lars)(const td__optim_hyper *h, const td__optim_slice *s)
{
    const float scale = h->scale, clip = h->clip, lr = h->lr, l2 = h->l2, mu = h->momentum;
    float *restrict p = s->p;
    float *restrict buf = s->s[0];
    const float *restrict grad = s->g;

    for (size_t i = 0; i < s->n; i++) {
        float b = mu * buf[i] + lr * (td__optim_grad(grad[i], scale, clip) + l2 * p[i]);
        buf[i] = b;
        p[i] -= b;
    }
}
