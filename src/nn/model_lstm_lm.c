/* model_lstm_lm.c -- a language model on stacked LSTMs: encoder (table), rnn, decoder (linear), as
 * PyTorch's word_language_model example: table and decoder start uniform within 0.1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"
#include "ops/node.h"

td_node *td_model_lstm_lm(td_graph *g, td_node *ids, const td_lstm_lm_opts *o)
{
    td_lstm_lm_opts zero = {.vocab = 0};
    td_init init = td__nn_uniform(0.1), zeros = td__nn_zeros();
    td_node *table = NULL;
    td_shape in;

    o = o ? o : &zero;
    int64_t vocab = td__nn_or(o->vocab, 256), width = td__nn_or(o->width, 256);
    int64_t hidden = td__nn_or(o->hidden, 256);
    if (!td__nn_shape(g, "td_model_lstm_lm", "encoder", ids, 2, 2, &in))
        return NULL;
    if (o->tied && width != hidden)
        return td__graph_fail(g, TD_EINVAL, "td_model_lstm_lm",
                              "tied weights need width == hidden, not %lld and %lld",
                              (long long)width, (long long)hidden);
    td_nn_embedding_opts enc = {.weight_init = &init, .table = &table};
    td_nn_rnn_opts rnn = {.layers = o->layers ? o->layers : 2, .dropout = o->dropout};
    td_nn_linear_opts dec = {.weight_init = &init, .bias_init = &zeros};

    td_node *x = td_nn_embedding(g, "encoder", ids, vocab, width, &enc);
    x = td_nn_lstm(g, "rnn", td_nn_dropout(g, x, o->dropout), hidden, &rnn);
    x = td_nn_dropout(g, x, o->dropout);
    if (!o->tied)
        return td_nn_linear(g, "decoder", x, vocab, &dec);
    td_node *bias = td__nn_param(g, "decoder", "bias", TD_SHAPE(vocab), NULL, zeros);
    return td_linear(g, x, table, bias, TD_ACT_NONE);
}
