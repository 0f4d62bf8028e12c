/* rewrite.c -- the common part of all rewrites, and the two simplest ones: clone and prune. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"

#include <string.h>

#include "base/fail.h"

td_status td__rewrite_begin(td__rewriter *rw, const td_graph *from)
{
    *rw = (td__rewriter){.from = from};
    TD_TRY(td_graph_create(&rw->to));
    rw->map = td__calloc((size_t)from->n_nodes + 1, sizeof(td_node *));
    if (!rw->map) {
        td_graph_destroy(rw->to);
        rw->to = NULL;
        return TD_FAIL(TD_ENOMEM, "no memory to rewrite a graph of %d nodes", from->n_nodes);
    }
    rw->to->next_stream = from->next_stream;
    return TD_OK;
}

const td_node *td__rewrite_visit(td__rewriter *rw, int i)
{
    const td_node *old = rw->from->nodes[i];
    rw->to->place = old->place;
    rw->to->phase = old->phase;
    return old;
}

td_node *td__rewrite_copy_as(td__rewriter *rw, const td_node *old, const void *attr,
                             td_node *const *in, int n_in)
{
    td_node *n;
    if (old->op == TD_OP_PART) {
        n = td__part(rw->to, in[0], ((const td_attr_part *)old->attr)->index);
        if (n && n != in[0])
            n->name = td__arena_strdup(rw->to->arena, old->name);
    } else if (old->op == TD_OP_CONSTANT) {
        const td_attr_leaf *leaf = attr;
        n = td_constant(rw->to, leaf->dtype, leaf->shape, leaf->data);
        if (n)
            n->name = td__arena_strdup(rw->to->arena, old->name);
    } else {
        n = td__node_named(rw->to, old->op, attr, in, n_in, old->name);
        if (n && old->origin)
            n->origin = td__arena_strdup(rw->to->arena, old->origin);
    }
    if (n && !n->name) {
        td__graph_fail(rw->to, TD_ENOMEM, "td_graph", "no memory for a name");
        n = NULL;
    }
    rw->map[old->id] = n;
    return n;
}

td_node *td__rewrite_copy(td__rewriter *rw, const td_node *old)
{
    td_node *in[TD_MAX_IN];
    for (int i = 0; i < old->n_in; i++)
        in[i] = rw->map[old->in[i]->id];
    return td__rewrite_copy_as(rw, old, old->attr, in, old->n_in);
}

td_status td__rewrite_end(td__rewriter *rw, td_graph **out)
{
    *out = NULL;
    for (int i = 0; i < rw->from->n_nodes; i++)
        if (rw->map[i])
            td__need_in(rw->map[i], rw->from->nodes[i]->phase);
    for (int i = 0; i < rw->from->n_roots; i++) {
        td__root root = rw->from->roots[i];
        root.node = rw->map[root.node->id];
        if (root.leaf)
            root.leaf = rw->map[root.leaf->id];
        if (root.node) /* a rewrite may drop a root on purpose: tracks in evaluation */
            td__graph_add_root(rw->to, root);
    }
    td__free(rw->map);
    rw->map = NULL;
    if (rw->to->status) {
        td_status st = TD_FAIL(rw->to->status, "%s", rw->to->error);
        td_graph_destroy(rw->to);
        return st;
    }
    *out = rw->to;
    return TD_OK;
}

int *td__use_counts(const td_graph *g)
{
    int *uses = td__calloc((size_t)g->n_nodes + 1, sizeof *uses);
    if (!uses)
        return NULL;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            uses[g->nodes[i]->in[k]->id]++;
    for (int i = 0; i < g->n_roots; i++)
        uses[g->roots[i].node->id]++;
    return uses;
}

td_status td__rewrite_prune(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    bool *wanted = td__calloc((size_t)g->n_nodes + 1, sizeof *wanted);
    if (!wanted)
        td__graph_fail(rw.to, TD_ENOMEM, "td_graph", "no memory to prune a graph");
    for (int i = 0; wanted && i < g->n_roots; i++) {
        wanted[g->roots[i].node->id] = true;
        if (g->roots[i].leaf)
            wanted[g->roots[i].leaf->id] = true;
    }
    /* Inputs have smaller ids than their users, so one pass from the back finds everything. Leaves
     * other than constants stay: callers set inputs and look params up by name. */
    for (int i = g->n_nodes - 1; wanted && i >= 0; i--) {
        const td_node *n = g->nodes[i];
        if (td__is_leaf(n) && n->op != TD_OP_CONSTANT)
            wanted[i] = true;
        for (int k = 0; wanted[i] && k < n->n_in; k++)
            wanted[n->in[k]->id] = true;
    }
    for (int i = 0; wanted && i < g->n_nodes; i++)
        if (wanted[i])
            td__rewrite_copy(&rw, td__rewrite_visit(&rw, i));
    td__free(wanted);
    return td__rewrite_end(&rw, out);
}
