/* plan_embedding.c -- embedding, embedding_bag and their gradients on kernels/lookup.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/lookup.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct lookup_state {
    td__lookup shape;
    td__isa isa;
} lookup_state;

static void run_rows(const td_kernel_call *c)
{
    const lookup_state *s = c->kernel->state;

    TD_ISA_PICK(s->isa, td__lookup_rows)(&s->shape, c->out[0], c->in[0], c->in[1]);
}

static void run_back(const td_kernel_call *c)
{
    const lookup_state *s = c->kernel->state;

    TD_ISA_PICK(s->isa, td__lookup_back)(&s->shape, c->out[0], c->in[0], c->in[1], c->scratch);
}

static void run_sparse(const td_kernel_call *c)
{
    const lookup_state *s = c->kernel->state;

    TD_ISA_PICK(s->isa, td__lookup_sparse)
    (&s->shape, c->out[0], c->out[1], c->in[0], c->in[1], c->scratch);
}

static void run_bags(const td_kernel_call *c)
{
    const lookup_state *s = c->kernel->state;

    TD_ISA_PICK(s->isa, td__lookup_bags)
    (&s->shape, c->out[0], c->in[0], c->in[1], c->in[2], c->scratch);
}

static void run_bags_back(const td_kernel_call *c)
{
    const lookup_state *s = c->kernel->state;

    TD_ISA_PICK(s->isa, td__lookup_bags_back)
    (&s->shape, c->out[0], c->in[0], c->in[1], c->in[2], c->scratch);
}

static void run_bags_spread(const td_kernel_call *c)
{
    const lookup_state *s = c->kernel->state;

    TD_ISA_PICK(s->isa, td__lookup_bags_spread)
    (&s->shape, c->out[0], c->in[0], c->in[1], c->in[2], c->scratch);
}

/* State with what all six share; `table` and `other` are the f32 side and the side of any narrow
 * type. */
static td_status new_state(const td__cpu *cpu, const td_node *n, const td_desc *table,
                           const td_desc *other, void (*run)(const td_kernel_call *), td_kernel *k,
                           td__lookup **out)
{
    if (table->dtype != TD_F32 || !td__is_narrow(other->dtype))
        return TD_ENOTSUP;
    lookup_state *s = td__calloc(1, sizeof *s);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->isa = cpu->isa;
    s->shape.n = td__desc_count(td__in_desc(n, 0));
    s->shape.id_dtype = td__in_desc(n, 0)->dtype;
    s->shape.dtype = other->dtype;
    s->shape.rows = ((const td_attr_embedding *)n->attr)->rows;
    s->shape.mean = ((const td_attr_embedding *)n->attr)->mode == TD_BAG_MEAN;
    s->shape.width = other->shape.dim[other->shape.ndim - 1];
    k->run = run;
    k->impl = "rows";
    k->scratch = 2 * (size_t)s->shape.width * sizeof(float);
    k->state = s;
    k->fini = td__free;
    *out = &s->shape;
    return TD_OK;
}

td_status td__cpu_plan_embedding(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                 td_kernel *k)
{
    td__lookup *s;

    (void)is_param;
    if (n->op == TD_OP_EMBEDDING) {
        td_status st = new_state(cpu, n, td__in_desc(n, 1), &n->out[0], run_rows, k, &s);

        if (!st)
            s->rows = td__in_desc(n, 1)->shape.dim[0];
        return st;
    }
    if (n->op == TD_OP_EMBEDDING_BACK)
        return new_state(cpu, n, &n->out[0], td__in_desc(n, 1), run_back, k, &s);
    td_status st = new_state(cpu, n, &n->out[0], td__in_desc(n, 1), run_sparse, k, &s);

    if (!st)
        k->scratch += TD_LOOKUP_SORT_BYTES(s->n);
    return st;
}

td_status td__cpu_plan_embedding_bag(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                     td_kernel *k)
{
    const td_desc *third = td__in_desc(n, 2);
    td__lookup *s;
    td_status st;

    (void)is_param;
    if (n->op == TD_OP_EMBEDDING_BAG) {
        st = new_state(cpu, n, third, &n->out[0], run_bags, k, &s);
        if (!st)
            s->rows = third->shape.dim[0];
    } else if (n->op == TD_OP_EMBEDDING_BAG_BACK) {
        st = new_state(cpu, n, &n->out[0], third, run_bags_back, k, &s);
    } else {
        static const td_desc NO_TABLE = {.dtype = TD_F32};

        st = new_state(cpu, n, &NO_TABLE, third, run_bags_spread, k, &s);
    }
    if (st)
        return st;
    s->bags = td__in_desc(n, 1)->shape.dim[0];
    s->offset_dtype = td__in_desc(n, 1)->dtype;
    return TD_OK;
}
