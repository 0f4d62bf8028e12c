/* op_linear_xent.c -- a classifier without bias and its cross entropy, with the gradients of both:
 *
 *     logits = x w'                      x (R, K), w (C, K)
 *     loss, dlogits                      softmax_cross_entropy_both (op_xent.c)
 *     dx = dlogits w,  dw = dlogits' x   the two backward products (op_linear.c)
 *
 * The logits, which are much of the memory of a language model, are there for attr.rows rows at a
 * time, in output 3: row r lies at r modulo attr.rows, and becomes its gradient there. dw is the
 * sum over all rows. dloss is known before. Made by rewriting only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_xent.h"

static td_status infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_linear_xent *at = a->attr;
    const td_desc *x = a->in_desc[0];
    const td_shape *w = &a->in_desc[1]->shape;
    td_shape rows = td__shape_rows(&x->shape), one = TD_SCALAR;

    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_min_ndim(a, 0, "x", 1));
    TD_TRY(td__want_weight(a, 1, "w"));
    TD_TRY(td__want_ndim(a, 1, "w", 2));
    if (w->dim[1] != td__last_dim(&x->shape))
        return TD_FAIL(TD_EINVAL, "w takes %lld features, x has %lld", (long long)w->dim[1],
                       (long long)td__last_dim(&x->shape));
    if (w->dim[0] < 1 || at->rows < 1)
        return TD_FAIL(TD_EINVAL, "%lld classes, %lld rows at a time", (long long)w->dim[0],
                       (long long)at->rows);
    TD_TRY(td__want_index(a, 2, "target"));
    TD_TRY(td__want_shape(a, 2, "target", &rows));
    TD_TRY(td__want_weight_shape(a, 3, "dloss", &one));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    out[0] = td__desc(x->dtype, x->shape);
    out[1] = td__desc(td__out_dtype(x->dtype, at->out_dtype), *w);
    out[2] = td__desc(td__acc_dtype(x->dtype), TD_SCALAR);
    int64_t r = td_shape_count(&rows);
    out[3] = td__desc(x->dtype, TD_SHAPE(r < at->rows ? r : at->rows, w->dim[0]));
    *n_out = 4;
    return TD_OK;
}

static void ref(const td_op_args *a)
{
    const td_attr_linear_xent *at = a->attr;
    const double *x = a->in[0], *w = a->in[1], *dloss = a->in[3]; /* (R, K), (C, K) */
    double *dx = a->out[0], *dw = a->out[1], *loss = a->out[2], *few = a->out[3]; /* few (r, C) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape);
    int64_t n = a->in_desc[1]->shape.dim[0], k_dim = a->in_desc[1]->shape.dim[1], counted = 0;
    double total = 0, lse;

    for (int64_t r = 0; r < rows; r++)
        counted += td__xent_counts(&at->loss, td__ref_index(a->in_desc[2]->dtype, a->in[2], r));
    for (int64_t i = 0; i < n * k_dim; i++)
        dw[i] = 0;
    for (int64_t r = 0; r < rows; r++, x += k_dim, dx += k_dim) {
        int64_t t = td__ref_index(a->in_desc[2]->dtype, a->in[2], r);
        double *row = few + r % at->rows * n;
        for (int64_t c = 0; c < n; c++) {
            row[c] = 0;
            for (int64_t k = 0; k < k_dim; k++)
                row[c] += x[k] * w[c * k_dim + k];
        }
        total += td__xent_row(&at->loss, row, n, t, &lse);
        td__xent_row_back(&at->loss, row, n, t, lse, dloss[0] / (double)counted, row);
        for (int64_t k = 0; k < k_dim; k++)
            dx[k] = 0;
        for (int64_t c = 0; c < n; c++)
            for (int64_t k = 0; k < k_dim; k++) {
                dx[k] += row[c] * w[c * k_dim + k];
                dw[c * k_dim + k] += row[c] * x[k];
            }
    }
    loss[0] = counted ? total / (double)counted : 0;
}

static const td_attr_linear_xent WHOLE = {.rows = 64}, FEW = {.rows = 4}, ONE = {.rows = 1},
                                 IGNORE = {.loss = {.use_ignore = true, .ignore_index = -1},
                                           .rows = 8},
                                 BOTH = {.loss = {.use_ignore = true,
                                                  .ignore_index = 2,
                                                  .smoothing = 0.2},
                                         .rows = 16};

#define CASE(attribute, r, k, c, first)                                                    \
    .n_in = 4, .in = {TD__FLOATS(r, k), TD__FLOATS(c, k), TD__INTS(r), {.dtype = TD_F32}}, \
    .attr = &attribute, .ilo = first, .ihi = c
static const td_op_sample SAMPLES[] = {
    {CASE(WHOLE, 5, 7, 6, 0)},
    {CASE(FEW, 10, 7, 6, 0)}, /* the last rows are fewer */
    {CASE(FEW, 8, 7, 6, 0)},
    {CASE(ONE, 3, 5, 4, 0)},
    {CASE(IGNORE, 19, 6, 5, -1)},
    {CASE(BOTH, 40, 16, 24, 0)},
    {CASE(FEW, 0, 7, 6, 0)},                             /* no rows: zeros */
    {CASE(BOTH, 70, 64, 264, 0), .lo = -0.3, .hi = 0.3}, /* small logits: little is lost in bf16 */
    {.n_in = 4,
     .in = {TD__FLOATS(2, 5, 8), TD__FLOATS(9, 8), TD__LONGS(2, 5), {.dtype = TD_F32}},
     .attr = &FEW,
     .ihi = 9},
};

const td_op_def td__op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .n_in_min = 4,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_linear_xent),
    .infer = infer,
    .ref = ref,
    .grad = NULL,
    .weights = TD__BIT(1) | TD__BIT(3),
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
