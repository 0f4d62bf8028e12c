/* model_gpt2.c -- GPT-2 (Radford 2019): pre-norm blocks, causal attention, learned positions.
 *
 *     x = wte[ids] + wpe[0..T)
 *     x <- x + c_proj(attention(c_attn(ln_1(x))))          per block h.0 .. h.(L-1)
 *     x <- x + c_proj(gelu(c_fc(ln_2(x))))
 *     logits = ln_f(x) wte'                                 untied: lm_head.weight instead of wte
 *
 * All matrices start normal(0, 0.02), those that write into the residual stream (c_proj) with
 * 0.02 / sqrt(2 L), so that its variance does not grow with depth; biases start at 0. Dropout is
 * applied to the embeddings and to what each branch adds, not to attention weights, which are never
 * stored. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "nn/nn_util.h"
#include "ops/node.h"

typedef struct sizes {
    int layers, heads;
    int64_t width, vocab, context;
    double dropout;
} sizes;

static td_node *linear(td_graph *g, const char *block, const char *name, td_node *x, int64_t out,
                       double std, td_act act)
{
    td_init normal = td__nn_normal(std), zeros = td__nn_zeros();
    td_nn_linear_opts o = {.act = act, .weight_init = &normal, .bias_init = &zeros};

    return td_nn_linear(g, td__nn_name("%s.%s", block, name).text, x, out, &o);
}

static td_node *add_block(td_graph *g, const sizes *s, const char *name, td_node *x)
{
    td_nn_attention_opts causal = {.causal = true};
    double std = 0.02, residual = 0.02 / sqrt(2.0 * s->layers);
    td_node *y;

    y = td_nn_layer_norm(g, td__nn_name("%s.ln_1", name).text, x, NULL);
    y = linear(g, name, "attn.c_attn", y, 3 * s->width, std, TD_ACT_NONE);
    td_graph_push_scope(g, td__nn_name("%s.attn", name).text);
    y = td__nn_attend(g, y, s->heads, &causal);
    td_graph_pop_scope(g);
    y = linear(g, name, "attn.c_proj", y, s->width, residual, TD_ACT_NONE);
    x = td_add(g, x, td_nn_dropout(g, y, s->dropout));

    y = td_nn_layer_norm(g, td__nn_name("%s.ln_2", name).text, x, NULL);
    y = linear(g, name, "mlp.c_fc", y, 4 * s->width, std, TD_ACT_GELU_TANH);
    y = linear(g, name, "mlp.c_proj", y, s->width, residual, TD_ACT_NONE);
    return td_add(g, x, td_nn_dropout(g, y, s->dropout));
}

td_node *td_model_gpt2(td_graph *g, td_node *ids, const td_gpt2_opts *o)
{
    td_gpt2_opts zero = {.layers = 0};
    td_init normal = td__nn_normal(0.02);
    td_node *wte = NULL;
    td_shape in;

    o = o ? o : &zero;
    sizes s = {.layers = o->layers ? o->layers : 12,
               .heads = o->heads ? o->heads : 12,
               .width = td__nn_or(o->width, 768),
               .vocab = td__nn_or(o->vocab, 50257),
               .context = td__nn_or(o->context, 1024),
               .dropout = o->dropout};
    if (!td__nn_shape(g, "td_model_gpt2", "transformer.wte", ids, 2, 2, &in))
        return NULL;
    if (in.dim[1] > s.context)
        return td__graph_fail(g, TD_EINVAL, "td_model_gpt2",
                              "sequences of %lld tokens are longer than the context of %lld",
                              (long long)in.dim[1], (long long)s.context);

    td_nn_embedding_opts tokens = {.weight_init = &normal, .table = &wte};
    td_node *x = td_nn_embedding(g, "transformer.wte", ids, s.vocab, s.width, &tokens);
    td_node *wpe =
        td__nn_param(g, "transformer.wpe", "weight", TD_SHAPE(s.context, s.width), NULL, normal);
    if (in.dim[1] < s.context)
        wpe = td_slice(g, wpe, 0, 0, in.dim[1], 1);
    x = td_nn_dropout(g, td_add(g, x, wpe), s.dropout);
    for (int i = 0; i < s.layers; i++)
        x = add_block(g, &s, td__nn_name("transformer.h.%d", i).text, x);
    x = td_nn_layer_norm(g, "transformer.ln_f", x, NULL);
    td_nn_linear_opts head = {.no_bias = true, .weight_init = &normal};
    return o->untied ? td_nn_linear(g, "lm_head", x, s.vocab, &head)
                     : td_linear(g, x, wte, NULL, TD_ACT_NONE);
}
