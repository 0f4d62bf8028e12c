/* kernel_pair.c -- see kernel_pair.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/kernel_pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "support/check.h"
#include "support/element.h"

static void fill(const kernel_pair *p, int i, void *to)
{
    const td_desc *d = &p->in[i];
    td__rng_key key = {.seed = 7, .stream = (uint32_t)i};
    float from = p->positive >> i & 1u ? 0.5f : -1.0f, width = p->positive >> i & 1u ? 1.0f : 2.0f;

    for (int64_t j = 0; j < td__desc_count(d); j++) {
        float v = from + width * td__rng_uniform(&key, (uint64_t)j);
        uint32_t u = td__rng_u32(&key, (uint64_t)j) % (uint32_t)(p->below > 0 ? p->below : 1);
        element_set(d->dtype, to, j, td_dtype_is_float(d->dtype) ? (double)v : (double)u);
    }
}

/* Plan n on the named backend and run it. */
static void run_on(const char *backend, const kernel_pair *p, const td_node *n,
                   const void *const *in, void *const *out, const char *impl)
{
    td_backend *b;
    td_kernel k;
    bool is_param[TD_MAX_IN] = {0};
    unsigned saved;
    td_run_ctx ctx = {.seed = 1};

    for (int i = 0; i < p->n_in; i++)
        is_param[i] = p->params >> i & 1u;
    CHECK_OK(td__backend_create(backend, &b));
    CHECK_OK(b->ops->plan(b, n, is_param, &k));
    CHECK(!impl || (k.impl && strstr(k.impl, impl)), "%s runs on '%s', not on '%s'", p->name,
          k.impl ? k.impl : "?", impl);
    td_kernel_call c = {.in = in, .out = out, .kernel = &k, .ctx = &ctx};
    c.scratch = check_alloc_guarded(k.scratch ? k.scratch : 64);
    c.packed = check_alloc_guarded(k.packed ? k.packed : 64);
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    if (k.prepare)
        k.prepare(&c);
    k.run(&c);
    if (b->ops->leave)
        b->ops->leave(b, saved);
    check_free_guarded(c.scratch);
    check_free_guarded(c.packed);
    if (k.fini)
        k.fini(k.state);
    b->ops->destroy(b);
}

static void compare(const kernel_pair *p, int at, const td_desc *d, const void *got,
                    const void *want)
{
    double largest = 0, worst = 0;
    int64_t where = 0;

    for (int64_t i = 0; i < td__desc_count(d); i++) {
        double g = element_get(d->dtype, got, i), w = element_get(d->dtype, want, i);
        double diff = isnan(g) != isnan(w) ? HUGE_VAL : isnan(g) ? 0.0 : fabs(g - w);
        largest = fabs(w) > largest ? fabs(w) : largest;
        if (diff > worst) {
            worst = diff;
            where = i;
        }
    }
    CHECK(worst <= p->tol * largest, "%s: output %d at %lld is %g, reference %g (largest %g)",
          p->name, at, (long long)where, element_get(d->dtype, got, where),
          element_get(d->dtype, want, where), largest);
}

void kernel_pair_check(const kernel_pair *p, const char *impl)
{
    td_node leaves[TD_SAMPLE_MAX_IN], *in_nodes[TD_SAMPLE_MAX_IN];
    const td_desc *in_desc[TD_SAMPLE_MAX_IN];
    td_desc out_desc[TD_MAX_OUT];
    const void *in[TD_SAMPLE_MAX_IN];
    void *filled[TD_SAMPLE_MAX_IN], *got[TD_MAX_OUT], *want[TD_MAX_OUT];
    int n_out = 1;

    memset(leaves, 0, sizeof leaves);
    memset(out_desc, 0, sizeof out_desc);
    for (int i = 0; i < p->n_in; i++) {
        in_desc[i] = &p->in[i];
        leaves[i] = (td_node){.op = TD_OP_INPUT, .name = "in", .n_out = 1, .out = &p->in[i]};
        in_nodes[i] = &leaves[i];
        filled[i] = check_alloc_guarded(td__desc_bytes(&p->in[i]));
        fill(p, i, filled[i]);
        in[i] = filled[i];
    }
    td_op_args a = {.n_in = p->n_in, .in_desc = in_desc, .attr = p->attr};
    CHECK_OK(td__op(p->op)->infer(&a, out_desc, &n_out));
    for (int i = 0; i < n_out; i++) {
        got[i] = check_alloc_guarded(td__desc_bytes(&out_desc[i]));
        want[i] = check_alloc_guarded(td__desc_bytes(&out_desc[i]));
    }
    td_node n = {.op = p->op,
                 .name = p->name,
                 .n_in = p->n_in,
                 .n_out = n_out,
                 .in = in_nodes,
                 .out = out_desc,
                 .attr = p->attr};
    run_on("ref", p, &n, in, want, NULL);
    run_on("cpu", p, &n, in, got, impl);
    for (int i = 0; i < n_out; i++) {
        compare(p, i, &out_desc[i], got[i], want[i]);
        check_free_guarded(got[i]);
        check_free_guarded(want[i]);
    }
    for (int i = 0; i < p->n_in; i++)
        check_free_guarded(filled[i]);
}
