/* plan_dropout.c -- dropout on kernels/dropout.h. The mask comes from the run's key and the
 * element's number in memory order, so only row-major tensors are taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/dropout.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct dropout_state {
    td__dropout_fn *run;
    uint32_t threshold;
    float scale;
} dropout_state;

static void run(const td_kernel_call *c)
{
    const dropout_state *s = c->kernel->state;
    const td_node *n = c->kernel->node;
    const td_attr_dropout *a = n->attr;
    td__rng_key key = {c->ctx->seed, a->stream, c->ctx->step, c->ctx->micro_batch};

    s->run(c->out[0], c->in[0], n->out[0].dtype, td__desc_count(&n->out[0]), &key, s->threshold,
           s->scale);
}

td_status td__cpu_plan_dropout(const td__cpu *cpu, const td_node *n, const bool *is_param,
                               td_kernel *k)
{
    const td_attr_dropout *a = n->attr;
    const td_desc *x = td__in_desc(n, 0);
    double threshold = ceil(a->p * 4294967296.0);

    (void)is_param;
    if (!td__is_narrow(x->dtype) || x->layout != TD_LAYOUT_PLAIN || threshold > UINT32_MAX)
        return TD_ENOTSUP;
    dropout_state *s = td__calloc(1, sizeof *s);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->run = TD_ISA_PICK(cpu->isa, td__dropout);
    s->threshold = (uint32_t)threshold;
    s->scale = (float)(1 / (1 - a->p));
    k->run = run;
    k->impl = "philox";
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}
