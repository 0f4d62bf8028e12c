/* conv_first.c -- forward and weight gradient of convolutions over few channels, f32 and bf16, by
 * the direct loops of kernels/conv_first.h. Products are f32; weights are rounded to bf16 first in
 * bf16, as everywhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/conv.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/channel_norm.h"
#include "backend/cpu/kernels/conv_first.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"

/* oneDNN is as fast in f32 from three channels on (measured on Zen 4). */
enum { CHANNELS_F32 = 2, CHANNELS_BF16 = 4 };

typedef struct first_state {
    td__first_kernels kernels;
    void (*sums)(float *sum, const void *x, bool bf16, int64_t rows, int64_t channels);
    td__first g;
    int64_t n;
    bool relu, bias;
    size_t x_at; /* the padded image in scratch; the turned weight (taps c, o) lies at 0 */
} first_state;

static int64_t taps_of(const td__first *g)
{
    return g->kh * g->kw * g->c;
}

static const char *image_of(const void *x, int64_t n, int64_t count, bool bf16)
{
    return (const char *)x + (size_t)(n * count) * (bf16 ? 2 : 4);
}

/* (o, c, kh kw) to (kh kw c, o). */
static void turn_weight(const td__first *g, float *to, const float *w)
{
    int64_t taps = g->kh * g->kw;

    for (int64_t o = 0; o < g->o; o++)
        for (int64_t c = 0; c < g->c; c++)
            for (int64_t t = 0; t < taps; t++) {
                float v = *w++;
                to[(t * g->c + c) * g->o + o] = g->bf16 ? td__bf16_to_f32(td__bf16_from_f32(v)) : v;
            }
}

static void run_forward(const td_kernel_call *c)
{
    const first_state *s = c->kernel->state;
    const td__first *g = &s->g;
    float *w = c->scratch, *x = (float *)(void *)((char *)c->scratch + s->x_at);

    turn_weight(g, w, c->in[1]);
    for (int64_t n = 0; n < s->n; n++) {
        char *y = (char *)c->out[0] + (size_t)(n * g->oh * g->ow * g->o) * (g->bf16 ? 2 : 4);
        s->kernels.widen(g, x, image_of(c->in[0], n, g->h * g->w * g->c, g->bf16));
        s->kernels.forward(g, y, x, w, s->bias ? c->in[2] : NULL, s->relu);
    }
}

static void run_weight(const td_kernel_call *c)
{
    const first_state *s = c->kernel->state;
    const td__first *g = &s->g;
    float *sums = c->scratch, *x = (float *)(void *)((char *)c->scratch + s->x_at);
    float *dw = c->out[0];
    int64_t taps = g->kh * g->kw;

    if (s->bias)
        s->sums(c->out[1], c->in[0], g->bf16, s->n * g->oh * g->ow, g->o);
    memset(sums, 0, (size_t)(taps_of(g) * g->o) * sizeof *sums);
    for (int64_t n = 0; n < s->n; n++) {
        s->kernels.widen(g, x, image_of(c->in[1], n, g->h * g->w * g->c, g->bf16));
        s->kernels.weight(g, sums, x, image_of(c->in[0], n, g->oh * g->ow * g->o, g->bf16));
    }
    for (int64_t o = 0; o < g->o; o++)
        for (int64_t ch = 0; ch < g->c; ch++)
            for (int64_t t = 0; t < taps; t++)
                *dw++ = sums[(t * g->c + ch) * g->o + o];
}

td_status td__conv_plan_first(const td__cpu *cpu, const td__conv *v, td_kernel *k)
{
    bool bf16 = v->x.dtype == TD_BF16;

    if ((v->x.dtype != TD_F32 && !bf16) || !td__conv_is_nhwc(v, v->x.dtype) || v->groups != 1 ||
        v->c > (bf16 ? CHANNELS_BF16 : CHANNELS_F32) || v->o % 32 != 0 || v->dilation[0] != 1 ||
        v->dilation[1] != 1 || v->pass == TD__CONV_BACK_DATA ||
        (v->pass == TD__CONV_BACK_WEIGHT && !td__first_weight_sizes(v->kh, v->kw, v->c)))
        return TD_ENOTSUP;
    first_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan a convolution");
    s->kernels = TD_ISA_PICK(cpu->isa, td__first);
    s->sums = TD_ISA_PICK(cpu->isa, td__channel_norm).sums;
    s->n = v->n;
    s->relu = v->relu;
    s->bias = v->bias;
    s->g = (td__first){
        .h = v->h,
        .w = v->w,
        .c = v->c,
        .oh = v->oh,
        .ow = v->ow,
        .o = v->o,
        .kh = v->kh,
        .kw = v->kw,
        .stride = {v->stride[0], v->stride[1]},
        .pad = {v->pad[0], v->pad[1]},
        .line = (v->w + 2 * v->pad[1]) * v->c,
        .bf16 = bf16,
    };
    s->x_at = td__align_up((size_t)(taps_of(&s->g) * v->o) * sizeof(float), 64);
    k->scratch = s->x_at + (size_t)((v->h + 2 * v->pad[0]) * s->g.line) * sizeof(float);
    k->state = s;
    k->fini = td__free;
    k->run = v->pass == TD__CONV_FORWARD ? run_forward : run_weight;
    k->impl = bf16 ? "direct bf16" : "direct f32";
    return TD_OK;
}
