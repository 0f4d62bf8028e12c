/* norm.c -- the normalisation layers: weight starts at one, bias at zero. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"
#include "ops/node.h"

static td_nn_norm_opts defaults(const td_nn_norm_opts *o, double eps)
{
    td_nn_norm_opts r = {.eps = 0};

    if (o)
        r = *o;
    if (r.eps == 0)
        r.eps = eps;
    if (r.momentum == 0)
        r.momentum = 0.1;
    return r;
}

static td_node *weight(td_graph *g, const char *name, int64_t n, const td_nn_norm_opts *o)
{
    return td__nn_param(g, name, "weight", TD_SHAPE(n), o->weight_init, td__nn_ones());
}

static td_node *bias(td_graph *g, const char *name, int64_t n)
{
    return td__nn_param(g, name, "bias", TD_SHAPE(n), NULL, td__nn_zeros());
}

td_node *td_nn_batch_norm(td_graph *g, const char *name, td_node *x, const td_nn_norm_opts *o)
{
    td_nn_norm_opts r = defaults(o, 1e-5);
    td_shape in;

    if (!td__nn_shape(g, "td_nn_batch_norm", name, x, 2, TD_MAX_DIMS, &in))
        return NULL;
    td_node *gamma = weight(g, name, in.dim[1], &r);
    td_node *beta = bias(g, name, in.dim[1]);
    td_node *mean = td__nn_state(g, name, "running_mean", TD_SHAPE(in.dim[1]), td__nn_zeros());
    td_node *var = td__nn_state(g, name, "running_var", TD_SHAPE(in.dim[1]), td__nn_ones());
    td_graph_push_scope(g, name);
    td_node *y = td__batch_norm(g, x, gamma, beta, mean, var,
                                &(td__batch_norm_opts){r.momentum, r.eps, r.sync});
    td_graph_pop_scope(g);
    return y;
}

td_node *td_nn_layer_norm(td_graph *g, const char *name, td_node *x, const td_nn_norm_opts *o)
{
    td_nn_norm_opts r = defaults(o, 1e-5);
    td_shape in;

    if (!td__nn_shape(g, "td_nn_layer_norm", name, x, 1, TD_MAX_DIMS, &in))
        return NULL;
    td_node *gamma = weight(g, name, in.dim[in.ndim - 1], &r);
    td_node *beta = bias(g, name, in.dim[in.ndim - 1]);
    td_graph_push_scope(g, name);
    td_node *y = td_layer_norm(g, x, gamma, beta, r.eps);
    td_graph_pop_scope(g);
    return y;
}

td_node *td_nn_rms_norm(td_graph *g, const char *name, td_node *x, const td_nn_norm_opts *o)
{
    td_nn_norm_opts r = defaults(o, 1e-6);
    td_shape in;

    if (!td__nn_shape(g, "td_nn_rms_norm", name, x, 1, TD_MAX_DIMS, &in))
        return NULL;
    td_node *gamma = weight(g, name, in.dim[in.ndim - 1], &r);
    td_graph_push_scope(g, name);
    td_node *y = td_rms_norm(g, x, gamma, r.eps);
    td_graph_pop_scope(g);
    return y;
}

td_node *td_nn_group_norm(td_graph *g, const char *name, td_node *x, int groups,
                          const td_nn_norm_opts *o)
{
    td_nn_norm_opts r = defaults(o, 1e-5);
    td_shape in;

    if (!td__nn_shape(g, "td_nn_group_norm", name, x, 4, 4, &in))
        return NULL;
    td_node *gamma = weight(g, name, in.dim[1], &r);
    td_node *beta = bias(g, name, in.dim[1]);
    td_graph_push_scope(g, name);
    td_node *y = td_group_norm(g, x, gamma, beta, groups, r.eps);
    td_graph_pop_scope(g);
    return y;
}
