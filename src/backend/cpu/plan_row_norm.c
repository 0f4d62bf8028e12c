/* plan_row_norm.c -- layer_norm, rms_norm and their gradients on kernels/row_norm.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/row_norm.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"
#include "ops/op_check.h"

typedef struct norm_state {
    td__row_norm shape;
    bool is_layer;
    td__row_norm_fn *run;
    td__row_norm_back_fn *back;
} norm_state;

static void run(const td_kernel_call *c)
{
    const norm_state *s = c->kernel->state;

    if (s->is_layer)
        s->run(&s->shape, c->out[0], c->out[1], c->out[2], c->in[0], c->in[1], c->in[2],
               c->scratch);
    else
        s->run(&s->shape, c->out[0], NULL, c->out[1], c->in[0], c->in[1], NULL, c->scratch);
}

static void run_back(const td_kernel_call *c)
{
    const norm_state *s = c->kernel->state;

    if (s->is_layer)
        s->back(&s->shape, c->out[0], c->out[1], c->out[2], c->in[0], c->in[1], c->in[2], c->in[3],
                c->in[4], c->scratch);
    else
        s->back(&s->shape, c->out[0], c->out[1], NULL, c->in[0], c->in[1], c->in[2], NULL, c->in[3],
                c->scratch);
}

td_status td__cpu_plan_row_norm(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                td_kernel *k)
{
    const td_attr_norm *a = n->attr;
    const td_desc *d = td__in_desc(n, 0);
    bool back = n->op == TD_OP_LAYER_NORM_BACK || n->op == TD_OP_RMS_NORM_BACK;
    bool is_layer = n->op == TD_OP_LAYER_NORM || n->op == TD_OP_LAYER_NORM_BACK;

    (void)is_param;
    if (!td__is_narrow(d->dtype) || a->has_residual)
        return TD_ENOTSUP;
    for (int i = back ? 2 : 1; i < n->n_in; i++)
        if (td__in_desc(n, i)->dtype != TD_F32)
            return TD_ENOTSUP;
    norm_state *s = td__calloc(1, sizeof *s);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->shape = (td__row_norm){.dtype = d->dtype, .eps = (float)a->eps};
    s->shape.rows = td__row_count(&d->shape);
    s->shape.width = td__last_dim(&d->shape);
    s->is_layer = is_layer;
    s->run = is_layer ? TD_ISA_PICK(cpu->isa, td__layer_norm) : TD_ISA_PICK(cpu->isa, td__rms_norm);
    s->back = is_layer ? TD_ISA_PICK(cpu->isa, td__layer_norm_back)
                       : TD_ISA_PICK(cpu->isa, td__rms_norm_back);
    k->run = back ? run_back : run;
    k->impl = "rows";
    k->scratch = 4 * (size_t)s->shape.width * sizeof(float);
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}
