/* 10_plugin.c -- a plug-in for job files: a layer, a loss, a metric, a map function, a gradient
 * hook and a sync rule of one's own.
 *
 *     cc -shared -fPIC 10_plugin.c -o 10_plugin.so $(pkg-config --cflags tandem)
 *
 *     plugin: {files: 10_plugin.so, loss: log_cosh, metrics: [off], sync: clipped}
 *     model: [flatten, {linear: 32}, {plugin: swish, with: [beta=1.5]}, {linear: 1}] */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <tandem/ops.h>
#include <tandem/plugin.h>

/* y = x sigmoid(beta x), with a learned factor for each value. */
static td_node *swish(td_graph *g, const char *name, td_node *x, const td_plugin_args *with)
{
    static const td_init ONES = {.kind = TD_INIT_ONES};
    td_shape s = td_node_shape(x);
    double beta = td_plugin_arg(with, "beta", 1);
    if (s.ndim < 2) {
        (void)td_plugin_fail(TD_EINVAL, "swish: expected (rows, width)");
        return NULL;
    }
    char param[128];
    snprintf(param, sizeof param, "%s.scale", name);
    td_node *scale = td_param(g, param, TD_SHAPE(s.dim[s.ndim - 1]), ONES);
    return td_mul(g, scale, td_mul(g, x, td_sigmoid(g, td_affine(g, x, beta, 0))));
}

/* mean of log(cosh(e)) = mean of e + softplus(-2 e) - log 2 */
static td_node *log_cosh(td_graph *g, td_node *output, td_node *target)
{
    td_node *e = td_sub(g, output, target);
    td_node *each = td_add(g, e, td_softplus(g, td_affine(g, e, -2, 0)));
    return td_affine(g, td_mean(g, each, NULL, 0, false), 1, -0.69314718055994531);
}

/* The share of predictions that are off by more than 1. */
static td_node *off(td_graph *g, td_node *output, td_node *target)
{
    td_node *e = td_abs(g, td_sub(g, output, target));
    td_node *far = td_cast(g, td_less(g, td_affine(g, e, 0, 1), e), TD_F32);
    return td_mean(g, far, NULL, 0, false);
}

/* x and its square side by side: (n) -> (2 n). */
static td_status with_square_shape(const td_field *in, td_field *out)
{
    if (in->dtype != TD_F32 || in->shape.ndim != 1)
        return td_plugin_fail(TD_EINVAL, "with_square: expected rows of f32");
    out->shape.dim[0] = 2 * in->shape.dim[0];
    return TD_OK;
}

static void with_square(const td_field *in, const td_sample *s, const void *x, void *y)
{
    const float *from = x;
    float *to = y;
    (void)s;
    for (int64_t i = 0; i < in->shape.dim[0]; i++) {
        to[i] = from[i];
        to[in->shape.dim[0] + i] = from[i] * from[i];
    }
}

/* A gradient hook: the sum over ranks, each element clipped to [-1, 1]. */
static td_status clipped(const td_plugin_step *s, float *data, size_t n)
{
    if (s->comm) {
        td_status st = td_allreduce(s->comm, data, data, n, TD_F32, TD_REDUCE_SUM, NULL);
        if (st)
            return st;
    }
    for (size_t i = 0; i < n; i++)
        data[i] = data[i] > 1 ? 1 : data[i] < -1 ? -1 : data[i];
    return TD_OK;
}

/* A sync rule: ranks learn from their own rows and average their params every 4 steps. */
static td_status own_rows(const td_plugin_step *s, float *data, size_t n)
{
    for (size_t i = 0; i < n; i++) /* parts of ranks add up to the batch's gradient */
        data[i] *= (float)s->ranks;
    return TD_OK;
}

static td_status average(const td_plugin_step *s, float *params, size_t n)
{
    if (!s->comm || (s->step % 4 != 0 && !s->meeting))
        return TD_OK;
    td_status st = td_allreduce(s->comm, params, params, n, TD_F32, TD_REDUCE_SUM, NULL);
    for (size_t i = 0; !st && i < n; i++)
        params[i] /= (float)s->ranks;
    return st;
}

static const td_plugin_layer LAYERS[] = {{"swish", "scale x sigmoid(beta x)", swish}};
static const td_plugin_loss LOSSES[] = {{"log_cosh", "mean of log cosh", false, log_cosh}};
static const td_plugin_metric METRICS[] = {{"off", "share that is off by more than 1", false, off}};
static const td_plugin_map MAPS[] = {
    {"with_square", "x and its square", with_square_shape, with_square}};
static const td_plugin_sync SYNCS[] = {
    {"clipped", "gradients added up, then clipped", clipped, NULL},
    {"averaging", "own updates, params averaged every 4 steps", own_rows, average}};

const td_plugin *td_plugin_get(void)
{
    static const td_plugin P = {TD_PLUGIN_HEAD,     .name = "example", .layers = LAYERS,
                                .n_layers = 1,      .losses = LOSSES,  .n_losses = 1,
                                .metrics = METRICS, .n_metrics = 1,    .maps = MAPS,
                                .n_maps = 1,        .syncs = SYNCS,    .n_syncs = 2};
    return &P;
}
