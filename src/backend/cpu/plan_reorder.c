/* plan_reorder.c -- the memory order of an image tensor changes: one transpose per sample, or a
 * copy where both orders are the same bytes (one channel, or one pixel). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/reorder.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct reorder_state {
    void (*transpose)(void *y, const void *x, int64_t rows, int64_t cols, size_t element_bytes);
    int64_t samples, rows, cols; /* one sample is (rows, cols) before, (cols, rows) after */
    size_t element_bytes;
} reorder_state;

static void run_transpose(const td_kernel_call *c)
{
    const reorder_state *s = c->kernel->state;
    size_t sample = (size_t)(s->rows * s->cols) * s->element_bytes;

    for (int64_t i = 0; i < s->samples; i++)
        s->transpose((char *)c->out[0] + (size_t)i * sample,
                     (const char *)c->in[0] + (size_t)i * sample, s->rows, s->cols,
                     s->element_bytes);
}

static void run_copy(const td_kernel_call *c)
{
    memcpy(c->out[0], c->in[0], td__desc_bytes(&c->kernel->node->out[0]));
}

td_status td__cpu_plan_reorder(const td__cpu *cpu, const td_node *n, const bool *is_param,
                               td_kernel *k)
{
    const td_desc *from = td__in_desc(n, 0), *to = &n->out[0];
    int64_t channels = from->shape.dim[1], pixels = from->shape.dim[2] * from->shape.dim[3];

    (void)is_param;
    if (from->layout == to->layout || channels <= 1 || pixels <= 1) {
        k->run = run_copy;
        k->impl = "copy";
        return TD_OK;
    }
    reorder_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan %s", n->name);
    s->transpose = TD_ISA_PICK(cpu->isa, td__transpose);
    s->samples = from->shape.dim[0];
    s->rows = from->layout == TD_LAYOUT_NHWC ? pixels : channels;
    s->cols = from->layout == TD_LAYOUT_NHWC ? channels : pixels;
    s->element_bytes = td_dtype_size(from->dtype);
    k->state = s;
    k->fini = td__free;
    k->run = run_transpose;
    k->impl = "transpose";
    return TD_OK;
}
