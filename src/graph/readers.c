/* readers.c -- see readers.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/readers.h"

#include "graph/graph_impl.h"
#include "ops/node.h"

const td_node *td__graph_reads_otherwise(const td_graph *g, const td_node *ids,
                                         bool (*fn)(const void *user, const char *table),
                                         const void *user)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        bool looks_up = n->op == TD_OP_EMBEDDING && n->in[0] == ids && n->in[1] != ids;
        bool reads = false;
        for (int k = 0; k < n->n_in; k++)
            reads = reads || n->in[k] == ids;
        if (reads && !(looks_up && fn(user, td_node_name(n->in[1]))))
            return n;
    }
    return NULL;
}
