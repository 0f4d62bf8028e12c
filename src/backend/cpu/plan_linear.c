/* plan_linear.c -- kernels of the linear layer and its gradients: three matrix products.
 *
 *   linear              y (R, N) = act(x (R, K) w (N, K)^T + b)
 *   linear_back_data    dx (R, K) = dy (R, N) w (N, K)
 *   linear_back_weight  dw (N, K) = dy (R, N)^T x (R, K), db (N) = sums of dy's rows
 *
 * A bias, or db, that is not f32 passes through an f32 vector in scratch. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/col_sum.h"
#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/product.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "ops/attr.h"
#include "ops/op_check.h"

typedef struct linear {
    td__product product;
    int64_t rows, n; /* R, N */
    size_t vector;   /* bytes of the f32 vector, at the start of scratch */
    void (*widen)(float *y, const td_bf16 *x, int64_t n);
    void (*narrow)(td_bf16 *y, const float *x, int64_t n);
    void (*sum)(float *y, const void *x, td_dtype dtype, int64_t rows, int64_t cols);
} linear;

static void linear_fini(void *state)
{
    linear *l = state;

    td__product_fini(&l->product);
    td__free(l);
}

static void linear_prepare(const td_kernel_call *c)
{
    const linear *l = c->kernel->state;

    td__kernel_check(
        c, td__product_pack(&l->product, c->packed, c->in[1], (char *)c->scratch + l->vector));
}

static void linear_run(const td_kernel_call *c)
{
    const linear *l = c->kernel->state;
    const td_node *n = c->kernel->node;
    const float *bias = NULL;

    if (l->product.spec.has_bias) {
        bias = c->in[2];
        if (l->vector) {
            l->widen(c->scratch, c->in[2], l->n);
            bias = c->scratch;
        }
    }
    td__kernel_check(c, td__product_run(&l->product, c->out[0], n->n_out > 1 ? c->out[1] : NULL,
                                        c->in[0], c->in[1], c->packed, bias,
                                        (char *)c->scratch + l->vector));
}

static void back_data_run(const td_kernel_call *c)
{
    const linear *l = c->kernel->state;

    td__kernel_check(c, td__product_run(&l->product, c->out[0], NULL, c->in[0], c->in[1], c->packed,
                                        NULL, c->scratch));
}

static void back_weight_run(const td_kernel_call *c)
{
    const linear *l = c->kernel->state;
    const td_node *n = c->kernel->node;

    td__kernel_check(c, td__product_run(&l->product, c->out[0], NULL, c->in[0], c->in[1], NULL,
                                        NULL, (char *)c->scratch + l->vector));
    if (n->n_out > 1) {
        float *db = l->vector ? c->scratch : c->out[1];
        l->sum(db, c->in[0], td__in_desc(n, 0)->dtype, l->rows, l->n);
        if (l->vector)
            l->narrow(c->out[1], db, l->n);
    }
}

/* `vector_dtype`: type of bias or db. */
static td_status plan(const td__cpu *cpu, td_kernel *k, td__product_spec *spec, int64_t rows,
                      int64_t n, td_dtype vector_dtype, void (*run)(const td_kernel_call *c))
{
    linear *l;
    td_status st;

    if (!td__is_f32_or_bf16(vector_dtype))
        return TD_ENOTSUP;
    l = td__calloc(1, sizeof *l);
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a linear kernel");
    spec->isa = cpu->isa;
    spec->kind = cpu->kind;
    st = td__product_init(&l->product, spec);
    if (st) {
        td__free(l);
        return st;
    }
    l->rows = rows;
    l->n = n;
    l->vector = vector_dtype == TD_F32 ? 0 : td__align_up((size_t)n * sizeof(float), 64);
    l->widen = TD_ISA_PICK(cpu->isa, td__bf16_to_f32_array);
    l->narrow = TD_ISA_PICK(cpu->isa, td__f32_to_bf16_array);
    l->sum = TD_ISA_PICK(cpu->isa, td__col_sum);
    k->run = run;
    k->impl = l->product.impl;
    k->state = l;
    k->fini = linear_fini;
    k->scratch = l->vector + l->product.scratch;
    k->packed = l->product.packed;
    if (k->packed) {
        k->prepare = linear_prepare;
        k->packs = 1u << 1;
    }
    return TD_OK;
}

td_status td__cpu_plan_linear(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    const td_attr_linear *at = n->attr;
    const td_desc *x = td__in_desc(n, 0), *w = td__in_desc(n, 1);
    td__product_spec spec = {
        .use = TD__USE_FORWARD,
        .m = td__row_count(&x->shape),
        .n = w->shape.dim[0],
        .k = w->shape.dim[1],
        .a_dtype = x->dtype,
        .b_dtype = w->dtype,
        .c_dtype = n->out[0].dtype,
        .lda = w->shape.dim[1],
        .ldb = w->shape.dim[1],
        .b_trans = true,
        .b_param = is_param[1],
        .has_bias = at->has_bias,
        .has_pre = n->n_out > 1,
        .act = at->act,
    };

    if (at->has_residual)
        return TD_ENOTSUP;
    return plan(cpu, k, &spec, spec.m, spec.n, at->has_bias ? td__in_desc(n, 2)->dtype : TD_F32,
                linear_run);
}

td_status td__cpu_plan_linear_back_data(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                        td_kernel *k)
{
    const td_desc *dy = td__in_desc(n, 0), *w = td__in_desc(n, 1);
    td__product_spec spec = {
        .use = TD__USE_BACK_DATA,
        .m = td__row_count(&dy->shape),
        .n = w->shape.dim[1],
        .k = w->shape.dim[0],
        .a_dtype = dy->dtype,
        .b_dtype = w->dtype,
        .c_dtype = n->out[0].dtype,
        .lda = w->shape.dim[0],
        .ldb = w->shape.dim[1],
        .b_param = is_param[1],
    };

    if (n->n_in > 2) /* the slope of an activation */
        return TD_ENOTSUP;
    return plan(cpu, k, &spec, spec.m, spec.k, TD_F32, back_data_run);
}

td_status td__cpu_plan_linear_back_weight(const td__cpu *cpu, const td_node *n,
                                          const bool *is_param, td_kernel *k)
{
    const td_desc *dy = td__in_desc(n, 0), *x = td__in_desc(n, 1);
    td__product_spec spec = {
        .use = TD__USE_BACK_WEIGHT,
        .m = td__last_dim(&dy->shape),
        .n = td__last_dim(&x->shape),
        .k = td__row_count(&dy->shape),
        .a_dtype = dy->dtype,
        .b_dtype = x->dtype,
        .c_dtype = n->out[0].dtype,
        .lda = td__last_dim(&dy->shape),
        .ldb = td__last_dim(&x->shape),
        .a_trans = true,
    };

    (void)is_param;
    return plan(cpu, k, &spec, spec.k, spec.m, n->n_out > 1 ? n->out[1].dtype : TD_F32,
                back_weight_run);
}
