/* rnn.c -- stacked LSTM and GRU layers: torch.nn.LSTM and torch.nn.GRU, time first. All params of a
 * layer start uniform within 1/sqrt(hidden). A layer in both directions is two, of which one gets
 * the steps in reverse order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/alloc.h"
#include "nn/nn_util.h"
#include "ops/node.h"

typedef enum cell { LSTM, GRU } cell;

/* x (T, B, I) from its last step to its first: a look-up of steps. */
static td_node *reversed(td_graph *g, td_node *x)
{
    td_shape s = x ? td_node_shape(x) : TD_SCALAR;

    if (!x)
        return NULL;
    int32_t *steps = td__malloc((size_t)s.dim[0] * sizeof *steps);
    if (!steps && s.dim[0])
        return td__graph_fail(g, TD_ENOMEM, "td_nn_rnn", "out of memory");
    for (int64_t t = 0; t < s.dim[0]; t++)
        steps[t] = (int32_t)(s.dim[0] - 1 - t);
    td_node *order = td_constant(g, TD_I32, TD_SHAPE(s.dim[0]), steps);
    td__free(steps);
    td_node *rows = td_reshape(g, x, TD_SHAPE(s.dim[0], s.dim[1] * s.dim[2]));
    return td_reshape(g, td_embedding(g, order, rows, false), s);
}

/* One layer in one direction. */
static td_node *one(td_graph *g, const char *name, td_node *x, int64_t hidden,
                    const td_nn_rnn_opts *o, cell kind, int l, bool back)
{
    const char *end = back ? "_reverse" : "";
    int64_t gates = (kind == LSTM ? 4 : 3) * hidden;
    int at = o->bidirectional ? 2 * l + back : l;
    td_init init = td__nn_uniform(1 / sqrt((double)hidden));
    td_node *h0 = o->h0 ? o->h0[at] : NULL, *c0 = o->c0 ? o->c0[at] : NULL;
    td_node **h_last = o->h_last ? &o->h_last[at] : NULL;
    td_node **c_last = o->c_last ? &o->c_last[at] : NULL;

    if (!x)
        return NULL;
    td_node *w_ih = td__nn_param(g, name, td__nn_name("weight_ih_l%d%s", l, end).text,
                                 TD_SHAPE(gates, td_node_shape(x).dim[2]), NULL, init);
    td_node *w_hh = td__nn_param(g, name, td__nn_name("weight_hh_l%d%s", l, end).text,
                                 TD_SHAPE(gates, hidden), NULL, init);
    td_node *b_ih = td__nn_param(g, name, td__nn_name("bias_ih_l%d%s", l, end).text,
                                 TD_SHAPE(gates), NULL, init);
    td_node *b_hh = td__nn_param(g, name, td__nn_name("bias_hh_l%d%s", l, end).text,
                                 TD_SHAPE(gates), NULL, init);

    td_graph_push_scope(g, td__nn_name("%s.l%d%s", name, l, end).text);
    td_node *y = kind == LSTM ? td_lstm(g, x, h0, c0, w_ih, w_hh, b_ih, b_hh, h_last, c_last)
                              : td_gru(g, x, h0, w_ih, w_hh, b_ih, b_hh, h_last);
    td_graph_pop_scope(g);
    return y;
}

static td_node *stack(td_graph *g, const char *call, const char *name, td_node *x, int64_t hidden,
                      const td_nn_rnn_opts *o, cell kind)
{
    td_nn_rnn_opts zero = {.layers = 0};
    td_shape in;

    o = o ? o : &zero;
    if (!td__nn_shape(g, call, name, x, 3, 3, &in))
        return NULL;
    if (hidden < 1 || hidden > INT64_MAX / 4 || o->layers < 0)
        return td__graph_fail(g, TD_EINVAL, call, "layer '%s': hidden is %lld, layers %d", name,
                              (long long)hidden, o->layers);
    int layers = o->layers ? o->layers : 1;
    for (int l = 0; l < layers; l++) {
        td_graph_push_scope(g, td__nn_name("%s.l%d", name, l).text);
        if (l)
            x = td_nn_dropout(g, x, o->dropout);
        td_graph_pop_scope(g);
        td_node *y[2] = {one(g, name, x, hidden, o, kind, l, false)};
        if (o->bidirectional) {
            y[1] = reversed(g, one(g, name, reversed(g, x), hidden, o, kind, l, true));
            y[0] = td_concat(g, y, 2, 2);
        }
        x = y[0];
    }
    return x;
}

td_node *td_nn_lstm(td_graph *g, const char *name, td_node *x, int64_t hidden,
                    const td_nn_rnn_opts *o)
{
    return stack(g, "td_nn_lstm", name, x, hidden, o, LSTM);
}

td_node *td_nn_gru(td_graph *g, const char *name, td_node *x, int64_t hidden,
                   const td_nn_rnn_opts *o)
{
    return stack(g, "td_nn_gru", name, x, hidden, o, GRU);
}
