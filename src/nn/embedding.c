/* embedding.c -- look-up tables; rows start as standard normals, as torch.nn.Embedding's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"

static td_node *table(td_graph *g, const char *name, int64_t rows, int64_t width,
                      const td_nn_embedding_opts *o)
{
    td_node *w =
        td__nn_param(g, name, "weight", TD_SHAPE(rows, width), o->weight_init, td__nn_normal(1));

    if (o->table)
        *o->table = w;
    return w;
}

td_node *td_nn_embedding(td_graph *g, const char *name, td_node *ids, int64_t rows, int64_t width,
                         const td_nn_embedding_opts *o)
{
    td_nn_embedding_opts zero = {.sparse = false};
    td_shape in;

    o = o ? o : &zero;
    if (!td__nn_shape(g, "td_nn_embedding", name, ids, 0, TD_MAX_DIMS - 1, &in))
        return NULL;
    td_node *w = table(g, name, rows, width, o);
    td_graph_push_scope(g, name);
    td_node *y = td_embedding(g, ids, w, o->sparse);
    td_graph_pop_scope(g);
    return y;
}

td_node *td_nn_embedding_bag(td_graph *g, const char *name, td_node *ids, td_node *offsets,
                             int64_t rows, int64_t width, const td_nn_embedding_opts *o)
{
    td_nn_embedding_opts zero = {.sparse = false};
    td_shape in;

    o = o ? o : &zero;
    if (!td__nn_shape(g, "td_nn_embedding_bag", name, ids, 1, 1, &in))
        return NULL;
    td_node *w = table(g, name, rows, width, o);
    td_graph_push_scope(g, name);
    td_node *y = td_embedding_bag(g, ids, offsets, w, o->mode, o->sparse);
    td_graph_pop_scope(g);
    return y;
}
