/* verify.c -- the rules that every graph obeys, checked after each rewrite.
 *
 *   order    a node's id is its position, and its inputs come before it (so there is no cycle);
 *   arity    within what the operator takes;
 *   place    within its limits, and so the phase;
 *   shapes   what the infer rule gives for these inputs and attributes;
 *   views    a part names an output that its node has;
 *   names    unique among leaves other than constants;
 *   roots    are nodes of this graph. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "graph/graph_impl.h"

static bool same_desc(const td_desc *a, const td_desc *b)
{
    return a->dtype == b->dtype && a->layout == b->layout && td_shape_equal(&a->shape, &b->shape);
}

static td_status verify_shapes(const td_node *n)
{
    const td_op_def *def = td__op(n->op);
    if (n->op == TD_OP_PART) {
        int k = ((const td_attr_part *)n->attr)->index;
        if (k < 1 || k >= n->in[0]->n_out || !same_desc(&n->out[0], &n->in[0]->out[k]))
            return TD_FAIL(TD_EINVAL, "td_graph_verify: '%s' is not output %d of '%s'", n->name, k,
                           n->in[0]->name);
        return TD_OK;
    }
    td_desc out[TD_MAX_OUT] = {{0}};
    const td_desc *in_desc[TD_MAX_IN];
    int n_out = 1;
    for (int i = 0; i < n->n_in; i++)
        in_desc[i] = &n->in[i]->out[0];
    TD_TRY(def->infer(&(td_op_args){.n_in = n->n_in, .in_desc = in_desc, .attr = n->attr}, out,
                      &n_out));
    bool same = n_out == n->n_out;
    for (int k = 0; same && k < n_out; k++)
        same = same_desc(&out[k], &n->out[k]);
    if (!same)
        return TD_FAIL(TD_EINVAL,
                       "td_graph_verify: '%s' (%s) does not have the outputs that its "
                       "inputs give",
                       n->name, def->name);
    return TD_OK;
}

static td_status verify_node(const td_graph *g, int i)
{
    const td_node *n = g->nodes[i];
    if (n->id != i)
        return TD_FAIL(TD_EINVAL, "td_graph_verify: '%s' has id %d at position %d", n->name, n->id,
                       i);
    if ((unsigned)n->op >= TD_OP_COUNT)
        return TD_FAIL(TD_EINVAL, "td_graph_verify: '%s' has unknown operator %d", n->name,
                       (int)n->op);
    const td_op_def *def = td__op(n->op);
    if (n->n_in < def->n_in_min || n->n_in > def->n_in_max)
        return TD_FAIL(TD_EINVAL, "td_graph_verify: '%s' (%s) has %d inputs", n->name, def->name,
                       n->n_in);
    if (n->place < 0 || n->place > TD_PLACE_MOST || (unsigned)n->phase >= TD_RUN_PHASE_COUNT)
        return TD_FAIL(TD_EINVAL, "td_graph_verify: '%s' (%s) has place %d and phase %d", n->name,
                       def->name, n->place, (int)n->phase);
    for (int k = 0; k < n->n_in; k++) {
        const td_node *in = n->in[k];
        if (!in || in->id < 0 || in->id >= i || g->nodes[in->id] != in)
            return TD_FAIL(TD_EINVAL,
                           "td_graph_verify: input %d of '%s' (%s) is not an earlier "
                           "node of this graph: a cycle, or a node of another graph",
                           k, n->name, def->name);
    }
    return verify_shapes(n);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(td_node *const *)a)->name, (*(td_node *const *)b)->name);
}

static td_status verify_names(const td_graph *g)
{
    td_node **leaves = td__calloc((size_t)g->n_nodes + 1, sizeof *leaves);
    if (!leaves)
        return TD_FAIL(TD_ENOMEM, "td_graph_verify: no memory");
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (td__is_leaf(g->nodes[i]) && g->nodes[i]->op != TD_OP_CONSTANT)
            leaves[n++] = g->nodes[i];
    qsort(leaves, (size_t)n, sizeof *leaves, by_name);
    td_status st = TD_OK;
    for (int i = 1; !st && i < n; i++)
        if (strcmp(leaves[i - 1]->name, leaves[i]->name) == 0)
            st = TD_FAIL(TD_EINVAL, "td_graph_verify: two leaves are named '%s'", leaves[i]->name);
    td__free(leaves);
    return st;
}

td_status td_graph_verify(const td_graph *g)
{
    if (g->status)
        return TD_FAIL(g->status, "%s", g->error);
    for (int i = 0; i < g->n_nodes; i++)
        TD_TRY(verify_node(g, i));
    for (int i = 0; i < g->n_roots; i++) {
        const td_node *n = g->roots[i].node;
        if (n->id >= g->n_nodes || g->nodes[n->id] != n)
            return TD_FAIL(TD_EINVAL, "td_graph_verify: a root is not a node of this graph");
    }
    return verify_names(g);
}
