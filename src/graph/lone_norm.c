/* lone_norm.c -- see lone_norm.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/lone_norm.h"

#include "graph/graph_impl.h"
#include "ops/node.h"

const td_node *td__graph_lone_norm(const td_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        td_shape s = td_node_shape(n);
        if (n->op == TD_OP_BATCH_NORM && !((const td_attr_norm *)n->attr)->sync &&
            td_shape_count(&s) == s.dim[1])
            return n;
    }
    return NULL;
}

bool td__graph_sync_norm(const td_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == TD_OP_BATCH_NORM && ((const td_attr_norm *)g->nodes[i]->attr)->sync)
            return true;
    return false;
}
