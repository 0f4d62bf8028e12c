/* plan_linear.c -- linear layers and matrix products. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/product.h"
#include "backend/cuda/sums.h"
#include "base/check.h"
#include "base/fail.h"

static bool takes(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!td__cuda_takes(td__in_desc_of(n, i)->dtype))
            return false;
    for (int i = 0; i < n->n_out; i++)
        if (!td__cuda_takes(n->out[i].dtype))
            return false;
    return true;
}

/* Product p for some rows of a at a time; sum: rows that are summed up. */
static td_status add_by_rows(td__cuda *b, td_kernel *k, const td__cuda_product *p, bool sum,
                             int64_t at_once, size_t scratch)
{
    size_t in = td_dtype_size(p->in), out = td_dtype_size(p->out);
    int64_t rows = sum ? p->k : p->m;
    if (!at_once || at_once >= rows)
        return td__cuda_add_product(b, k, p, scratch);
    TD_ASSERT(!p->pre.space && !p->residual.space && !p->slope_at.space, "parts of '%s'",
              k->node->name);
    for (int64_t first = 0; first < rows; first += at_once) {
        td__cuda_product part = *p;
        *(sum ? &part.k : &part.m) = rows - first < at_once ? rows - first : at_once;
        part.a.offset += (size_t)(first * (sum ? p->a_col : p->a_row)) * in;
        part.b.offset += sum ? (size_t)(first * p->b_row) * in : 0;
        part.c.offset += sum ? 0 : (size_t)(first * p->n) * out;
        part.align = (part.a.offset | part.b.offset | part.c.offset) % 64 ? (int)in : 0;
        if (sum && first)
            part.residual = part.c;
        TD_TRY(td__cuda_add_product(b, k, &part, scratch));
    }
    return TD_OK;
}

td_status td__cuda_plan_linear(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_linear *at = n->attr;
    const td_desc *x = td__in_desc_of(n, 0), *w = td__in_desc_of(n, 1);
    bool back = n->op == TD_OP_LINEAR_BACK_DATA;
    int64_t outs = w->shape.dim[0], ins = w->shape.dim[1];
    size_t scratch = 0;
    td__cuda_product p = {.m = td__cuda_extent(&x->shape, 0, x->shape.ndim - 1),
                          .n = back ? ins : outs,
                          .k = back ? outs : ins,
                          .a = TD__IN(0),
                          .c = TD__OUT(0),
                          .a_col = 1,
                          .in = x->dtype,
                          .out = n->out[0].dtype,
                          .act = at->act};
    if (!takes(n))
        return TD_ENOTSUP;
    p.a_row = p.k;
    p.b_row = back ? ins : 1;
    p.b_col = back ? 1 : ins;
    TD_TRY(td__cuda_add_weight(b, k, 1, is_param[1], x->dtype, &scratch, &p.b));
    if (k->packed)
        k->packing = "bf16";
    if (!back && at->has_bias)
        TD_TRY(td__cuda_add_weight(b, k, 2, is_param[2], p.out, &scratch, &p.bias));
    if (!back && n->n_out > 1)
        p.pre = TD__OUT(1);
    if (!back && at->has_residual)
        p.residual = TD__IN(3);
    if (back && n->n_in > 2)
        p.slope_at = TD__IN(2);
    return add_by_rows(b, k, &p, false, at->rows, scratch);
}

td_status td__cuda_plan_linear_weight(td__cuda *b, const td_node *n, const bool *is_param,
                                      td_kernel *k)
{
    const td_desc *dy = td__in_desc_of(n, 0), *x = td__in_desc_of(n, 1);
    int64_t rows = td__cuda_extent(&dy->shape, 0, dy->shape.ndim - 1);
    int64_t outs = dy->shape.dim[dy->shape.ndim - 1], ins = x->shape.dim[x->shape.ndim - 1];
    td__cuda_product p = {.m = outs,
                          .n = ins,
                          .k = rows,
                          .a = TD__IN(0),
                          .b = TD__IN(1),
                          .c = TD__OUT(0),
                          .a_row = 1,
                          .a_col = outs,
                          .b_row = ins,
                          .b_col = 1,
                          .in = dy->dtype,
                          .out = n->out[0].dtype};
    (void)is_param;
    if (!takes(n) || dy->dtype != x->dtype)
        return TD_ENOTSUP;
    TD_TRY(add_by_rows(b, k, &p, true, ((const td_attr_linear *)n->attr)->rows, 0));
    if (n->n_out > 1)
        TD_TRY(td__cuda_add_column_sums(b, k, TD__IN(0), dy->dtype, rows, outs, TD__OUT(1),
                                        n->out[1].dtype, 0));
    return TD_OK;
}

/* Steps along the axes of a batch, in elements: 0 where the operand is broadcast. */
static void batch_steps(const td_shape *s, int n_batch, int64_t step[TD_MAX_DIMS])
{
    int64_t run = s->dim[s->ndim - 1] * s->dim[s->ndim - 2];
    for (int i = n_batch - 1, j = s->ndim - 3; i >= 0; i--, j--) {
        step[i] = j < 0 || s->dim[j] == 1 ? 0 : run;
        run *= j < 0 ? 1 : s->dim[j];
    }
}

td_status td__cuda_plan_matmul(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_matmul *at = n->attr;
    const td_desc *x = td__in_desc_of(n, 0), *y = td__in_desc_of(n, 1), *z = &n->out[0];
    int last = z->shape.ndim - 1;
    td__cuda_product p = {.m = z->shape.dim[last - 1],
                          .n = z->shape.dim[last],
                          .a = TD__IN(0),
                          .b = TD__IN(1),
                          .c = TD__OUT(0),
                          .in = x->dtype,
                          .out = z->dtype,
                          .n_batch = last - 1};
    (void)is_param;
    if (!takes(n) || x->dtype != y->dtype)
        return TD_ENOTSUP;
    p.k = x->shape.dim[x->shape.ndim - (at->ta ? 2 : 1)];
    p.a_row = at->ta ? 1 : p.k;
    p.a_col = at->ta ? p.m : 1;
    p.b_row = at->tb ? 1 : p.n;
    p.b_col = at->tb ? p.k : 1;
    for (int i = 0; i < p.n_batch; i++)
        p.batch[i] = z->shape.dim[i];
    batch_steps(&x->shape, p.n_batch, p.a_step);
    batch_steps(&y->shape, p.n_batch, p.b_step);
    return td__cuda_add_product(b, k, &p, 0);
}
