/* linear.c -- torch.nn.Linear: y = act(x W' + b). Weights start as kaiming_uniform with a = sqrt 5,
 * which is the uniform distribution within 1/sqrt(fan_in); so does the bias. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "nn/nn_util.h"

td_node *td_nn_linear(td_graph *g, const char *name, td_node *x, int64_t out,
                      const td_nn_linear_opts *o)
{
    td_nn_linear_opts zero = {.no_bias = false};
    td_shape in;

    o = o ? o : &zero;
    if (!td__nn_shape(g, "td_nn_linear", name, x, 1, TD_MAX_DIMS, &in))
        return NULL;
    int64_t k = in.dim[in.ndim - 1];
    td_init standard = td__nn_uniform(k > 0 ? 1 / sqrt((double)k) : 0);
    td_node *w = td__nn_param(g, name, "weight", TD_SHAPE(out, k), o->weight_init, standard);
    td_node *b =
        o->no_bias ? NULL : td__nn_param(g, name, "bias", TD_SHAPE(out), o->bias_init, standard);
    td_graph_push_scope(g, name);
    td_node *y = td_linear(g, x, w, b, o->act);
    td_graph_pop_scope(g);
    return y;
}
