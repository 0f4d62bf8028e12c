/* lamb.c -- the two halves of LAMB's update; the maths is in optim/opt_lamb.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "device/kernels/kernels.h"

void TD_ISA_SYM(td__optim_k_lamb_moments)(const td__optim_hyper *h, const td__optim_slice *s,
                                          double sums[2])
{
    const float scale = h->scale, clip = h->clip, l2 = h->l2, unbias = h->unbias;
    const float beta1c = h->beta1c, beta2 = h->beta2, beta2c = h->beta2c;
    const float eps = h->eps, root = h->root;
    float *restrict mean = s->s[0];
    float *restrict square = s->s[1];
    const float *restrict p = s->p;
    const float *restrict grad = s->g;
    double weight[TD_OPTIM_LANES] = {0}, update[TD_OPTIM_LANES] = {0};

    for (size_t at = 0; at < s->n; at += TD_OPTIM_LANES) {
        size_t n = s->n - at < TD_OPTIM_LANES ? s->n - at : TD_OPTIM_LANES;
        for (size_t l = 0; l < n; l++) {
            size_t i = at + l;
            float g = td__optim_grad(grad[i], scale, clip);
            float m = mean[i] + beta1c * (g - mean[i]);
            float v = beta2 * square[i] + beta2c * g * g;
            float u = m * unbias / (sqrtf(v) * root + eps) + l2 * p[i];
            mean[i] = m;
            square[i] = v;
            weight[l] += (double)p[i] * (double)p[i];
            update[l] += (double)u * (double)u;
        }
    }
    sums[0] = td__optim_fold(weight);
    sums[1] = td__optim_fold(update);
}

void TD_ISA_SYM(td__optim_k_lamb_apply)(const td__optim_hyper *h, const td__optim_slice *s)
{
    const float lr = h->lr, l2 = h->l2, eps = h->eps, root = h->root, unbias = h->unbias;
    float *restrict p = s->p;
    const float *restrict mean = s->s[0];
    const float *restrict square = s->s[1];

    for (size_t i = 0; i < s->n; i++)
        p[i] -= lr * (mean[i] * unbias / (sqrtf(square[i]) * root + eps) + l2 * p[i]);
}
