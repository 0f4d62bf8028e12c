/* conv2d.c -- torch.nn.Conv2d with a square kernel; weight and bias start uniform within
 * 1/sqrt(fan_in). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "nn/nn_util.h"
#include "ops/node.h"

td_node *td_nn_conv2d(td_graph *g, const char *name, td_node *x, int64_t out, int size,
                      const td_nn_conv2d_opts *o)
{
    td_nn_conv2d_opts zero = {.no_bias = false};
    td_shape in;

    o = o ? o : &zero;
    if (!td__nn_shape(g, "td_nn_conv2d", name, x, 4, 4, &in))
        return NULL;
    int groups = o->conv.groups ? o->conv.groups : 1;
    if (groups < 0 || in.dim[1] % groups != 0)
        return td__graph_fail(g, TD_EINVAL, "td_nn_conv2d",
                              "layer '%s': %d groups do not divide %lld channels", name, groups,
                              (long long)in.dim[1]);
    int64_t channels = in.dim[1] / groups, fan = channels * size * size;
    td_init standard = td__nn_uniform(fan > 0 ? 1 / sqrt((double)fan) : 0);
    td_node *w = td__nn_param(g, name, "weight", TD_SHAPE(out, channels, size, size),
                              o->weight_init, standard);
    td_node *b =
        o->no_bias ? NULL : td__nn_param(g, name, "bias", TD_SHAPE(out), o->bias_init, standard);
    td_graph_push_scope(g, name);
    td_node *y = td_conv2d(g, x, w, b, &o->conv);
    td_graph_pop_scope(g);
    return y;
}
