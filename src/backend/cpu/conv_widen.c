/* conv_widen.c -- bf16 convolutions that the bf16 kernels do not do (groups, huge filters): the
 * activations are widened into scratch, another implementation computes in f32, the result is
 * rounded. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/conv.h"
#include "backend/cpu/kernels/convert.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

typedef struct widen_state {
    td_kernel inner;
    void (*widen)(float *y, const td_bf16 *x, int64_t n);
    void (*narrow)(td_bf16 *y, const float *x, int64_t n);
    td__conv_pass pass;
    int64_t x_count, y_count;
    size_t x_at, y_at; /* f32 copies in scratch, behind the inner kernel's */
} widen_state;

static void fini_state(void *state)
{
    widen_state *s = state;
    if (s->inner.fini)
        s->inner.fini(s->inner.state);
    td__free(s);
}

static void prepare(const td_kernel_call *c)
{
    const widen_state *s = c->kernel->state;
    td_kernel_call inner = *c;
    inner.kernel = &s->inner;
    s->inner.prepare(&inner);
}

static void run(const td_kernel_call *c)
{
    const widen_state *s = c->kernel->state;
    float *x = (float *)(void *)((char *)c->scratch + s->x_at);
    float *y = (float *)(void *)((char *)c->scratch + s->y_at);
    const void *in[3] = {c->in[0], c->in[1], NULL};
    void *out[2] = {c->out[0], NULL};
    td_kernel_call inner = *c;

    inner.kernel = &s->inner;
    inner.in = in;
    inner.out = out;
    switch (s->pass) {
    case TD__CONV_FORWARD:
        s->widen(x, c->in[0], s->x_count);
        in[0] = x;
        in[2] = c->kernel->node->n_in > 2 ? c->in[2] : NULL;
        out[0] = y;
        s->inner.run(&inner);
        s->narrow(c->out[0], y, s->y_count);
        break;
    case TD__CONV_BACK_DATA:
        s->widen(y, c->in[0], s->y_count);
        in[0] = y;
        out[0] = x;
        s->inner.run(&inner);
        s->narrow(c->out[0], x, s->x_count);
        break;
    case TD__CONV_BACK_WEIGHT:
        s->widen(y, c->in[0], s->y_count);
        s->widen(x, c->in[1], s->x_count);
        in[0] = y;
        in[1] = x;
        out[1] = c->kernel->node->n_out > 1 ? c->out[1] : NULL;
        s->inner.run(&inner);
        break;
    }
}

td_status td__conv_plan_widen(const td__cpu *cpu, const td__conv *v, td_kernel *k)
{
    td__conv wide = *v;

    if (v->x.dtype != TD_BF16 || v->y.dtype != TD_BF16)
        return TD_ENOTSUP;
    widen_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan a convolution");
    wide.x.dtype = wide.y.dtype = TD_F32;
    s->inner = (td_kernel){.node = k->node};
    td_status st = td__conv_plan_onednn(cpu, &wide, &s->inner);
    if (st) {
        td__free(s);
        return st;
    }
    s->widen = TD_ISA_PICK(cpu->isa, td__bf16_to_f32_array);
    s->narrow = TD_ISA_PICK(cpu->isa, td__f32_to_bf16_array);
    s->pass = v->pass;
    s->x_count = td__desc_count(&v->x);
    s->y_count = td__desc_count(&v->y);
    s->x_at = td__align_up(s->inner.scratch, 64);
    s->y_at = td__align_up(s->x_at + (size_t)s->x_count * sizeof(float), 64);
    k->scratch = s->y_at + (size_t)s->y_count * sizeof(float);
    k->packed = s->inner.packed;
    k->packs = s->inner.packs;
    k->prepare = s->inner.prepare ? prepare : NULL;
    k->run = run;
    k->state = s;
    k->fini = fini_state;
    k->impl = "widened f32 conv";
    return TD_OK;
}
