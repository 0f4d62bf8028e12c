/* rnn.c -- stacked LSTM and GRU layers: torch.nn.LSTM and torch.nn.GRU, time first. All params of a
 * layer start uniform within 1/sqrt(hidden). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "nn/nn_util.h"
#include "ops/node.h"

typedef enum cell { LSTM, GRU } cell;

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
    int64_t gates = (kind == LSTM ? 4 : 3) * hidden;
    td_init init = td__nn_uniform(1 / sqrt((double)hidden));

    for (int l = 0; l < layers; l++) {
        int64_t k = l ? hidden : in.dim[2];
        td_node *w_ih = td__nn_param(g, name, td__nn_name("weight_ih_l%d", l).text,
                                     TD_SHAPE(gates, k), NULL, init);
        td_node *w_hh = td__nn_param(g, name, td__nn_name("weight_hh_l%d", l).text,
                                     TD_SHAPE(gates, hidden), NULL, init);
        td_node *b_ih =
            td__nn_param(g, name, td__nn_name("bias_ih_l%d", l).text, TD_SHAPE(gates), NULL, init);
        td_node *b_hh =
            td__nn_param(g, name, td__nn_name("bias_hh_l%d", l).text, TD_SHAPE(gates), NULL, init);
        td_node *h0 = o->h0 ? o->h0[l] : NULL, *c0 = o->c0 ? o->c0[l] : NULL;
        td_node **h_last = o->h_last ? &o->h_last[l] : NULL;
        td_node **c_last = o->c_last ? &o->c_last[l] : NULL;

        td_graph_push_scope(g, td__nn_name("%s.l%d", name, l).text);
        if (l)
            x = td_nn_dropout(g, x, o->dropout);
        x = kind == LSTM ? td_lstm(g, x, h0, c0, w_ih, w_hh, b_ih, b_hh, h_last, c_last)
                         : td_gru(g, x, h0, w_ih, w_hh, b_ih, b_hh, h_last);
        td_graph_pop_scope(g);
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
