/* plan_classifier.c -- a classifier with its cross entropy and all gradients, some rows at a time:
 * their logits, which become gradients in place, and what the two products make of these. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/product.h"
#include "backend/cuda/xent.h"
#include "base/check.h"
#include "base/fail.h"

typedef struct classifier {
    int64_t classes, wide; /* C, K */
    td_dtype t;
    td__cuda_at w;
    td__xent_args args;
    size_t lse, losses, count; /* in scratch */
} classifier;

static td__cuda_at behind(td__cuda_at at, size_t nbytes)
{
    at.offset += nbytes;
    return at;
}

/* Rows [first, first + n): four steps on n rows of logits. */
static td_status add_rows(td__cuda *b, td_kernel *k, classifier *c, int64_t first, int64_t n,
                          size_t scratch)
{
    size_t element = td_dtype_size(c->t), from = (size_t)(first * c->wide) * element;
    td__cuda_product logits = {.m = n,
                               .n = c->classes,
                               .k = c->wide,
                               .a = behind(TD__IN(0), from),
                               .b = c->w,
                               .c = TD__OUT(3),
                               .a_row = c->wide,
                               .a_col = 1,
                               .b_row = 1,
                               .b_col = c->wide,
                               .in = c->t,
                               .out = c->t,
                               .align = from % 64 ? (int)element : 0};
    td__cuda_product dx = logits, dw = logits;
    dx.n = dw.n = c->wide;
    dx.k = dw.m = c->classes;
    dw.k = n;
    dx.a = dw.a = TD__OUT(3);
    dx.a_row = dw.a_col = c->classes;
    dw.a_row = 1;
    dw.b = logits.a;
    dx.c = behind(TD__OUT(0), from);
    dw.c = TD__OUT(1);
    dx.b_row = dw.b_row = c->wide;
    dx.b_col = dw.b_col = 1;
    dw.out = k->node->out[1].dtype;
    if (first)
        dw.residual = dw.c;
    TD_TRY(td__cuda_add_product(b, k, &logits, scratch));
    size_t ids = (size_t)first * td_dtype_size(td__in_desc_of(k->node, 2)->dtype);
    td__cuda_bind both = {
        .in = {TD__OUT(3), behind(TD__IN(2), ids), TD__IN(3), TD__SCRATCH(c->count)},
        .out = {TD__OUT(3), TD__SCRATCH(c->lse),
                TD__SCRATCH(c->losses + (size_t)first * sizeof(float))}};
    c->args.rows = n;
    TD_TRY(td__cuda_add_xent_both(b, k, &c->args, c->t, &both));
    TD_TRY(td__cuda_add_product(b, k, &dx, scratch));
    return td__cuda_add_product(b, k, &dw, scratch);
}

td_status td__cuda_plan_classifier(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    const td_attr_linear_xent *at = n->attr;
    const td_desc *x = td__in_desc_of(n, 0), *w = td__in_desc_of(n, 1);
    int64_t rows = td__cuda_extent(&x->shape, 0, x->shape.ndim - 1);
    classifier c = {.classes = w->shape.dim[0], .wide = w->shape.dim[1], .t = x->dtype};
    size_t scratch = 0;
    if (!td__cuda_takes(x->dtype) || !td__cuda_takes(w->dtype) || n->out[1].dtype != TD_F32)
        return TD_ENOTSUP;
    TD_TRY(td__cuda_add_weight(b, k, 1, is_param[1], x->dtype, &scratch, &c.w));
    if (k->packed)
        k->packing = "bf16";
    c.args = td__cuda_xent_args(&at->loss, rows, c.classes, td__in_desc_of(n, 2)->dtype);
    c.lse = td__align_up(scratch, 64);
    c.losses =
        c.lse + td__align_up((size_t)(at->rows < rows ? at->rows : rows) * sizeof(float), 64);
    c.count = c.losses + td__align_up((size_t)rows * sizeof(float), 64);
    scratch = c.count + 64;
    td__cuda_want_scratch(k, scratch);
    td__cuda_bind count = {.in = {{0}, TD__IN(2)}, .out = {{0}, TD__SCRATCH(c.count)}};
    td__cuda_bind sum = {.in = {TD__SCRATCH(c.losses), TD__IN(2)}, .out = {TD__OUT(2)}};
    td__xent_args all = c.args;
    TD_TRY(td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, td__cuda_grid_each(1), &all,
                              sizeof all, &count));
    for (int64_t first = 0; first < rows; first += at->rows)
        TD_TRY(
            add_rows(b, k, &c, first, rows - first < at->rows ? rows - first : at->rows, scratch));
    if (!rows)
        TD_TRY(td__cuda_add_zero(k, TD__OUT(1), td__desc_bytes(&n->out[1])));
    TD_TRY(td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, td__cuda_grid_each(1), &all,
                              sizeof all, &sum));
    k->impl = b->lt ? "cublaslt" : "own product";
    return TD_OK;
}
