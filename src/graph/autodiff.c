/* autodiff.c -- reverse-mode differentiation, from graph to graph.
 *
 * Words: dy[k] of a node is the gradient of the loss with respect to its output k, itself a node.
 *
 *   1. Mark what is needed: a node needs a gradient if it has a floating output and a wanted leaf
 *      is among its ancestors.
 *   2. The loss's gradient is 1. Walk the nodes backwards; when a node is reached, all its users
 *      have been passed, so its dy is complete: ask the operator's rule for the gradients of the
 *      inputs and add each to what that input already has.
 *   3. What has arrived at the wanted leaves becomes a root.
 *
 * Places   What a node's rule adds is at that node's place; a sum of several uses is at the place
 *          of the value that it is the gradient of.
 * Phases   Gradients of activations and inputs are BACKWARD, the rest is WEIGHT unless one of those
 *          needs it (graph/phases.c).
 *
 * Gradients of several uses are added in the order of arrival (last use first), which is a property
 * of the graph alone, so that sums have the same bits everywhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

typedef td_node *node_grads[TD_MAX_OUT];

typedef struct tape {
    td_graph *g;
    int n;            /* nodes of the forward graph */
    bool *need;       /* by id */
    node_grads *grad; /* by id: gradients of the outputs, NULL where none has arrived */
    bool *sparse;     /* by id: the gradient of this param is an embedding_rows node */
} tape;

static bool is_wanted_leaf(const td_node *n, td_node *const *inputs, int n_inputs)
{
    if (n->op == TD_OP_PARAM)
        return true;
    for (int i = 0; i < n_inputs; i++)
        if (inputs[i] == n)
            return true;
    return false;
}

static void mark_needed(tape *t, td_node *const *inputs, int n_inputs)
{
    for (int i = 0; i < t->n; i++) {
        const td_node *n = t->g->nodes[i];
        bool need = is_wanted_leaf(n, inputs, n_inputs);
        for (int k = 0; k < n->n_in; k++)
            need = need || t->need[n->in[k]->id];
        t->need[i] = need && td_dtype_is_float(n->out[0].dtype);
    }
}

/* Add `d` to the gradient of output k of n. */
static void accumulate(tape *t, const td_node *n, int k, td_node *d)
{
    td_node **slot = &t->grad[n->id][k];
    bool sparse = d->op == TD_OP_EMBEDDING_ROWS;
    if (!sparse && !td_shape_equal(&d->out[0].shape, &n->out[k].shape)) {
        char got[128], want[128];
        td__graph_fail(t->g, TD_EINVAL, "td_autodiff",
                       "the gradient '%s' %s of '%s' should have shape %s", d->name,
                       td_shape_text(&d->out[0].shape, got, sizeof got), n->name,
                       td_shape_text(&n->out[k].shape, want, sizeof want));
        return;
    }
    if (sparse && (n->op != TD_OP_PARAM || *slot)) {
        td__graph_fail(t->g, TD_ENOTSUP, "td_autodiff",
                       "'%s' has a row-sparse gradient, so it must be a param that nothing but one "
                       "sparse embedding uses; say sparse = false for the embedding",
                       n->name);
        return;
    }
    if (*slot && t->sparse[n->id]) {
        td__graph_fail(t->g, TD_ENOTSUP, "td_autodiff",
                       "'%s' is used by a sparse embedding and elsewhere; say sparse = false for "
                       "the embedding",
                       n->name);
        return;
    }
    t->sparse[n->id] = sparse;
    t->g->place = n->place;
    *slot = *slot ? td_add(t->g, *slot, d) : d;
}

static void differentiate(tape *t, td_node *n)
{
    const td_op_def *def = td__op(n->op);
    node_grads dy = {NULL};
    bool any = false;
    for (int k = 0; k < n->n_out; k++) {
        dy[k] = t->grad[n->id][k];
        any = any || dy[k];
        if (dy[k])
            td__need_in(dy[k], TD_RUN_BACKWARD);
    }
    if (!any)
        return;
    if (n->op == TD_OP_PART) {
        accumulate(t, n->in[0], ((const td_attr_part *)n->attr)->index, dy[0]);
        return;
    }
    if (!def->grad) {
        td__graph_fail(t->g, TD_ENOTSUP, "td_autodiff", "'%s': %s is not differentiable", n->name,
                       def->name);
        return;
    }
    for (int k = 1; k < n->n_out; k++)
        if (dy[k] && !(def->grad_out >> k & 1u)) {
            td__graph_fail(t->g, TD_ENOTSUP, "td_autodiff",
                           "'%s': no gradient flows through output %d of %s", n->name, k,
                           def->name);
            return;
        }
    bool need[TD_MAX_IN];
    td_node *dx[TD_MAX_IN] = {NULL};
    for (int i = 0; i < n->n_in; i++)
        need[i] = t->need[n->in[i]->id];
    t->g->place = n->place;
    def->grad(&(td_grad_args){.g = t->g, .y = n, .dy = dy, .need = need, .dx = dx});
    for (int i = 0; i < n->n_in && !t->g->status; i++)
        if (need[i] && dx[i])
            accumulate(t, n->in[i], 0, dx[i]);
}

static td_node *one(td_graph *g, td_dtype dtype, td_shape shape)
{
    float f = 1;
    td_node *n = td_constant(g, TD_F32, shape, &f);
    return dtype == TD_F32 ? n : td_cast(g, n, dtype);
}

static void add_roots(tape *t, td_node *const *inputs, int n_inputs)
{
    td_graph *g = t->g;
    for (int i = 0; i < t->n; i++) {
        td_node *leaf = g->nodes[i], *d = t->grad[i][0];
        if (leaf->op != TD_OP_PARAM || !d)
            continue;
        g->place = leaf->place;
        if (t->sparse[i])
            td__graph_add_root(g, (td__root){.kind = TD_ROOT_SPARSE_GRAD, .node = d, .leaf = leaf});
        else
            td__graph_add_root(
                g, (td__root){.kind = TD_ROOT_PARAM_GRAD,
                              .leaf = leaf,
                              .node = d->out[0].dtype == TD_F32 ? d : td_cast(g, d, TD_F32)});
    }
    for (int i = 0; i < n_inputs; i++) {
        td_node *d = t->grad[inputs[i]->id][0];
        g->place = inputs[i]->place;
        if (!d) /* the loss does not depend on it */
            d = td_constant(g, inputs[i]->out[0].dtype, inputs[i]->out[0].shape, NULL);
        td__graph_add_root(g, (td__root){.kind = TD_ROOT_INPUT_GRAD, .node = d, .index = i});
    }
}

static td_status run_tape(tape *t, td_node *loss, td_node *const *inputs, int n_inputs)
{
    td_graph *g = t->g;
    mark_needed(t, inputs, n_inputs);
    g->phase = TD_RUN_WEIGHT;
    g->place = loss->place;
    t->grad[loss->id][0] = one(g, loss->out[0].dtype, loss->out[0].shape);
    for (int i = loss->id; i >= 0 && !g->status; i--)
        if (t->need[i] && !td__is_leaf(g->nodes[i]))
            differentiate(t, g->nodes[i]);
    if (!g->status)
        add_roots(t, inputs, n_inputs);
    g->phase = TD_RUN_FORWARD;
    g->place = 0;
    return g->status ? TD_FAIL(g->status, "%s", g->error) : TD_OK;
}

td_status td__autodiff(td_graph *g, td_node *const *inputs, int n_inputs)
{
    td_node *loss = NULL;
    for (int i = 0; i < g->n_roots; i++)
        if (g->roots[i].kind == TD_ROOT_LOSS)
            loss = g->roots[i].node;
    TD_ASSERT(loss, "autodiff without a loss root");
    size_t n = (size_t)g->n_nodes;
    tape t = {.g = g,
              .n = g->n_nodes,
              .need = td__calloc(n, sizeof(bool)),
              .sparse = td__calloc(n, sizeof(bool)),
              .grad = td__calloc(n, sizeof(node_grads))};
    td_status st = t.need && t.sparse && t.grad
                       ? run_tape(&t, loss, inputs, n_inputs)
                       : TD_FAIL(TD_ENOMEM, "no memory to differentiate %d nodes", t.n);
    td__free(t.need);
    td__free(t.sparse);
    td__free(t.grad);
    return st;
}
