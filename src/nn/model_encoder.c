/* model_encoder.c -- a transformer encoder that classifies sequences: token and position tables,
 * blocks as torch.nn.TransformerEncoder's, then the first position (where a [CLS] token stands) or
 * the mean of all but padding, then a linear head. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"
#include "ops/node.h"

/* The sum over real tokens by their number; of a sample without any it is 0. */
static td_node *mean_of_real(td_graph *g, td_node *x, td_node *real, const td_shape *in)
{
    static const int TIME[] = {1};
    static const float ONE = 1;
    td_node *weight = td_reshape(g, real, TD_SHAPE(in->dim[0], in->dim[1], 1));
    td_node *count = td_maximum(g, td_sum(g, weight, TIME, 1, false),
                                td_constant(g, TD_F32, TD_SCALAR, &ONE)); /* (B, 1) */

    return td_div(g, td_sum(g, td_mul(g, x, weight), TIME, 1, false), count);
}

static td_node *pooled(td_graph *g, td_node *x, td_pool_mode mode, td_node *real)
{
    static const int TIME[] = {1};
    td_shape in;

    if (mode == TD_POOL_MEAN && !real)
        return td_mean(g, x, TIME, 1, false);
    if (!td__nn_shape(g, "td_model_encoder", "pool", x, 3, 3, &in))
        return NULL;
    if (mode == TD_POOL_MEAN)
        return mean_of_real(g, x, real, &in);
    return td_reshape(g, td_slice(g, x, 1, 0, 1, 1), TD_SHAPE(in.dim[0], in.dim[2]));
}

td_node *td_model_encoder(td_graph *g, td_node *ids, const td_encoder_opts *o)
{
    td_encoder_opts zero = {.layers = 0};
    td_init normal = td__nn_normal(0.02);
    td_shape in;

    o = o ? o : &zero;
    int layers = o->layers ? o->layers : 6, heads = o->heads ? o->heads : 8;
    int64_t width = td__nn_or(o->width, 512), context = td__nn_or(o->context, 512);
    if (!td__nn_shape(g, "td_model_encoder", "embed", ids, 2, 2, &in))
        return NULL;
    if (in.dim[1] > context)
        return td__graph_fail(g, TD_EINVAL, "td_model_encoder",
                              "sequences of %lld tokens are longer than the context of %lld",
                              (long long)in.dim[1], (long long)context);
    td_nn_embedding_opts tokens = {.weight_init = &normal};
    td_nn_transformer_opts block = {.ff = o->ff,
                                    .act = o->act ? o->act : TD_ACT_GELU,
                                    .dropout = o->dropout,
                                    .pre_norm = o->pre_norm,
                                    .attention = {.mask = o->mask}};

    td_node *x = td_nn_embedding(g, "embed", ids, td__nn_or(o->vocab, 30522), width, &tokens);
    td_node *position =
        td__nn_param(g, "position", "weight", TD_SHAPE(context, width), NULL, normal);
    if (in.dim[1] < context)
        position = td_slice(g, position, 0, 0, in.dim[1], 1);
    x = td_nn_dropout(g, td_add(g, x, position), o->dropout);
    for (int i = 0; i < layers; i++)
        x = td_nn_transformer_block(g, td__nn_name("layers.%d", i).text, x, heads, &block);
    if (o->pre_norm)
        x = td_nn_layer_norm(g, "norm", x, NULL);
    return td_nn_linear(g, "head", pooled(g, x, o->pool, o->real), td__nn_or(o->classes, 2), NULL);
}
