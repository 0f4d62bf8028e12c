/* losses.c -- losses and norms that are compositions of operators, so that their gradients are too.
 *
 *    mse    mean (x - t)^2                    l1   mean |x - t|
 *    huber  mean of op_huber.c                bce  mean (softplus(x) - x t)
 *    nll    -mean logp[target]                kl   sum p (ln p - logp) / rows
 *    norm   sqrt(sum x^2), gradient 0 at 0
 *
 * Losses are worked out in f32 (f64 for f64), also inside bf16 programs: the explicit casts say so
 * to the rewrite that lowers precision, and cost nothing where there is nothing to convert. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

/* Pin x to the type in which losses are computed. */
static td_node *widen(td_graph *g, td_node *x)
{
    return x ? td_cast(g, x, td__acc_dtype(x->out[0].dtype)) : NULL;
}

static td_node *mean_all(td_graph *g, td_node *x)
{
    return td_mean(g, x, NULL, 0, false);
}

/* x and target must be floats of one shape: broadcasting a target is nearly always a mistake. */
static bool comparable(td_graph *g, const char *call, const td_node *x, const td_node *target)
{
    if (!x || !target) /* an earlier error, or reported by the next call */
        return true;
    const td_desc *dx = &x->out[0], *dt = &target->out[0];
    char sx[128], st[128];
    td_shape_text(&dx->shape, sx, sizeof sx);
    td_shape_text(&dt->shape, st, sizeof st);
    if (!td_dtype_is_float(dx->dtype) || !td_dtype_is_float(dt->dtype)) {
        td__graph_fail(g, TD_EINVAL, call,
                       "%s is %s%s and target %s is %s%s, but both must be floating", x->name,
                       td_dtype_name(dx->dtype), sx, target->name, td_dtype_name(dt->dtype), st);
        return false;
    }
    if (!td_shape_equal(&dx->shape, &dt->shape)) {
        td__graph_fail(g, TD_EINVAL, call, "%s has shape %s, but target %s has %s", x->name, sx,
                       target->name, st);
        return false;
    }
    return true;
}

td_node *td_mse(td_graph *g, td_node *x, td_node *target)
{
    if (!comparable(g, "td_mse", x, target))
        return NULL;
    return mean_all(g, td_square(g, td_sub(g, widen(g, x), widen(g, target))));
}

td_node *td_l1(td_graph *g, td_node *x, td_node *target)
{
    if (!comparable(g, "td_l1", x, target))
        return NULL;
    return mean_all(g, td_abs(g, td_sub(g, widen(g, x), widen(g, target))));
}

td_node *td_huber(td_graph *g, td_node *x, td_node *target, double delta)
{
    td_attr_slope attr = {delta};
    if (!comparable(g, "td_huber", x, target))
        return NULL;
    return mean_all(g, TD__NODE(g, TD_OP_HUBER, &attr, widen(g, x), widen(g, target)));
}

td_node *td_bce_with_logits(td_graph *g, td_node *x, td_node *target)
{
    if (!comparable(g, "td_bce_with_logits", x, target))
        return NULL;
    td_node *logit = widen(g, x);
    return mean_all(g, td_sub(g, td_softplus(g, logit), td_mul(g, logit, widen(g, target))));
}

td_node *td_nll(td_graph *g, td_node *logp, td_node *target)
{
    if (!logp || !target)
        return NULL;
    const td_shape *s = &logp->out[0].shape;
    td_shape column = target->out[0].shape; /* (..., 1) */
    bool fits = s->ndim == column.ndim + 1;
    for (int i = 0; fits && i < column.ndim; i++)
        fits = column.dim[i] == s->dim[i];
    if (!fits) {
        char a[128], b[128];
        return td__graph_fail(g, TD_EINVAL, "td_nll",
                              "%s has shape %s and target %s has %s, but they must be (..., C) and "
                              "(...)",
                              logp->name, td_shape_text(s, a, sizeof a), target->name,
                              td_shape_text(&column, b, sizeof b));
    }
    column.dim[column.ndim++] = 1;
    td_node *picked = td_gather(g, widen(g, logp), td_reshape(g, target, column), -1);
    return td_neg(g, mean_all(g, picked));
}

td_node *td_kl_div(td_graph *g, td_node *logp, td_node *p)
{
    if (!comparable(g, "td_kl_div", logp, p))
        return NULL;
    if (!logp || !p)
        return NULL;
    const td_shape *s = &logp->out[0].shape;
    int64_t rows = s->ndim > 1 ? td__count_range(s, 0, s->ndim - 1) : 1;
    if (rows == 0 || s->ndim == 0) {
        char text[128];
        return td__graph_fail(g, TD_EINVAL, "td_kl_div", "%s of shape %s has no rows", logp->name,
                              td_shape_text(s, text, sizeof text));
    }
    /* p = 0 contributes 0, as p ln p tends to: ln is kept finite there. */
    td_node *wide = widen(g, p);
    td_node *log_p = td_log(g, td_clamp(g, wide, 1e-37, INFINITY));
    td_node *terms = td_mul(g, wide, td_sub(g, log_p, widen(g, logp)));
    return td_affine(g, td_sum(g, terms, NULL, 0, false), 1 / (double)rows, 0);
}

td_node *td_norm(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep)
{
    unsigned mask; /* checked here for the call's name in the message */
    if (x && !td__axes_mask(g, "td_norm", x, axes, n_axes, &mask))
        return NULL;
    td_node *sum = td_sum(g, td_square(g, x), axes, n_axes, keep);
    if (!sum)
        return NULL;
    /* The slope of sqrt at 0 is infinite; the norm's gradient there is taken as 0. */
    td_node *zero = td__scalar_like(g, sum, 0), *is_zero = td_equal(g, sum, zero);
    td_node *safe = td_where(g, is_zero, td__scalar_like(g, sum, 1), sum);
    return td_where(g, is_zero, zero, td_sqrt(g, safe));
}
