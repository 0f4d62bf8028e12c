/* plan_group_norm.c -- group normalisation over NHWC images, forward and backward.
 *
 * Each image is a matrix (pixels, channels), so the loops are those of batch_norm, one image at a
 * time; per-channel sums are joined to sums of groups in between. With m elements in a group and
 * h = gamma dy:
 *
 *   y  = (x - mean) gamma rstd + beta
 *   dx = rstd (h - sum h / m - (x - mean) rstd^2 sum(h (x - mean)) / m) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/channel_norm.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct group_state {
    td__channel_norm_kernels kernels;
    int64_t images, pixels, channels, groups;
    double eps;
    bool bf16;
} group_state;

static td_status make_state(const td__cpu *cpu, const td_node *n, td_kernel *k)
{
    const td_desc *x = td__in_desc(n, 0);
    const td_attr_norm *a = n->attr;
    bool lies_nhwc = x->layout == TD_LAYOUT_NHWC || x->shape.dim[2] * x->shape.dim[3] == 1;

    if (!td__is_f32_or_bf16(x->dtype) || !lies_nhwc || td__desc_count(x) == 0)
        return TD_ENOTSUP;
    /* x, and in backward dy before it, are the activations; all else is f32. */
    for (int i = 1; i < n->n_in; i++) {
        const td_desc *d = td__in_desc(n, i);
        bool activation = n->op == TD_OP_GROUP_NORM_BACK && i == 1;
        if (activation ? d->dtype != x->dtype || d->layout != x->layout : d->dtype != TD_F32)
            return TD_ENOTSUP;
    }
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i].dtype != (i == 0 ? x->dtype : TD_F32) || n->out[0].layout != x->layout)
            return TD_ENOTSUP;
    group_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan %s", n->name);
    s->kernels = TD_ISA_PICK(cpu->isa, td__channel_norm);
    s->images = x->shape.dim[0];
    s->channels = x->shape.dim[1];
    s->pixels = x->shape.dim[2] * x->shape.dim[3];
    s->groups = a->groups;
    s->eps = a->eps;
    s->bf16 = x->dtype == TD_BF16;
    k->state = s;
    k->fini = td__free;
    k->scratch = (size_t)s->channels * (4 * sizeof(double) + 4 * sizeof(float));
    k->impl = "nhwc group norm";
    return TD_OK;
}

static const char *image_of(const group_state *s, const void *x, int64_t n)
{
    return (const char *)x + (size_t)(n * s->pixels * s->channels) * (s->bf16 ? 2 : 4);
}

static void run_forward(const td_kernel_call *c)
{
    const group_state *s = c->kernel->state;
    const float *gamma = c->in[1], *beta = c->in[2];
    double *mean64 = c->scratch, *m2 = mean64 + s->channels;
    float *mean = (float *)(m2 + s->channels), *scale = mean + s->channels;
    float *mean_out = c->out[1], *rstd_out = c->out[2]; /* (images, groups) */
    int64_t per = s->channels / s->groups;

    for (int64_t n = 0; n < s->images; n++) {
        const char *x = image_of(s, c->in[0], n);
        s->kernels.stats(mean64, m2, x, s->bf16, s->pixels, s->channels);
        for (int64_t g = 0; g < s->groups; g++) {
            double m = 0, sum = 0;
            for (int64_t i = g * per; i < (g + 1) * per; i++)
                m += mean64[i] / (double)per;
            for (int64_t i = g * per; i < (g + 1) * per; i++)
                sum += m2[i] + (double)s->pixels * (mean64[i] - m) * (mean64[i] - m);
            double rstd = 1.0 / sqrt(sum / (double)(per * s->pixels) + s->eps);
            mean_out[n * s->groups + g] = (float)m;
            rstd_out[n * s->groups + g] = (float)rstd;
            for (int64_t i = g * per; i < (g + 1) * per; i++) {
                mean[i] = (float)m;
                scale[i] = gamma[i] * (float)rstd;
            }
        }
        s->kernels.apply((void *)(uintptr_t)image_of(s, c->out[0], n), x, NULL, mean, scale, beta,
                         false, s->bf16, s->pixels, s->channels);
    }
}

td_status td__cpu_plan_group_norm(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                  td_kernel *k)
{
    (void)is_param;
    k->run = run_forward;
    return make_state(cpu, n, k);
}

static void run_backward(const td_kernel_call *c)
{
    const group_state *s = c->kernel->state;
    const float *gamma = c->in[2], *mean_in = c->in[3], *rstd_in = c->in[4];
    float *dgamma = c->out[1], *dbeta = c->out[2];
    double *s1 = c->scratch, *s2 = s1 + s->channels, *sum1 = s2 + s->channels;
    double *sum2 = sum1 + s->channels;
    float *mean = (float *)(sum2 + s->channels), *k1 = mean + s->channels;
    float *k2 = k1 + s->channels, *k3 = k2 + s->channels;
    int64_t per = s->channels / s->groups;

    for (int64_t i = 0; i < s->channels; i++)
        sum1[i] = sum2[i] = 0.0;
    for (int64_t n = 0; n < s->images; n++) {
        const char *dy = image_of(s, c->in[0], n), *x = image_of(s, c->in[1], n);
        for (int64_t i = 0; i < s->channels; i++)
            mean[i] = mean_in[n * s->groups + i / per];
        s->kernels.back_sums(s1, s2, NULL, dy, x, NULL, mean, s->bf16, s->pixels, s->channels);
        for (int64_t g = 0; g < s->groups; g++) {
            double r = (double)rstd_in[n * s->groups + g], h1 = 0, h2 = 0;
            double share = 1.0 / (double)(per * s->pixels);
            for (int64_t i = g * per; i < (g + 1) * per; i++) {
                h1 += (double)gamma[i] * s1[i];
                h2 += (double)gamma[i] * s2[i];
                sum1[i] += s1[i];
                sum2[i] += s2[i] * r;
            }
            for (int64_t i = g * per; i < (g + 1) * per; i++) {
                k1[i] = (float)((double)gamma[i] * r);
                k2[i] = (float)(r * h1 * share);
                k3[i] = (float)(r * r * r * h2 * share);
            }
        }
        s->kernels.back_apply((void *)(uintptr_t)image_of(s, c->out[0], n), dy, x, NULL, mean, k1,
                              k2, k3, s->bf16, s->pixels, s->channels);
    }
    for (int64_t i = 0; i < s->channels; i++) {
        dgamma[i] = (float)sum2[i];
        dbeta[i] = (float)sum1[i];
    }
}

td_status td__cpu_plan_group_norm_back(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                       td_kernel *k)
{
    (void)is_param;
    k->run = run_backward;
    return make_state(cpu, n, k);
}
