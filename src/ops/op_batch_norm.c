/* op_batch_norm.c -- batch normalisation, for training and for evaluation, and its backward.
 *
 * For each channel c of x (N, C, ...), over the M elements that lie in it:
 *
 *     mean = sum x / M,   v = sum (x - mean)^2 / M,   rstd = 1 / sqrt(v + eps)
 *     z = gamma (x - mean) rstd + beta (+ residual),  y = z or relu(z)
 *
 * and var = v M / (M - 1), the unbiased variance, for the running average (v when M is 1).
 * With dz = dy, or dy where y > 0 for relu:
 *
 *     dbeta = sum dz,  dgamma = sum dz (x - mean) rstd,  dresidual = dz
 *     dx = gamma rstd (dz - dbeta / M - (x - mean) rstd dgamma / M)
 *
 * dy may come as two arrays that are added. Without a residual, y > 0 may be found from x and beta
 * again, which are read anyway, instead of y. Both are put there by rewriting.
 *
 * The running averages are inputs so that a program for evaluation knows them; training does not
 * read them. Mean, rstd and var carry no gradient. residual and relu are put there by rewriting. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_normalise.h"

/* Element i of channel c of (N, C, inner). */
typedef struct channels {
    int64_t c, inner, m; /* m = N inner: elements in one channel */
} channels;

static channels channels_of(const td_shape *x)
{
    channels ch = {.c = x->dim[1], .inner = 1};

    for (int i = 2; i < x->ndim; i++)
        ch.inner *= x->dim[i];
    ch.m = x->dim[0] * ch.inner;
    return ch;
}

static int64_t channel_at(const channels *ch, int64_t c, int64_t i)
{
    return (i / ch->inner * ch->c + c) * ch->inner + i % ch->inner;
}

static td_status check_attr(const td_attr_norm *at)
{
    TD_TRY(td__norm_check_eps(at));
    if (!(at->momentum >= 0) || !(at->momentum <= 1))
        return TD_FAIL(TD_EINVAL, "momentum is %g; it must lie in 0..1", at->momentum);
    if (at->act != TD_ACT_NONE && at->act != TD_ACT_RELU)
        return TD_FAIL(TD_EINVAL, "activation %d cannot be fused; only relu can", (int)at->act);
    return TD_OK;
}

/* Input i is an activation like input 0. */
static td_status want_like(const td_op_args *a, int i, const char *what)
{
    TD_TRY(td__want_activation(a, i, what, &a->in_desc[0]->shape));
    return td__want_same_layout(a, i, what);
}

static td_status batch_norm_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_norm *at = a->attr;
    int n_in = 3 + (at->has_running ? 2 : 0) + (at->has_residual ? 1 : 0);

    TD_TRY(check_attr(at));
    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_min_ndim(a, 0, "x", 2));
    if (at->has_residual && !at->has_running)
        return TD_FAIL(TD_EINVAL, "a residual needs the running averages before it");
    if (a->n_in != n_in)
        return TD_FAIL(TD_EINVAL, "%d inputs given; there must be %d", a->n_in, n_in);
    TD_TRY(td__norm_want_channels(a, 1, "gamma"));
    TD_TRY(td__norm_want_channels(a, 2, "beta"));
    if (at->has_running) {
        TD_TRY(td__norm_want_channels(a, 3, "the running mean"));
        TD_TRY(td__norm_want_channels(a, 4, "the running variance"));
    }
    if (at->has_residual)
        TD_TRY(want_like(a, 5, "the residual"));
    out[0] = *a->in_desc[0];
    out[1] = td__desc(td__acc_dtype(out[0].dtype), TD_SHAPE(out[0].shape.dim[1]));
    out[2] = out[3] = out[1];
    *n_out = 4;
    return TD_OK;
}

static void batch_norm_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const channels ch = channels_of(&a->in_desc[0]->shape);
    const double *x = a->in[0], *gamma = a->in[1], *beta = a->in[2];
    const double *residual = at->has_residual ? a->in[5] : NULL;
    double *y = a->out[0];
    double *mean = a->out[1], *rstd = a->out[2], *var = a->out[3]; /* (C) each */

    for (int64_t c = 0; c < ch.c; c++) {
        double m = ch.m > 0 ? (double)ch.m : 1, sum = 0, squares = 0;
        for (int64_t i = 0; i < ch.m; i++)
            sum += x[channel_at(&ch, c, i)];
        mean[c] = sum / m;
        for (int64_t i = 0; i < ch.m; i++) {
            double d = x[channel_at(&ch, c, i)] - mean[c];
            squares += d * d;
        }
        rstd[c] = 1 / sqrt(squares / m + at->eps);
        var[c] = squares / (ch.m > 1 ? m - 1 : 1);
        for (int64_t i = 0; i < ch.m; i++) {
            int64_t k = channel_at(&ch, c, i);
            double z =
                gamma[c] * (x[k] - mean[c]) * rstd[c] + beta[c] + (residual ? residual[k] : 0);
            y[k] = at->act == TD_ACT_RELU && !(z > 0) ? 0 : z;
        }
    }
}

static void batch_norm_grad(const td_grad_args *ga)
{
    const td_attr_norm *at = ga->y->attr;
    td_graph *g = ga->g;
    td_node *const *in = ga->y->in, *dy = ga->dy[0];
    bool relu = at->act == TD_ACT_RELU;
    bool need_residual = at->has_residual && ga->need[5];
    td_attr_norm back;

    if (!dy)
        return;
    memcpy(&back, at, sizeof back);
    back.has_residual = need_residual && relu; /* without relu it is dy itself */
    back.has_running = false;
    td_node *mean = td__part(g, ga->y, 1), *rstd = td__part(g, ga->y, 2);
    td_node *dx = NULL;
    if (ga->need[0] || ga->need[1] || ga->need[2] || back.has_residual)
        dx = td__node(g, TD_OP_BATCH_NORM_BACK, &back,
                      (td_node *[]){dy, in[0], in[1], mean, rstd, ga->y}, relu ? 6 : 5);
    if (ga->need[0])
        ga->dx[0] = dx;
    for (int i = 1; i <= 2; i++)
        if (ga->need[i])
            ga->dx[i] = td__part(g, dx, i);
    if (need_residual)
        ga->dx[5] = relu ? td__part(g, dx, 3) : dy;
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_norm *at = a->attr;

    TD_TRY(check_attr(at));
    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_min_ndim(a, 0, "dy", 2));
    TD_TRY(want_like(a, 1, "x"));
    TD_TRY(td__norm_want_channels(a, 2, "gamma"));
    TD_TRY(td__norm_want_channels(a, 3, "mean"));
    TD_TRY(td__norm_want_channels(a, 4, "rstd"));
    int n_in = a->n_in - (at->has_more ? 1 : 0);
    if (n_in < 5 || n_in > 6)
        return TD_FAIL(TD_EINVAL, "%d inputs given", a->n_in);
    if (n_in < 6 && at->act == TD_ACT_RELU)
        return TD_FAIL(TD_EINVAL, "y is missing; relu's backward needs it");
    if (at->by_beta && (n_in < 6 || at->has_residual || at->has_more || at->act != TD_ACT_RELU))
        return TD_FAIL(TD_EINVAL,
                       "beta tells the sign of y only for relu, with no residual and one dy");
    if (at->by_beta)
        TD_TRY(td__norm_want_channels(a, 5, "beta"));
    else if (n_in > 5)
        TD_TRY(want_like(a, 5, "y"));
    if (at->has_more)
        TD_TRY(want_like(a, n_in, "what is added to dy"));
    out[0] = *a->in_desc[0];
    out[1] = out[2] = td__desc(a->in_desc[2]->dtype, a->in_desc[2]->shape);
    out[3] = out[0];
    *n_out = at->has_residual ? 4 : 3;
    return TD_OK;
}

/* The gradient before relu of element k, in channel c. */
static double through(const td_op_args *a, int64_t c, int64_t k)
{
    const td_attr_norm *at = a->attr;
    const double *dy = a->in[0], *x = a->in[1];
    const double *gamma = a->in[2], *mean = a->in[3], *rstd = a->in[4]; /* (C) each */
    const double *more = at->has_more ? a->in[a->n_in - 1] : NULL;
    double y = 1;
    if (at->by_beta)
        y = gamma[c] * (x[k] - mean[c]) * rstd[c] + ((const double *)a->in[5])[c];
    else if (at->act == TD_ACT_RELU)
        y = ((const double *)a->in[5])[k];
    return !(y > 0) ? 0 : dy[k] + (more ? more[k] : 0);
}

static void back_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const channels ch = channels_of(&a->in_desc[0]->shape);
    const double *x = a->in[1];
    const double *gamma = a->in[2], *mean = a->in[3], *rstd = a->in[4]; /* (C) each */
    double *dx = a->out[0], *dgamma = a->out[1], *dbeta = a->out[2];
    double *dresidual = at->has_residual ? a->out[3] : NULL;

    for (int64_t c = 0; c < ch.c; c++) {
        double m = (double)ch.m;
        dgamma[c] = dbeta[c] = 0;
        for (int64_t i = 0; i < ch.m; i++) {
            int64_t k = channel_at(&ch, c, i);
            double dz = through(a, c, k);
            dbeta[c] += dz;
            dgamma[c] += dz * (x[k] - mean[c]) * rstd[c];
            if (dresidual)
                dresidual[k] = dz;
        }
        for (int64_t i = 0; i < ch.m; i++) {
            int64_t k = channel_at(&ch, c, i);
            double dz = through(a, c, k), normal = (x[k] - mean[c]) * rstd[c];
            dx[k] = gamma[c] * rstd[c] * (dz - dbeta[c] / m - normal * dgamma[c] / m);
        }
    }
}

/* Evaluation: the statistics are given. Inputs x, gamma, beta, mean, var, residual?. */

static td_status eval_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_norm *at = a->attr;

    TD_TRY(check_attr(at));
    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_min_ndim(a, 0, "x", 2));
    if (a->n_in != (at->has_residual ? 6 : 5))
        return TD_FAIL(TD_EINVAL, "%d inputs given; there must be %d", a->n_in,
                       at->has_residual ? 6 : 5);
    TD_TRY(td__norm_want_channels(a, 1, "gamma"));
    TD_TRY(td__norm_want_channels(a, 2, "beta"));
    TD_TRY(td__norm_want_channels(a, 3, "mean"));
    TD_TRY(td__norm_want_channels(a, 4, "var"));
    if (at->has_residual)
        TD_TRY(want_like(a, 5, "the residual"));
    out[0] = *a->in_desc[0];
    *n_out = 1;
    return TD_OK;
}

static void eval_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const channels ch = channels_of(&a->in_desc[0]->shape);
    const double *x = a->in[0];
    const double *gamma = a->in[1], *beta = a->in[2], *mean = a->in[3], *var = a->in[4]; /* (C) */
    const double *residual = at->has_residual ? a->in[5] : NULL;
    double *y = a->out[0];

    for (int64_t c = 0; c < ch.c; c++)
        for (int64_t i = 0; i < ch.m; i++) {
            int64_t k = channel_at(&ch, c, i);
            double z = gamma[c] * (x[k] - mean[c]) / sqrt(var[c] + at->eps) + beta[c] +
                       (residual ? residual[k] : 0);
            y[k] = at->act == TD_ACT_RELU && !(z > 0) ? 0 : z;
        }
}

td_node *td__batch_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta,
                        td_node *running_mean, td_node *running_var, const td__batch_norm_opts *o)
{
    td_attr_norm at;

    if (!running_mean != !running_var)
        return td__graph_fail(g, TD_EINVAL, "td_batch_norm",
                              "one of running_mean and running_var is NULL; give both or none");
    if (running_mean && (running_mean->op != TD_OP_STATE || running_var->op != TD_OP_STATE))
        return td__graph_fail(g, TD_EINVAL, "td_batch_norm",
                              "the running averages '%s' and '%s' must be states (td_state)",
                              running_mean->name, running_var->name);
    memset(&at, 0, sizeof at);
    at.eps = o->eps;
    at.momentum = o->momentum;
    at.sync = o->sync;
    at.act = TD_ACT_NONE;
    at.has_running = running_mean != NULL;
    td_node *y =
        td__node(g, TD_OP_BATCH_NORM, &at, (td_node *[]){x, gamma, beta, running_mean, running_var},
                 at.has_running ? 5 : 3);
    if (y && at.has_running) {
        td__graph_track(g, running_mean, td__part(g, y, 1), o->momentum);
        td__graph_track(g, running_var, td__part(g, y, 3), o->momentum);
    }
    return y;
}

td_node *td_batch_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta,
                       td_node *running_mean, td_node *running_var, double momentum, double eps)
{
    return td__batch_norm(g, x, gamma, beta, running_mean, running_var,
                          &(td__batch_norm_opts){.momentum = momentum, .eps = eps});
}

static const td_attr_norm
    BARE = {.eps = 1e-5, .momentum = 0.1},
    RUNNING = {.eps = 1e-5, .momentum = 0.1, .has_running = true},
    RELU = {.eps = 1e-5, .momentum = 0.1, .has_running = true, .act = TD_ACT_RELU},
    RESIDUAL = {.eps = 1e-3, .momentum = 0.1, .has_running = true, .has_residual = true},
    BOTH = {.eps = 1e-5, .has_running = true, .has_residual = true, .act = TD_ACT_RELU},
    BY_BETA = {.eps = 1e-5, .act = TD_ACT_RELU, .by_beta = true},
    MORE = {.eps = 1e-5, .has_more = true},
    MORE_RELU = {.eps = 1e-5, .act = TD_ACT_RELU, .has_more = true},
    MORE_BOTH = {.eps = 1e-5, .has_residual = true, .act = TD_ACT_RELU, .has_more = true};

#define BIG .no_grad = TD__ALL_INPUTS
#define STATES .no_grad = TD__BIT(3) | TD__BIT(4) /* not read in training */
#define C5 TD__FLOATS(5)
#define C35 TD__FLOATS(35)
#define C264 TD__FLOATS(264) /* more than 32 times 8 channels */
#define LOTS TD__FLOATS(3, 264, 3, 5)
static const td_op_sample SAMPLES[] = {
    {.n_in = 3, .in = {TD__FLOATS(3, 5, 2, 4), C5, C5}, .attr = &BARE},
    {.n_in = 3, .in = {TD__FLOATS(7, 5), C5, C5}, .attr = &BARE},
    {.n_in = 3, .in = {TD__FLOATS(3, 5, 4), C5, C5}, .attr = &BARE},
    {.n_in = 3, .in = {TD__FLOATS(1, 5, 3, 3), C5, C5}, .attr = &BARE},
    {.n_in = 3, .in = {TD__FLOATS(0, 5, 3, 3), C5, C5}, .attr = &BARE},
    {.n_in = 5, .in = {TD__FLOATS(3, 5, 2, 4), C5, C5, C5, C5}, .attr = &RUNNING, STATES},
    {.n_in = 5, .in = {TD__FLOATS(3, 5, 2, 4), C5, C5, C5, C5}, .attr = &RELU, STATES},
    {.n_in = 6,
     .in = {TD__FLOATS(2, 5, 3, 3), C5, C5, C5, C5, TD__FLOATS(2, 5, 3, 3)},
     .attr = &RESIDUAL,
     STATES},
    {.n_in = 6,
     .in = {TD__FLOATS(2, 5, 3, 3), C5, C5, C5, C5, TD__FLOATS(2, 5, 3, 3)},
     .attr = &BOTH,
     STATES},
    {.n_in = 5, .in = {TD__FLOATS(4, 35, 9, 7), C35, C35, C35, C35}, .attr = &RELU, BIG},
    {.n_in = 6,
     .in = {TD__FLOATS(4, 35, 9, 7), C35, C35, C35, C35, TD__FLOATS(4, 35, 9, 7)},
     .attr = &BOTH,
     BIG},
    {.n_in = 3, .in = {TD__FLOATS(33, 35), C35, C35}, .attr = &BARE, BIG},
    {.n_in = 3, .in = {LOTS, C264, C264}, .attr = &BARE, BIG},
    {.n_in = 6, .in = {LOTS, C264, C264, C264, C264, LOTS}, .attr = &BOTH, BIG},
};

#define POSITIVE_RSTD .positive = TD__BIT(4)
#define BETA .weights = TD__BIT(5)
#define SMALL TD__FLOATS(3, 5, 2, 4)
#define LARGE TD__FLOATS(4, 35, 9, 7)
static const td_op_sample BACK_SAMPLES[] = {
    {.n_in = 5, .in = {SMALL, SMALL, C5, C5, C5}, .attr = &BARE, POSITIVE_RSTD},
    {.n_in = 6, .in = {SMALL, SMALL, C5, C5, C5, SMALL}, .attr = &BARE, POSITIVE_RSTD},
    {.n_in = 6, .in = {SMALL, SMALL, C5, C5, C5, SMALL}, .attr = &RELU, POSITIVE_RSTD},
    {.n_in = 5, .in = {SMALL, SMALL, C5, C5, C5}, .attr = &RESIDUAL, POSITIVE_RSTD},
    {.n_in = 6, .in = {SMALL, SMALL, C5, C5, C5, SMALL}, .attr = &BOTH, POSITIVE_RSTD},
    {.n_in = 5,
     .in = {TD__FLOATS(7, 5), TD__FLOATS(7, 5), C5, C5, C5},
     .attr = &BARE,
     POSITIVE_RSTD},
    {.n_in = 5,
     .in = {TD__FLOATS(0, 5, 3, 3), TD__FLOATS(0, 5, 3, 3), C5, C5, C5},
     .attr = &BARE,
     POSITIVE_RSTD},
    {.n_in = 5, .in = {LARGE, LARGE, C35, C35, C35}, .attr = &BARE, POSITIVE_RSTD},
    {.n_in = 6, .in = {LARGE, LARGE, C35, C35, C35, LARGE}, .attr = &BOTH, POSITIVE_RSTD},
    {.n_in = 5, .in = {LOTS, LOTS, C264, C264, C264}, .attr = &RESIDUAL, POSITIVE_RSTD},
    {.n_in = 6, .in = {LOTS, LOTS, C264, C264, C264, LOTS}, .attr = &BOTH, POSITIVE_RSTD},
    {.n_in = 6, .in = {SMALL, SMALL, C5, C5, C5, C5}, .attr = &BY_BETA, POSITIVE_RSTD, BETA},
    {.n_in = 6, .in = {SMALL, SMALL, C5, C5, C5, SMALL}, .attr = &MORE, POSITIVE_RSTD},
    {.n_in = 7, .in = {SMALL, SMALL, C5, C5, C5, SMALL, SMALL}, .attr = &MORE_RELU, POSITIVE_RSTD},
    {.n_in = 7, .in = {SMALL, SMALL, C5, C5, C5, SMALL, SMALL}, .attr = &MORE_BOTH, POSITIVE_RSTD},
    {.n_in = 6, .in = {LOTS, LOTS, C264, C264, C264, C264}, .attr = &BY_BETA, POSITIVE_RSTD, BETA},
    {.n_in = 6, .in = {LOTS, LOTS, C264, C264, C264, LOTS}, .attr = &MORE, POSITIVE_RSTD},
    {.n_in = 7,
     .in = {LOTS, LOTS, C264, C264, C264, LOTS, LOTS},
     .attr = &MORE_RELU,
     POSITIVE_RSTD},
    {.n_in = 7,
     .in = {LOTS, LOTS, C264, C264, C264, LOTS, LOTS},
     .attr = &MORE_BOTH,
     POSITIVE_RSTD},
};

#define POSITIVE_VAR .positive = TD__BIT(4)
static const td_op_sample EVAL_SAMPLES[] = {
    {.n_in = 5, .in = {SMALL, C5, C5, C5, C5}, .attr = &RUNNING, POSITIVE_VAR},
    {.n_in = 5, .in = {SMALL, C5, C5, C5, C5}, .attr = &RELU, POSITIVE_VAR},
    {.n_in = 6, .in = {SMALL, C5, C5, C5, C5, SMALL}, .attr = &RESIDUAL, POSITIVE_VAR},
    {.n_in = 6, .in = {LARGE, C35, C35, C35, C35, LARGE}, .attr = &BOTH, POSITIVE_VAR},
    {.n_in = 5, .in = {TD__FLOATS(7, 5), C5, C5, C5, C5}, .attr = &BARE, POSITIVE_VAR},
    {.n_in = 5, .in = {TD__FLOATS(0, 5, 3, 3), C5, C5, C5, C5}, .attr = &BARE, POSITIVE_VAR},
};

const td_op_def td__op_batch_norm = {
    .name = "batch_norm",
    .n_in_min = 3,
    .n_in_max = 6,
    .attr_size = sizeof(td_attr_norm),
    .infer = batch_norm_infer,
    .ref = batch_norm_ref,
    .grad = batch_norm_grad,
    .weights = TD__BIT(1) | TD__BIT(2) | TD__BIT(3) | TD__BIT(4),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_batch_norm_back = {
    .name = "batch_norm_back",
    .n_in_min = 5,
    .n_in_max = 7,
    .attr_size = sizeof(td_attr_norm),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(2) | TD__BIT(3) | TD__BIT(4),
    .inplace = TD__BIT(0) | TD__BIT(1),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

const td_op_def td__op_batch_norm_eval = {
    .name = "batch_norm_eval",
    .n_in_min = 5,
    .n_in_max = 6,
    .attr_size = sizeof(td_attr_norm),
    .infer = eval_infer,
    .ref = eval_ref,
    .grad = NULL,
    .weights = TD__BIT(1) | TD__BIT(2) | TD__BIT(3) | TD__BIT(4),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = EVAL_SAMPLES,
    .n_samples = TD_LEN(EVAL_SAMPLES),
};
