/* model_text_classifier.c -- a bag of words: the mean (or sum) of the words' vectors, then a linear
 * layer; both start uniform within 0.5. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"

td_node *td_model_text_classifier(td_graph *g, td_node *ids, td_node *offsets,
                                  const td_text_classifier_opts *o)
{
    td_text_classifier_opts zero = {.vocab = 0};
    td_init init = td__nn_uniform(0.5), zeros = td__nn_zeros();

    o = o ? o : &zero;
    td_nn_embedding_opts bag = {
        .sparse = o->sparse, .mode = o->sum ? TD_BAG_SUM : TD_BAG_MEAN, .weight_init = &init};
    td_nn_linear_opts fc = {.weight_init = &init, .bias_init = &zeros};
    td_node *x = td_nn_embedding_bag(g, "embedding", ids, offsets, td__nn_or(o->vocab, 20000),
                                     td__nn_or(o->width, 64), &bag);
    return td_nn_linear(g, "fc", x, td__nn_or(o->classes, 4), &fc);
}
