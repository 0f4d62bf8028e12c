/* plan_reduce.c -- sum, mean and max over axes on kernels/reduce.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/reduce.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct reduce_state {
    td__reduce shape;
    td__reduce_fn *run;
} reduce_state;

static void run(const td_kernel_call *c)
{
    const reduce_state *s = c->kernel->state;

    s->run(&s->shape, c->out[0], c->in[0]);
}

/* Merge neighbouring axes of one kind and split them over the two loops. */
static void split_axes(const td_shape *x, unsigned axes, td__reduce *p)
{
    int64_t dim[TD_MAX_DIMS + 1], step = 1;
    bool reduced[TD_MAX_DIMS + 1];
    int n = 0;

    for (int i = 0; i < x->ndim; i++) {
        bool is = axes >> i & 1u;

        if (x->dim[i] == 1)
            continue;
        if (n > 0 && reduced[n - 1] == is) {
            dim[n - 1] *= x->dim[i];
        } else {
            dim[n] = x->dim[i];
            reduced[n++] = is;
        }
    }
    if (n == 0) {
        dim[0] = 1;
        reduced[n++] = true;
    }
    p->last = dim[n - 1];
    p->last_reduced = reduced[n - 1];
    for (int i = 0; i < n - 1; i++)
        if (reduced[i])
            p->reduced.dim[p->reduced.n++] = dim[i];
        else
            p->kept.dim[p->kept.n++] = dim[i];
    int r = p->reduced.n, k = p->kept.n;

    for (int i = n - 1; i >= 0; step *= dim[i--]) {
        if (i == n - 1)
            continue;
        if (reduced[i])
            p->reduced.step[--r] = step;
        else
            p->kept.step[--k] = step;
    }
}

td_status td__cpu_plan_reduce(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    const td_attr_reduce *a = n->attr;
    const td_desc *x = td__in_desc(n, 0);
    int64_t count = td__desc_count(x), n_out = td__desc_count(&n->out[0]);

    (void)is_param;
    if (!td__is_narrow(x->dtype) || !td__is_narrow(n->out[0].dtype) || x->layout != TD_LAYOUT_PLAIN)
        return TD_ENOTSUP;
    reduce_state *s = td__calloc(1, sizeof *s);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    split_axes(&x->shape, a->axes, &s->shape);
    s->shape.in = x->dtype;
    s->shape.out = n->out[0].dtype;
    s->shape.is_max = n->op == TD_OP_MAX;
    s->shape.scale = 1.0f;
    if (n->op == TD_OP_MEAN && count > 0)
        s->shape.scale = (float)((double)n_out / (double)count);
    s->run = TD_ISA_PICK(cpu->isa, td__reduce);
    k->run = run;
    k->impl = s->shape.last_reduced ? "runs" : "columns";
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}
