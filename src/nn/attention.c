/* attention.c -- multi-head self-attention and the transformer block around it, with the param
 * names and initialisation of torch.nn.MultiheadAttention and torch.nn.TransformerEncoderLayer.
 *
 *     post-norm   x <- norm1(x + attn(x))              pre-norm   x <- x + attn(norm1(x))
 *                 x <- norm2(x + ff(x))                           x <- x + ff(norm2(x)) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"
#include "ops/node.h"

td_node *td__nn_attend(td_graph *g, td_node *qkv, int heads, const td_nn_attention_opts *o)
{
    td_shape in;
    td_node *part[3];

    if (!td__nn_shape(g, "td_attention", "attention", qkv, 3, 3, &in))
        return NULL;
    int64_t batch = in.dim[0], time = in.dim[1], width = in.dim[2] / 3;
    if (heads < 1 || width % heads != 0)
        return td__graph_fail(g, TD_EINVAL, "td_attention", "%d heads do not divide width %lld",
                              heads, (long long)width);
    if (!td_split(g, qkv, 2, 3, part))
        return NULL;
    for (int i = 0; i < 3; i++)
        part[i] = td_reshape(g, part[i], TD_SHAPE(batch, time, heads, width / heads));
    td_attention_opts opts = {.causal = o->causal};
    td_node *y = td_attention(g, part[0], part[1], part[2], o->mask, &opts);
    return td_reshape(g, y, TD_SHAPE(batch, time, width));
}

td_node *td_nn_multi_head_attention(td_graph *g, const char *name, td_node *x, int heads,
                                    const td_nn_attention_opts *o)
{
    td_nn_attention_opts zero = {.causal = false};
    td_shape in;
    td_init xavier = {.kind = TD_INIT_XAVIER_UNIFORM}, zeros = td__nn_zeros();

    o = o ? o : &zero;
    if (!td__nn_shape(g, "td_nn_multi_head_attention", name, x, 3, 3, &in))
        return NULL;
    int64_t width = in.dim[2];
    td_node *w = td__nn_param(g, name, "in_proj_weight", TD_SHAPE(3 * width, width), NULL, xavier);
    td_node *b =
        o->no_bias ? NULL : td__nn_param(g, name, "in_proj_bias", TD_SHAPE(3 * width), NULL, zeros);
    td_graph_push_scope(g, name);
    td_node *y = td__nn_attend(g, td_linear(g, x, w, b, TD_ACT_NONE), heads, o);
    td_graph_pop_scope(g);
    td_nn_linear_opts proj = {.no_bias = o->no_bias, .bias_init = &zeros};
    return td_nn_linear(g, td__nn_name("%s.out_proj", name).text, y, width, &proj);
}

static td_node *feed_forward(td_graph *g, const char *name, td_node *x, int64_t width,
                             const td_nn_transformer_opts *o)
{
    td_nn_linear_opts inner = {.act = o->act ? o->act : TD_ACT_RELU};

    x = td_nn_linear(g, td__nn_name("%s.linear1", name).text, x, td__nn_or(o->ff, 4 * width),
                     &inner);
    x = td_nn_dropout(g, x, o->dropout);
    return td_nn_linear(g, td__nn_name("%s.linear2", name).text, x, width, NULL);
}

td_node *td_nn_transformer_block(td_graph *g, const char *name, td_node *x, int heads,
                                 const td_nn_transformer_opts *o)
{
    td_nn_transformer_opts zero = {.ff = 0};
    td_shape in;

    o = o ? o : &zero;
    if (!td__nn_shape(g, "td_nn_transformer_block", name, x, 3, 3, &in))
        return NULL;
    td_nn_norm_opts norm = {.eps = o->eps};
    td__nn_text attn = td__nn_name("%s.self_attn", name), norm1 = td__nn_name("%s.norm1", name),
                norm2 = td__nn_name("%s.norm2", name);
    td_node *y;

    y = o->pre_norm ? td_nn_layer_norm(g, norm1.text, x, &norm) : x;
    y = td_nn_multi_head_attention(g, attn.text, y, heads, &o->attention);
    x = td_add(g, x, td_nn_dropout(g, y, o->dropout));
    if (!o->pre_norm)
        x = td_nn_layer_norm(g, norm1.text, x, &norm);

    y = o->pre_norm ? td_nn_layer_norm(g, norm2.text, x, &norm) : x;
    y = feed_forward(g, name, y, in.dim[2], o);
    x = td_add(g, x, td_nn_dropout(g, y, o->dropout));
    if (!o->pre_norm)
        x = td_nn_layer_norm(g, norm2.text, x, &norm);
    return x;
}
