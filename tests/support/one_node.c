/* one_node.c -- see one_node.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/one_node.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "support/check.h"

void one_node_init(one_node *t, td_opcode op, const void *attr, int n_in, const td_desc *in)
{
    const td_desc *at[TD_MAX_IN];
    td_op_args a = {.n_in = n_in, .in_desc = at, .attr = attr};

    memset(t, 0, sizeof *t);
    for (int i = 0; i < n_in; i++) {
        t->in[i] = in[i];
        at[i] = &t->in[i];
        t->leaf[i] =
            (td_node){.op = TD_OP_INPUT, .id = i, .name = "x", .n_out = 1, .out = &t->in[i]};
        t->leaf_at[i] = &t->leaf[i];
        t->x[i] = check_alloc_guarded(td__desc_bytes(&t->in[i]));
    }
    int n_out = 0;

    CHECK_OK(td__op(op)->infer(&a, t->out, &n_out));
    t->node = (td_node){.op = op,
                        .id = n_in,
                        .name = td__op(op)->name,
                        .n_in = n_in,
                        .n_out = n_out,
                        .in = t->leaf_at,
                        .out = t->out,
                        .attr = attr};
    for (int k = 0; k < n_out; k++)
        t->y[k] = check_alloc_guarded(td__desc_bytes(&t->out[k]));
}

void one_node_fini(one_node *t)
{
    for (int i = 0; i < t->node.n_in; i++)
        check_free_guarded(t->x[i]);
    for (int k = 0; k < t->node.n_out; k++)
        check_free_guarded(t->y[k]);
}

static void run_on(one_node *t, td_backend *b)
{
    const bool is_param[TD_MAX_IN] = {false};
    const void *in[TD_MAX_IN];
    td_kernel k;
    unsigned saved;

    CHECK_OK(b->ops->plan(b, &t->node, is_param, &k));
    for (int i = 0; i < t->node.n_in; i++)
        in[i] = t->x[i];
    if (t->in_place) {
        memcpy(t->y[0], t->x[0], td__desc_bytes(&t->in[0]));
        in[0] = t->y[0];
    }
    void *scratch = check_alloc_guarded(k.scratch), *packed = check_alloc_guarded(k.packed);
    td_kernel_call c = {
        .in = in, .out = t->y, .scratch = scratch, .packed = packed, .kernel = &k, .ctx = &t->ctx};

    b->ops->enter(b, &saved);
    if (k.prepare)
        k.prepare(&c);
    k.run(&c);
    b->ops->leave(b, saved);
    t->impl = k.impl;
    if (k.fini)
        k.fini(k.state);
    check_free_guarded(scratch);
    check_free_guarded(packed);
    for (int i = 0; i < t->node.n_out; i++)
        check_guards(t->y[i]);
    td__backend_destroy(b);
}

void one_node_run_ref(one_node *t)
{
    td_backend *b;

    CHECK_OK(td__backend_create("ref", &b));
    run_on(t, b);
}

void one_node_run_cpu(one_node *t, td__isa isa)
{
    td_backend *b;

    CHECK_OK(td__backend_create("cpu", &b));
    ((td__cpu *)b)->isa = isa;
    run_on(t, b);
}

void one_node_fill(one_node *t, int k, double lo, double hi, uint32_t seed)
{
    td__rng_key key = {.seed = seed, .stream = (uint32_t)k};
    int64_t count = td__desc_count(&t->in[k]);

    for (int64_t i = 0; i < count; i++) {
        double v = lo + (hi - lo) * (double)td__rng_uniform(&key, (uint64_t)i);

        element_set(t->in[k].dtype, t->x[k], i, td_dtype_is_float(t->in[k].dtype) ? v : floor(v));
    }
}

int one_node_isas(td__isa out[3])
{
    static const td__isa ALL[3] = {TD_ISA_SCALAR, TD_ISA_AVX2, TD_ISA_AVX512};
    int n = 0;

    for (int i = 0; i < 3; i++)
        if (ALL[i] <= td__cpu_isa())
            out[n++] = ALL[i];
    return n;
}

static bool close_enough(double got, double want, double rtol, double atol)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got;
    return fabs(got - want) <= atol + rtol * fabs(want);
}

void one_node_compare(one_node *t, double rtol, double atol, const char *what)
{
    void *want[TD_MAX_OUT];
    td__isa isas[3];
    int n_isa = one_node_isas(isas);

    one_node_run_ref(t);
    for (int k = 0; k < t->node.n_out; k++) {
        size_t nbytes = td__desc_bytes(&t->out[k]);

        want[k] = malloc(nbytes + 1);
        memcpy(want[k], t->y[k], nbytes);
    }
    for (int v = 0; v < n_isa; v++) {
        one_node_run_cpu(t, isas[v]);
        for (int k = 0; k < t->node.n_out; k++)
            for (int64_t i = 0; i < td__desc_count(&t->out[k]); i++) {
                double w = element_get(t->out[k].dtype, want[k], i);
                double g = element_get(t->out[k].dtype, t->y[k], i);

                CHECK(close_enough(g, w, rtol, atol),
                      "%s: %s on %s, output %d [%lld] is %.9g, not %.9g", what, t->node.name,
                      td__isa_name(isas[v]), k, (long long)i, g, w);
            }
    }
    for (int k = 0; k < t->node.n_out; k++)
        free(want[k]);
}
