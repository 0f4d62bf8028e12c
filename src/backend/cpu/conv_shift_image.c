/* conv_shift_image.c -- forward and gradient to the data in bf16 by shifted products; the idea is
 * in conv_shift.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/conv_shift.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernels/reorder.h"
#include "backend/cpu/sizes.h"
#include "base/alloc.h"
#include "base/fail.h"

enum { ROWS = 512 /* pixels that go into one product, about */ };

typedef struct image_state {
    td__conv conv;
    void (*transpose)(void *y, const void *x, int64_t rows, int64_t cols, size_t element_bytes);
    td__gemm gemm;
    int n_jobs;
    td__shift_job job[TD__SHIFT_MAX_JOBS];
    td__shift_source src;
    int64_t out_h, out_w, out_c;
    bool im2col, in_place;                     /* in_place: the source itself is the factor */
    bool packed;                               /* weight packed in prepare, else in scratch */
    int64_t ld;                                /* im2col: elements of a row */
    size_t matrix;                             /* bytes of one packed factor */
    size_t w_at, a_at, y_at, line_at, gemm_at; /* offsets in scratch */
} image_state;

/* The factors of all jobs, tap after tap. The weight (o, c, taps) is first turned to (o, taps, c),
 * so that each tap is a matrix with a leading dimension. */
static void pack_weight(const image_state *s, char *packed, const float *w, float *turned)
{
    const td__conv *v = &s->conv;
    int64_t taps = v->kh * v->kw;
    bool forward = v->pass == TD__CONV_FORWARD;

    for (int64_t o = 0; o < v->o; o++)
        s->transpose(turned + o * v->c * taps, w + o * v->c * taps, v->c, taps, sizeof *w);
    if (s->im2col) {
        td__gemm_pack(&s->gemm, packed, turned, TD_F32, v->c * taps, true);
        return;
    }
    for (int j = 0; j < s->n_jobs; j++) {
        const td__shift_axis *row = &s->job[j].row, *col = &s->job[j].col;
        for (int64_t t = 0; t < row->taps * col->taps; t++, packed += s->matrix) {
            int64_t tap = row->tap[t / col->taps] * v->kw + col->tap[t % col->taps];
            td__gemm_pack(&s->gemm, packed, turned + tap * v->c, TD_F32, v->c * taps, forward);
        }
    }
}

static void prepare_weight(const td_kernel_call *c)
{
    pack_weight(c->kernel->state, c->packed, c->in[1], c->scratch);
}

/* Move a group's results, rows in the order (p, image, q), to their places in images y. */
static void scatter(const image_state *s, const td__shift_job *job, uint16_t *y,
                    const uint16_t *from)
{
    const td__shift_axis *row = &job->row, *col = &job->col;
    size_t pixel = (size_t)s->out_c * sizeof *y;

    for (int64_t p = 0; p < row->outputs; p++) {
        for (int64_t n = 0; n < s->src.group; n++) {
            uint16_t *line = y + ((n * s->out_h + row->out_first + p * row->out_step) * s->out_w +
                                  col->out_first) *
                                     s->out_c;
            if (!from) {
                for (int64_t q = 0; q < col->outputs; q++)
                    memset(line + q * col->out_step * s->out_c, 0, pixel);
                continue;
            }
            if (col->out_step == 1)
                memcpy(line, from, (size_t)col->outputs * pixel);
            for (int64_t q = 0; q < col->outputs && col->out_step != 1; q++)
                memcpy(line + q * col->out_step * s->out_c, from + q * s->out_c, pixel);
            from += col->outputs * s->out_c;
        }
    }
}

static void run_job(const td_kernel_call *c, const td__shift_job *job, const char *weight,
                    const uint16_t *x, uint16_t *y)
{
    const image_state *s = c->kernel->state;
    char *scratch = c->scratch;
    uint16_t *a = (uint16_t *)(void *)(scratch + s->a_at);
    uint16_t *buffer = (uint16_t *)(void *)(scratch + s->y_at);
    bool direct = s->im2col || s->in_place ||
                  (s->src.group == 1 && job->row.out_step == 1 && job->col.out_step == 1);
    int64_t off[TD__SHIFT_MAX_TAPS * TD__SHIFT_MAX_TAPS], n = 0;

    if (!s->im2col && !s->in_place) {
        for (int64_t i = 0; i < job->row.taps; i++)
            for (int64_t j = 0; j < job->col.taps; j++)
                off[n++] = td__shift_offset(job, &s->src, i, j);
        if (n == 0) {
            scatter(s, job, y, NULL);
            return;
        }
        td__shift_expand(job, &s->src, a, x);
    } else if (s->im2col) {
        td__shift_im2col(&s->conv, s->src.group, a, s->ld, x,
                         (uint16_t *)(void *)(scratch + s->line_at));
    }
    td__gemm_run(&s->gemm,
                 &(td__gemm_args){
                     .m = s->src.group * job->row.outputs * job->col.outputs,
                     .a = s->in_place ? x : a,
                     .a_off = n ? off : NULL,
                     .reduce = n,
                     .lda = s->im2col ? s->ld : s->src.c,
                     .a_dtype = TD_BF16,
                     .b = weight,
                     .c = direct ? y : buffer,
                     .ldc = s->out_c,
                     .c_dtype = TD_BF16,
                     .post = {.bias = s->conv.bias ? c->in[2] : NULL,
                              .act = s->conv.relu ? TD_ACT_RELU : TD_ACT_NONE},
                 },
                 scratch + s->gemm_at);
    if (!direct)
        scatter(s, job, y, buffer);
}

static void run_image(const td_kernel_call *c)
{
    const image_state *s = c->kernel->state;
    char *scratch = c->scratch;
    const char *weight = s->packed ? c->packed : scratch + s->w_at;
    int64_t in_image = s->src.h * s->src.w * s->src.c, out_image = s->out_h * s->out_w * s->out_c;

    if (!s->packed) /* the turned weight lies where the expanded image will */
        pack_weight(s, scratch + s->w_at, c->in[1], (float *)(void *)(scratch + s->a_at));
    for (int64_t n = 0; n < s->conv.n; n += s->src.group) {
        const char *w = weight;
        for (int j = 0; j < s->n_jobs; j++) {
            run_job(c, &s->job[j], w, (const uint16_t *)c->in[0] + n * in_image,
                    (uint16_t *)c->out[0] + n * out_image);
            w += (size_t)(s->job[j].row.taps * s->job[j].col.taps) * s->matrix;
        }
    }
}

static void plan_memory(image_state *s, td_kernel *k, bool param)
{
    const td__conv *v = &s->conv;
    size_t at = 0, weight = 0, expanded = 0, out = 0;

    for (int j = 0; j < s->n_jobs; j++) {
        const td__shift_job *job = &s->job[j];
        int64_t rows = s->src.group * job->row.outputs * job->col.outputs;
        weight += (size_t)(job->row.taps * job->col.taps) * s->matrix;
        expanded = td__max_size(expanded, (size_t)td__shift_elements(job, &s->src) * 2);
        if (s->im2col)
            expanded = (size_t)(rows * s->ld + 64) * 2;
        out = td__max_size(out, (size_t)(rows * s->out_c) * 2);
    }
    if (s->im2col)
        weight = s->matrix;
    size_t turned = (size_t)(v->o * v->c * v->kh * v->kw) * sizeof(float);
    s->packed = param;
    if (param) {
        k->prepare = prepare_weight;
        k->packs = 1u << 1;
        k->packed = weight;
    }
    /* prepare turns the weight at the start of scratch, run in the expanded image's place */
    s->w_at = td__take(&at, param ? 0 : weight);
    s->a_at = td__take(&at, td__max_size(expanded, param ? 0 : turned));
    s->y_at = td__take(&at, out);
    s->line_at = td__take(&at, s->im2col ? (size_t)td__shift_line(v) * 2 : 0);
    s->gemm_at = td__take(&at, td__gemm_scratch_bytes(&s->gemm));
    k->scratch = td__max_size(at, turned);
}

td_status td__conv_plan_shift_image(const td__cpu *cpu, const td__conv *v, td_kernel *k)
{
    bool forward = v->pass == TD__CONV_FORWARD;

    if (v->pass == TD__CONV_BACK_WEIGHT || v->groups != 1 || !td__conv_is_nhwc(v, TD_BF16))
        return TD_ENOTSUP;
    image_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan a convolution");
    s->conv = *v;
    s->transpose = TD_ISA_PICK(cpu->isa, td__transpose);
    s->n_jobs = td__shift_jobs(v, v->pass, s->job);
    if (s->n_jobs == 0) {
        td__free(s);
        return TD_ENOTSUP;
    }
    s->src = forward ? (td__shift_source){.h = v->h, .w = v->w, .c = v->c}
                     : (td__shift_source){.h = v->oh, .w = v->ow, .c = v->o};
    s->out_h = forward ? v->oh : v->h;
    s->out_w = forward ? v->ow : v->w;
    s->out_c = forward ? v->o : v->c;
    s->src.group = td__shift_group(v->n, s->job[0].row.outputs * s->job[0].col.outputs, ROWS);
    s->im2col = forward && td__shift_wants_im2col(v);
    s->in_place = td__shift_is_pointwise(v) && !s->im2col;
    s->ld = td__shift_im2col_width(v);
    int64_t depth = s->im2col ? v->kh * v->kw * v->c : s->src.c;
    int64_t rows = s->src.group * s->job[0].row.outputs * s->job[0].col.outputs;
    s->gemm =
        td__gemm_plan(rows, s->out_c, depth, s->im2col ? 1 : v->kh * v->kw, TD_BF16, cpu->isa);
    s->matrix = td__gemm_packed_bytes(&s->gemm);
    plan_memory(s, k, v->weight_is_param);
    k->state = s;
    k->fini = td__free;
    k->run = run_image;
    k->impl = s->im2col ? "im2col bf16" : "shifted bf16";
    return TD_OK;
}
