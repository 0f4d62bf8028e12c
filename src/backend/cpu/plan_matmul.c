/* plan_matmul.c -- kernels of the batched matrix product.
 *
 *   c (batch, M, N) = op(a) (batch_a, M, K) op(b) (batch_b, K, N)
 *
 * Leading sizes broadcast: along an axis where an operand has size 1 its offset does not move.
 * Where b is one matrix and a is not transposed, the batch is part of M: one product. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct matmul {
    td__product product;
    int n_axes;    /* of the batch */
    int64_t count; /* products */
    int64_t dim[TD_MAX_DIMS];
    int64_t a_step[TD_MAX_DIMS], b_step[TD_MAX_DIMS]; /* elements; 0 where broadcast */
} matmul;

static void matmul_fini(void *state)
{
    matmul *mm = state;

    td__product_fini(&mm->product);
    td__free(mm);
}

static void matmul_prepare(const td_kernel_call *c)
{
    const matmul *mm = c->kernel->state;

    td__kernel_check(c, td__product_pack(&mm->product, c->packed, c->in[1], c->scratch));
}

static void matmul_run(const td_kernel_call *c)
{
    const matmul *mm = c->kernel->state;
    const td__product_spec *s = &mm->product.spec;
    const int64_t a_size = (int64_t)td_dtype_size(s->a_dtype);
    const int64_t b_size = (int64_t)td_dtype_size(s->b_dtype);
    const int64_t c_bytes = s->m * s->n * (int64_t)td_dtype_size(s->c_dtype);

    for (int64_t i = 0; i < mm->count; i++) {
        int64_t rest = i, a = 0, b = 0;
        for (int axis = mm->n_axes - 1; axis >= 0; axis--) {
            a += rest % mm->dim[axis] * mm->a_step[axis];
            b += rest % mm->dim[axis] * mm->b_step[axis];
            rest /= mm->dim[axis];
        }
        td__kernel_check(c, td__product_run(&mm->product, (char *)c->out[0] + i * c_bytes, NULL,
                                            (const char *)c->in[0] + a * a_size,
                                            (const char *)c->in[1] + b * b_size, c->packed, NULL,
                                            c->scratch));
    }
}

/* Elements to move along each batch axis of an operand; false if all are zero: one matrix. */
static bool batch_steps(const td_shape *s, int n_axes, int64_t *step)
{
    int64_t size = s->dim[s->ndim - 1] * s->dim[s->ndim - 2];
    bool moves = false;

    for (int axis = n_axes - 1, i = s->ndim - 3; axis >= 0; axis--, i--) {
        const int64_t d = i >= 0 ? s->dim[i] : 1;
        step[axis] = d == 1 ? 0 : size;
        moves = moves || d != 1;
        size *= d;
    }
    return moves;
}

td_status td__cpu_plan_matmul(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    const td_attr_matmul *at = n->attr;
    const td_desc *a = td__in_desc(n, 0), *b = td__in_desc(n, 1);
    const int64_t *a_dim = a->shape.dim + a->shape.ndim - 2;
    const int64_t *b_dim = b->shape.dim + b->shape.ndim - 2;
    td__product_spec spec = {
        .use = TD__USE_OTHER,
        .isa = cpu->isa,
        .kind = cpu->kind,
        .m = a_dim[at->ta ? 1 : 0],
        .n = b_dim[at->tb ? 0 : 1],
        .k = a_dim[at->ta ? 0 : 1],
        .a_dtype = a->dtype,
        .b_dtype = b->dtype,
        .c_dtype = n->out[0].dtype,
        .lda = a_dim[1],
        .ldb = b_dim[1],
        .a_trans = at->ta,
        .b_trans = at->tb,
    };
    matmul *mm = td__calloc(1, sizeof *mm);
    td_status st;

    if (!mm)
        return TD_FAIL(TD_ENOMEM, "no memory for a matmul kernel");
    mm->n_axes = n->out[0].shape.ndim - 2;
    mm->count = 1;
    for (int i = 0; i < mm->n_axes; i++) {
        mm->dim[i] = n->out[0].shape.dim[i];
        mm->count *= mm->dim[i];
    }
    const bool a_moves = batch_steps(&a->shape, mm->n_axes, mm->a_step);
    const bool b_moves = batch_steps(&b->shape, mm->n_axes, mm->b_step);
    spec.b_param = is_param[1] && !b_moves;
    if (a_moves && !b_moves && !at->ta) {
        spec.m *= mm->count;
        mm->count = mm->count > 0;
        mm->n_axes = 0;
    }
    st = td__product_init(&mm->product, &spec);
    if (st) {
        td__free(mm);
        return st;
    }
    k->run = matmul_run;
    k->impl = mm->product.impl;
    k->state = mm;
    k->fini = matmul_fini;
    k->scratch = mm->product.scratch;
    k->packed = mm->product.packed;
    if (k->packed) {
        k->prepare = matmul_prepare;
        k->packs = 1u << 1;
    }
    return TD_OK;
}
