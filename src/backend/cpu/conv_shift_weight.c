/* conv_shift_weight.c -- gradient to the weight in bf16 by shifted products; see conv_shift.h.
 *
 *   dW_ij (c, o) = sum over groups of  X_ij' (c, pixels) dY (pixels, o)
 *
 * X_ij is the view of the expanded images that the forward pass multiplies with tap (i, j). dY is
 * packed once per group, its rows in the order of the expanded images. Sums are f32 (taps, c, o)
 * and turned to (o, c, taps) at the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/conv_shift.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernels/channel_norm.h"
#include "backend/cpu/kernels/reorder.h"
#include "backend/cpu/sizes.h"
#include "base/alloc.h"
#include "base/fail.h"

enum { ROWS = 1024 };

typedef struct weight_state {
    td__conv conv;
    void (*transpose)(void *y, const void *x, int64_t rows, int64_t cols, size_t element_bytes);
    void (*sums)(float *sum, const void *x, bool bf16, int64_t rows, int64_t channels);
    td__gemm gemm;
    td__shift_job job;
    td__shift_source src;
    bool im2col, in_place;
    int64_t ld;
    size_t a_at, y_at, b_at, w_at, line_at, gemm_at; /* offsets in scratch */
} weight_state;

/* dY of a group as the right factor. */
static void pack_dy(const weight_state *s, char *scratch, const uint16_t *dy)
{
    const td__conv *v = &s->conv;
    uint16_t *ordered = (uint16_t *)(void *)(scratch + s->y_at), *to = ordered;
    int64_t line = v->ow * v->o;

    if (s->src.group == 1 || s->im2col || s->in_place) {
        td__gemm_pack(&s->gemm, scratch + s->b_at, dy, TD_BF16, v->o, false);
        return;
    }
    for (int64_t p = 0; p < v->oh; p++)
        for (int64_t n = 0; n < s->src.group; n++, to += line)
            memcpy(to, dy + (n * v->oh + p) * line, (size_t)line * sizeof *to);
    td__gemm_pack(&s->gemm, scratch + s->b_at, ordered, TD_BF16, v->o, false);
}

static void product(const weight_state *s, char *scratch, const uint16_t *a, int64_t m, float *dw,
                    bool accumulate)
{
    td__gemm_run(&s->gemm,
                 &(td__gemm_args){
                     .m = m,
                     .a = a,
                     .lda = s->im2col ? s->ld : s->conv.c,
                     .a_trans = true,
                     .a_dtype = TD_BF16,
                     .b = scratch + s->b_at,
                     .c = dw,
                     .ldc = s->conv.o,
                     .c_dtype = TD_F32,
                     .accumulate = accumulate,
                 },
                 scratch + s->gemm_at);
}

static void run_weight(const td_kernel_call *c)
{
    const weight_state *s = c->kernel->state;
    const td__conv *v = &s->conv;
    const uint16_t *dy = c->in[0], *x = c->in[1];
    char *scratch = c->scratch;
    uint16_t *a = (uint16_t *)(void *)(scratch + s->a_at);
    float *dw = (float *)(void *)(scratch + s->w_at);
    int64_t taps = v->kh * v->kw;

    if (v->bias)
        s->sums(c->out[1], dy, true, v->n * v->oh * v->ow, v->o);
    for (int64_t n = 0; n < v->n; n += s->src.group) {
        const uint16_t *image = x + n * v->h * v->w * v->c;
        pack_dy(s, scratch, dy + n * v->oh * v->ow * v->o);
        if (s->im2col) {
            td__shift_im2col(v, s->src.group, a, s->ld, image,
                             (uint16_t *)(void *)(scratch + s->line_at));
            product(s, scratch, a, taps * v->c, dw, n > 0);
            continue;
        }
        if (!s->in_place)
            td__shift_expand(&s->job, &s->src, a, image);
        for (int64_t t = 0; t < taps; t++) {
            int64_t off = td__shift_offset(&s->job, &s->src, t / v->kw, t % v->kw);
            product(s, scratch, s->in_place ? image : a + off, v->c, dw + t * v->c * v->o, n > 0);
        }
    }
    /* (taps c, o) -> (o, taps c) -> (o, c, taps) */
    float *turned = dw + taps * v->c * v->o, *out = c->out[0];
    s->transpose(turned, dw, taps * v->c, v->o, sizeof *dw);
    for (int64_t o = 0; o < v->o; o++)
        s->transpose(out + o * taps * v->c, turned + o * taps * v->c, taps, v->c, sizeof *dw);
}

static void plan_memory(weight_state *s, td_kernel *k)
{
    const td__conv *v = &s->conv;
    int64_t rows = s->src.group * v->oh * v->ow, taps = v->kh * v->kw;
    int64_t expanded = s->im2col     ? rows * s->ld + 64
                       : s->in_place ? 0
                                     : td__shift_elements(&s->job, &s->src);
    size_t at = 0;

    s->a_at = td__take(&at, (size_t)expanded * 2);
    s->y_at = td__take(&at, (size_t)(rows * v->o) * 2);
    s->b_at = td__take(&at, td__gemm_packed_bytes(&s->gemm));
    s->w_at = td__take(&at, (size_t)(taps * v->c * v->o) * 2 * sizeof(float));
    s->line_at = td__take(&at, s->im2col ? (size_t)td__shift_line(v) * 2 : 0);
    s->gemm_at = td__take(&at, td__gemm_scratch_bytes(&s->gemm));
    k->scratch = at;
}

td_status td__conv_plan_shift_weight(const td__cpu *cpu, const td__conv *v, td_kernel *k)
{
    if (v->pass != TD__CONV_BACK_WEIGHT || v->groups != 1 || !td__conv_is_nhwc(v, TD_BF16))
        return TD_ENOTSUP;
    weight_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan a convolution");
    s->conv = *v;
    s->transpose = TD_ISA_PICK(cpu->isa, td__transpose);
    s->sums = TD_ISA_PICK(cpu->isa, td__channel_norm).sums;
    if (td__shift_jobs(v, TD__CONV_FORWARD, &s->job) == 0) {
        td__free(s);
        return TD_ENOTSUP;
    }
    s->im2col = td__shift_wants_im2col(v);
    s->in_place = td__shift_is_pointwise(v) && !s->im2col;
    s->src = (td__shift_source){
        .h = v->h, .w = v->w, .c = v->c, .group = td__shift_group(v->n, v->oh * v->ow, ROWS)};
    s->ld = td__shift_im2col_width(v);
    s->gemm = td__gemm_plan(s->im2col ? v->kh * v->kw * v->c : v->c, v->o,
                            s->src.group * v->oh * v->ow, 1, TD_BF16, cpu->isa);
    plan_memory(s, k);
    k->state = s;
    k->fini = td__free;
    k->run = run_weight;
    k->impl = s->im2col ? "im2col bf16" : "shifted bf16";
    return TD_OK;
}
