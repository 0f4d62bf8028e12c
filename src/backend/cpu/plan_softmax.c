/* plan_softmax.c -- softmax, its logarithm, cross entropy, their gradients: kernels/softmax.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/softmax.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"
#include "ops/op_check.h"

typedef struct softmax_state {
    td_dtype dtype;
    int64_t rows, width;
    td__softmax_fn *run;
    td__softmax_back_fn *back;
} softmax_state;

static void run_softmax(const td_kernel_call *c)
{
    const softmax_state *s = c->kernel->state;

    s->run(c->out[0], c->in[0], s->dtype, s->rows, s->width, c->scratch);
}

static void run_softmax_back(const td_kernel_call *c)
{
    const softmax_state *s = c->kernel->state;

    s->back(c->out[0], c->in[0], c->in[1], s->dtype, s->rows, s->width, c->scratch);
}

td_status td__cpu_plan_softmax(const td__cpu *cpu, const td_node *n, const bool *is_param,
                               td_kernel *k)
{
    const td_desc *d = td__in_desc(n, 0);
    bool is_log = n->op == TD_OP_LOG_SOFTMAX || n->op == TD_OP_LOG_SOFTMAX_BACK;

    (void)is_param;
    if (!td__is_narrow(d->dtype))
        return TD_ENOTSUP;
    softmax_state *s = td__calloc(1, sizeof *s);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->dtype = d->dtype;
    s->rows = td__row_count(&d->shape);
    s->width = td__last_dim(&d->shape);
    s->run = is_log ? TD_ISA_PICK(cpu->isa, td__log_softmax) : TD_ISA_PICK(cpu->isa, td__softmax);
    s->back = is_log ? TD_ISA_PICK(cpu->isa, td__log_softmax_back)
                     : TD_ISA_PICK(cpu->isa, td__softmax_back);
    k->run = n->n_in == 1 ? run_softmax : run_softmax_back;
    k->impl = "rows";
    k->scratch = 2 * (size_t)s->width * sizeof(float);
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}

typedef struct xent_state {
    td__xent shape;
    td__xent_fn *run;
    td__xent_back_fn *back;
} xent_state;

static void run_xent(const td_kernel_call *c)
{
    const xent_state *s = c->kernel->state;

    s->run(&s->shape, c->out[0], c->out[1], c->in[0], c->in[1]);
}

static void run_xent_back(const td_kernel_call *c)
{
    const xent_state *s = c->kernel->state;

    s->back(&s->shape, c->out[0], c->in[0], c->in[1], c->in[2], c->in[3]);
}

td_status td__cpu_plan_xent(const td__cpu *cpu, const td_node *n, const bool *is_param,
                            td_kernel *k)
{
    const td_attr_xent *a = n->attr;
    const td_desc *x = td__in_desc(n, 0);
    bool back = n->op == TD_OP_XENT_BACK;

    (void)is_param;
    if (!td__is_narrow(x->dtype))
        return TD_ENOTSUP;
    if (back && (td__in_desc(n, 2)->dtype != TD_F32 || td__in_desc(n, 3)->dtype != TD_F32))
        return TD_ENOTSUP;
    xent_state *s = td__calloc(1, sizeof *s);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->shape = (td__xent){.dtype = x->dtype,
                          .target_dtype = td__in_desc(n, 1)->dtype,
                          .use_ignore = a->use_ignore,
                          .ignore_index = a->ignore_index,
                          .smoothing = a->smoothing};
    s->shape.rows = td__row_count(&x->shape);
    s->shape.width = td__last_dim(&x->shape);
    s->run = TD_ISA_PICK(cpu->isa, td__xent);
    s->back = TD_ISA_PICK(cpu->isa, td__xent_back);
    k->run = back ? run_xent_back : run_xent;
    k->impl = "one pass";
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}
