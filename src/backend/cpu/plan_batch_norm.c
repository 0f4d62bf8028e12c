/* plan_batch_norm.c -- batch normalisation over channels-last activations, forward, backward and
 * evaluation, with the residual sum and relu that follow fused into the second pass.
 *
 *   forward   mean, var over the M = N H W rows of channel c; rstd = 1 / sqrt(var + eps)
 *             y = act((x - mean) gamma rstd + beta + residual)
 *   backward  dz = dy where y > 0 (relu), s1 = sum dz, s2 = sum dz (x - mean)
 *             dbeta = s1, dgamma = rstd s2, dresidual = dz
 *             dx = gamma rstd (dz - s1 / M - (x - mean) rstd^2 s2 / M)
 *
 * Each direction reads its activations twice: once for the sums, once for the result. Activations
 * with the channels elsewhere, (N, C, ...), are turned into scratch and back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/channel_norm.h"
#include "backend/cpu/kernels/reorder.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct norm_state {
    td__channel_norm_kernels kernels;
    void (*transpose)(void *y, const void *x, int64_t rows, int64_t cols, size_t element_bytes);
    void (*rows_run)(const td_kernel_call *c); /* run on (rows, channels) */
    td_attr_norm attr;
    int64_t samples, inner; /* rows = samples x inner */
    int64_t rows, channels;
    unsigned images; /* which inputs, and from bit 16 on outputs, are activations */
    size_t image_bytes, work_bytes;
    bool bf16;
} norm_state;

/* Run on turned copies of the activations, which lie in scratch behind the kernel's own. */
static void run_turned(const td_kernel_call *c)
{
    const norm_state *s = c->kernel->state;
    const td_node *n = c->kernel->node;
    size_t element = s->bf16 ? 2 : 4, sample = (size_t)(s->inner * s->channels) * element;
    char *next = (char *)c->scratch + s->work_bytes;
    const void *in[TD_MAX_IN];
    void *out[TD_MAX_OUT];
    td_kernel_call turned = *c;

    for (int i = 0; i < n->n_in; i++) {
        in[i] = c->in[i];
        if (!(s->images >> i & 1u))
            continue;
        for (int64_t j = 0; j < s->samples; j++)
            s->transpose(next + (size_t)j * sample, (const char *)c->in[i] + (size_t)j * sample,
                         s->channels, s->inner, element);
        in[i] = next;
        next += s->image_bytes;
    }
    for (int i = 0; i < n->n_out; i++) {
        out[i] = s->images >> (16 + i) & 1u ? next : c->out[i];
        next += out[i] == next ? s->image_bytes : 0;
    }
    turned.in = in;
    turned.out = out;
    s->rows_run(&turned);
    for (int i = 0; i < n->n_out; i++)
        for (int64_t j = 0; j < s->samples && (s->images >> (16 + i) & 1u); j++)
            s->transpose((char *)c->out[i] + (size_t)j * sample,
                         (const char *)out[i] + (size_t)j * sample, s->inner, s->channels, element);
}

/* `images`: bit mask over inputs, then outputs from bit 16 on, that must look like input `like`. */
static td_status make_state(const td__cpu *cpu, const td_node *n, int like, unsigned images,
                            void (*run)(const td_kernel_call *c), td_kernel *k)
{
    const td_desc *x = td__in_desc(n, like);

    if (!td__is_f32_or_bf16(x->dtype) || td__desc_count(x) == 0)
        return TD_ENOTSUP;
    for (int i = 0; i < n->n_in; i++) {
        const td_desc *d = td__in_desc(n, i);
        if ((images >> i & 1u) ? d->dtype != x->dtype || d->layout != x->layout
                               : d->dtype != TD_F32)
            return TD_ENOTSUP;
    }
    for (int i = 0; i < n->n_out; i++) {
        const td_desc *d = &n->out[i];
        if ((images >> (16 + i) & 1u) ? d->dtype != x->dtype || d->layout != x->layout
                                      : d->dtype != TD_F32)
            return TD_ENOTSUP;
    }
    norm_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan %s", n->name);
    s->kernels = TD_ISA_PICK(cpu->isa, td__channel_norm);
    s->transpose = TD_ISA_PICK(cpu->isa, td__transpose);
    s->rows_run = run;
    s->attr = *(const td_attr_norm *)n->attr;
    s->samples = x->shape.dim[0];
    s->channels = x->shape.dim[1];
    s->rows = td__desc_count(x) / s->channels;
    s->inner = s->rows / s->samples;
    s->images = images;
    s->bf16 = x->dtype == TD_BF16;
    s->image_bytes = td__align_up(td__desc_bytes(x), 64);
    s->work_bytes =
        td__align_up((size_t)s->channels * (2 * sizeof(double) + 3 * sizeof(float)), 64);
    k->state = s;
    k->fini = td__free;
    k->scratch = s->work_bytes;
    k->run = run;
    k->impl = "channels-last batch norm";
    if (x->layout != TD_LAYOUT_NHWC && s->inner > 1 && s->channels > 1) {
        k->scratch += (size_t)__builtin_popcount(images) * s->image_bytes;
        k->run = run_turned;
        k->impl = "turned batch norm";
    }
    return TD_OK;
}

/* In forward and evaluation alike. */
static const void *residual_of(const td_kernel_call *c, const norm_state *s)
{
    return s->attr.has_residual ? c->in[5] : NULL;
}

static void run_forward(const td_kernel_call *c)
{
    const norm_state *s = c->kernel->state;
    const float *gamma = c->in[1], *beta = c->in[2];
    const void *residual = residual_of(c, s);
    float *mean = c->out[1], *rstd = c->out[2], *var = c->out[3];
    double *mean64 = c->scratch, *m2 = mean64 + s->channels;
    float *scale = (float *)(m2 + s->channels);

    s->kernels.stats(mean64, m2, c->in[0], s->bf16, s->rows, s->channels);
    double unbias = s->rows > 1 ? (double)(s->rows - 1) : 1.0;
    for (int64_t i = 0; i < s->channels; i++) {
        double r = 1.0 / sqrt(m2[i] / (double)s->rows + s->attr.eps);
        mean[i] = (float)mean64[i];
        rstd[i] = (float)r;
        var[i] = (float)(m2[i] / unbias);
        scale[i] = gamma[i] * (float)r;
    }
    s->kernels.apply(c->out[0], c->in[0], residual, mean, scale, beta, s->attr.act == TD_ACT_RELU,
                     s->bf16, s->rows, s->channels);
}

td_status td__cpu_plan_batch_norm(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                  td_kernel *k)
{
    const td_attr_norm *a = n->attr;
    unsigned residual = a->has_residual ? 1u << 5 : 0u;

    (void)is_param;
    return make_state(cpu, n, 0, 1u | residual | 1u << 16, run_forward, k);
}

static void run_backward(const td_kernel_call *c)
{
    const norm_state *s = c->kernel->state;
    const void *dy = c->in[0], *x = c->in[1];
    const float *gamma = c->in[2], *mean = c->in[3], *rstd = c->in[4];
    const void *y = s->attr.act == TD_ACT_RELU ? c->in[5] : NULL;
    void *dresidual = s->attr.has_residual ? c->out[3] : NULL;
    float *dgamma = c->out[1], *dbeta = c->out[2];
    double *s1 = c->scratch, *s2 = s1 + s->channels;
    float *k1 = (float *)(s2 + s->channels), *k2 = k1 + s->channels, *k3 = k2 + s->channels;

    s->kernels.back_sums(s1, s2, dresidual, dy, x, y, mean, s->bf16, s->rows, s->channels);
    double per_row = 1.0 / (double)s->rows;
    for (int64_t i = 0; i < s->channels; i++) {
        double r = (double)rstd[i], g = (double)gamma[i] * r;
        dgamma[i] = (float)(s2[i] * r);
        dbeta[i] = (float)s1[i];
        k1[i] = (float)g;
        k2[i] = (float)(g * s1[i] * per_row);
        k3[i] = (float)(g * r * r * s2[i] * per_row);
    }
    /* dresidual already is dz. */
    s->kernels.back_apply(c->out[0], dresidual ? dresidual : dy, x, dresidual ? NULL : y, mean, k1,
                          k2, k3, s->bf16, s->rows, s->channels);
}

td_status td__cpu_plan_batch_norm_back(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                       td_kernel *k)
{
    const td_attr_norm *a = n->attr;
    unsigned images = 1u | 2u | 1u << 5 | 1u << 16 | (a->has_residual ? 1u << 19 : 0u);

    (void)is_param;
    if (a->by_beta || a->has_more) /* for backends that want passes in one */
        return TD_ENOTSUP;
    return make_state(cpu, n, 1, images, run_backward, k);
}

static void run_eval(const td_kernel_call *c)
{
    const norm_state *s = c->kernel->state;
    const float *gamma = c->in[1], *beta = c->in[2], *mean = c->in[3], *var = c->in[4];
    float *scale = c->scratch;

    for (int64_t i = 0; i < s->channels; i++)
        scale[i] = (float)((double)gamma[i] / sqrt((double)var[i] + s->attr.eps));
    s->kernels.apply(c->out[0], c->in[0], residual_of(c, s), mean, scale, beta,
                     s->attr.act == TD_ACT_RELU, s->bf16, s->rows, s->channels);
}

td_status td__cpu_plan_batch_norm_eval(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                       td_kernel *k)
{
    const td_attr_norm *a = n->attr;

    (void)is_param;
    return make_state(cpu, n, 0, 1u | (a->has_residual ? 1u << 5 : 0u) | 1u << 16, run_eval, k);
}
