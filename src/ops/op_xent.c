/* op_xent.c -- softmax and cross entropy with class indices in one, and its backward.
 *
 * For each row of C logits with target t, and label smoothing s:
 *
 *     lse = log sum_j exp(x_j)
 *     row loss = (1 - s) (lse - x_t) + s (lse - sum_j x_j / C)
 *     d/dx_j   = exp(x_j - lse) - (1 - s) [j = t] - s / C
 *
 * loss is the mean over the rows that count: all, or those whose target is not the ignored index;
 * if none counts it is 0. A target outside 0..C-1 that is not ignored makes the loss NaN, which
 * stops the run with this node's name, and gives no gradient. lse is kept for the backward: the
 * probabilities are never stored. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"
#include "ops/op_xent.h"

static td_status check(const td_op_args *a)
{
    const td_attr_xent *at = a->attr;

    TD_TRY(td__want_float(a, 0, "logits"));
    TD_TRY(td__want_min_ndim(a, 0, "logits", 1));
    TD_TRY(td__want_index(a, 1, "target"));
    td_shape rows = td__shape_rows(&a->in_desc[0]->shape);
    TD_TRY(td__want_shape(a, 1, "target", &rows));
    if (td__last_dim(&a->in_desc[0]->shape) < 1)
        return TD_FAIL(TD_EINVAL, "the logits have no classes");
    if (!(at->smoothing >= 0) || !(at->smoothing <= 1))
        return TD_FAIL(TD_EINVAL, "smoothing is %g; it must lie in 0..1", at->smoothing);
    return TD_OK;
}

bool td__xent_counts(const td_attr_xent *at, int64_t target)
{
    return !(at->use_ignore && target == at->ignore_index);
}

static td_status xent_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype stat = td__acc_dtype(a->in_desc[0]->dtype);

    TD_TRY(check(a));
    out[0] = td__desc(stat, TD_SCALAR);
    out[1] = td__desc(stat, a->in_desc[1]->shape);
    *n_out = 2;
    return TD_OK;
}

double td__xent_row(const td_attr_xent *at, const double *x, int64_t n, int64_t t, double *lse)
{
    double top = -INFINITY, sum = 0, mean = 0;
    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(x[i] - top);
        mean += x[i] / (double)n;
    }
    *lse = top + log(sum);
    if (!td__xent_counts(at, t))
        return 0;
    double hit = t >= 0 && t < n ? x[t] : (double)NAN;
    double loss = (1 - at->smoothing) * (*lse - hit);
    if (at->smoothing > 0) /* a masked class, -inf, would make 0 * inf of it */
        loss += at->smoothing * (*lse - mean);
    return loss;
}

static void losses(const td_op_args *a, double *loss, double *lse) /* (), (R) */
{
    const td_attr_xent *at = a->attr;
    const double *x = a->in[0]; /* (R, C) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape), n = td__last_dim(&a->in_desc[0]->shape);
    int64_t counted = 0;
    double total = 0;

    for (int64_t r = 0; r < rows; r++, x += n) {
        int64_t t = td__ref_index(a->in_desc[1]->dtype, a->in[1], r);
        total += td__xent_row(at, x, n, t, &lse[r]);
        counted += td__xent_counts(at, t);
    }
    loss[0] = counted ? total / (double)counted : 0;
}

static void xent_ref(const td_op_args *a)
{
    losses(a, a->out[0], a->out[1]);
}

static void xent_grad(const td_grad_args *ga)
{
    if (ga->need[0] && ga->dy[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_XENT_BACK, ga->y->attr, ga->y->in[0], ga->y->in[1],
                             td__part(ga->g, ga->y, 1), ga->dy[0]);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_shape one = TD_SCALAR;

    TD_TRY(check(a));
    TD_TRY(td__want_weight_shape(a, 2, "lse", &a->in_desc[1]->shape));
    TD_TRY(td__want_weight_shape(a, 3, "dloss", &one));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 1;
    return TD_OK;
}

void td__xent_row_back(const td_attr_xent *at, const double *x, int64_t n, int64_t t, double lse,
                       double scale, double *dx)
{
    bool live = td__xent_counts(at, t) && t >= 0 && t < n;
    for (int64_t i = 0; i < n; i++) {
        double p = live ? exp(x[i] - lse) - at->smoothing / (double)n : 0;
        if (live && i == t)
            p -= 1 - at->smoothing;
        dx[i] = live ? p * scale : 0;
    }
}

/* dx (R, C), from lse (R) and dloss () */
static void gradients(const td_op_args *a, const double *lse, const double *dloss, double *dx)
{
    const td_attr_xent *at = a->attr;
    const double *x = a->in[0]; /* (R, C) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape), n = td__last_dim(&a->in_desc[0]->shape);
    int64_t counted = 0;

    for (int64_t r = 0; r < rows; r++)
        counted += td__xent_counts(at, td__ref_index(a->in_desc[1]->dtype, a->in[1], r));
    for (int64_t r = 0; r < rows; r++, x += n, dx += n)
        td__xent_row_back(at, x, n, td__ref_index(a->in_desc[1]->dtype, a->in[1], r), lse[r],
                          dloss[0] / (double)counted, dx);
}

static void back_ref(const td_op_args *a)
{
    gradients(a, a->in[2], a->in[3], a->out[0]);
}

/* Loss and gradient in one pass over the logits, where dloss is known before; made by rewriting. */

static td_status both_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype stat = td__acc_dtype(a->in_desc[0]->dtype);
    td_shape one = TD_SCALAR;

    TD_TRY(check(a));
    TD_TRY(td__want_weight_shape(a, 2, "dloss", &one));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    out[1] = td__desc(stat, TD_SCALAR);
    out[2] = td__desc(stat, a->in_desc[1]->shape);
    *n_out = 3;
    return TD_OK;
}

static void both_ref(const td_op_args *a)
{
    losses(a, a->out[1], a->out[2]);
    gradients(a, a->out[2], a->in[2], a->out[0]);
}

TD_API td_node *td_softmax_cross_entropy(td_graph *g, td_node *logits, td_node *target,
                                         const td_xent_opts *o)
{
    td_attr_xent at;

    memset(&at, 0, sizeof at);
    if (o) {
        at.use_ignore = o->use_ignore;
        at.ignore_index = o->use_ignore ? o->ignore_index : 0;
        at.smoothing = o->smoothing;
    }
    return TD__NODE(g, TD_OP_XENT, &at, logits, target);
}

static const td_attr_xent PLAIN = {.smoothing = 0}, SMOOTH = {.smoothing = 0.1},
                          IGNORE = {.use_ignore = true, .ignore_index = -1},
                          BOTH = {.use_ignore = true, .ignore_index = 2, .smoothing = 0.2};

#define FORWARD(attribute, r, c, first) \
    .n_in = 2, .in = {TD__FLOATS(r, c), TD__INTS(r)}, .attr = &attribute, .ilo = first, .ihi = c
static const td_op_sample SAMPLES[] = {
    {FORWARD(PLAIN, 5, 7, 0)},
    {FORWARD(SMOOTH, 5, 7, 0)},
    {FORWARD(IGNORE, 19, 3, -1)},
    {FORWARD(BOTH, 19, 4, 0)},
    {FORWARD(PLAIN, 1, 1, 0)},
    {FORWARD(PLAIN, 0, 7, 0)}, /* nothing counts: 0 */
    {FORWARD(PLAIN, 4, 10, 0), .lo = -30, .hi = 30, .tol = 4},
    {.n_in = 2, .in = {TD__FLOATS(2, 3, 9), TD__LONGS(2, 3)}, .attr = &PLAIN, .ihi = 9},
    {.n_in = 2, .in = {TD__FLOATS(9), {.dtype = TD_I64}}, .attr = &PLAIN, .ihi = 9},
    {FORWARD(PLAIN, 64, 10, 0)},
    {FORWARD(BOTH, 7, 1029, 0), .no_grad = TD__ALL_INPUTS},
    {FORWARD(PLAIN, 33, 257, 0), .no_grad = TD__ALL_INPUTS},
};

#define BACK(attribute, r, c, first)                                                    \
    .n_in = 4, .in = {TD__FLOATS(r, c), TD__INTS(r), TD__FLOATS(r), {.dtype = TD_F32}}, \
    .attr = &attribute, .ilo = first, .ihi = c, .positive = TD__BIT(2)
static const td_op_sample BACK_SAMPLES[] = {
    {BACK(PLAIN, 5, 7, 0)},
    {BACK(SMOOTH, 5, 7, 0)},
    {BACK(IGNORE, 19, 3, -1)},
    {BACK(BOTH, 19, 4, 0)},
    {BACK(PLAIN, 0, 7, 0)},
    {BACK(PLAIN, 64, 10, 0)},
    {BACK(BOTH, 7, 1029, 0)},
    {.n_in = 4,
     .in = {TD__FLOATS(2, 3, 9), TD__LONGS(2, 3), TD__FLOATS(2, 3), {.dtype = TD_F32}},
     .attr = &PLAIN,
     .ihi = 9,
     .positive = TD__BIT(2)},
};

#define BOTH_OF(attribute, r, c, first)                                                      \
    .n_in = 3, .in = {TD__FLOATS(r, c), TD__INTS(r), {.dtype = TD_F32}}, .attr = &attribute, \
    .ilo = first, .ihi = c
static const td_op_sample BOTH_SAMPLES[] = {
    {BOTH_OF(PLAIN, 5, 7, 0)},
    {BOTH_OF(SMOOTH, 5, 7, 0)},
    {BOTH_OF(IGNORE, 19, 3, -1)},
    {BOTH_OF(BOTH, 19, 4, 0)},
    {BOTH_OF(PLAIN, 0, 7, 0)},
    {BOTH_OF(PLAIN, 64, 16, 0)},
    {BOTH_OF(BOTH, 7, 1029, 0)},
    {BOTH_OF(BOTH, 7, 16392, 0)}, /* long rows of whole lots */
    {BOTH_OF(PLAIN, 3, 4104, 0)}, /* rows of whole lots */
    {.n_in = 3,
     .in = {TD__FLOATS(2, 3, 9), TD__LONGS(2, 3), {.dtype = TD_F32}},
     .attr = &PLAIN,
     .ihi = 9},
};

const td_op_def td__op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_xent),
    .infer = xent_infer,
    .ref = xent_ref,
    .grad = xent_grad,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_softmax_cross_entropy_back = {
    .name = "softmax_cross_entropy_back",
    .n_in_min = 4,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_xent),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(2) | TD__BIT(3),
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

const td_op_def td__op_softmax_cross_entropy_both = {
    .name = "softmax_cross_entropy_both",
    .n_in_min = 3,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_xent),
    .infer = both_infer,
    .ref = both_ref,
    .grad = NULL,
    .weights = TD__BIT(2),
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BOTH_SAMPLES,
    .n_samples = TD_LEN(BOTH_SAMPLES),
};
