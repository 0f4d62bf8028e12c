/* rewrite_evaluate.c -- the graph of a trained model: dropout passes through, batch norm uses the
 * running averages, and nothing is tracked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/rewrite.h"

/* x, gamma, beta, running mean, running var, residual? : the same inputs, another operator. */
static td_node *batch_norm_eval(td__rewriter *rw, const td_node *old)
{
    td_node *in[TD_MAX_IN];
    for (int i = 0; i < old->n_in; i++)
        in[i] = rw->map[old->in[i]->id];
    return td__node_named(rw->to, TD_OP_BATCH_NORM_EVAL, old->attr, in, old->n_in, old->name);
}

td_status td__rewrite_evaluate(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++) {
        const td_node *n = td__rewrite_visit(&rw, i);
        if (n->op == TD_OP_DROPOUT)
            rw.map[i] = rw.map[n->in[0]->id];
        else if (n->op == TD_OP_BATCH_NORM && ((const td_attr_norm *)n->attr)->has_running)
            rw.map[i] = batch_norm_eval(&rw, n);
        else if (n->op == TD_OP_PART && rw.map[n->in[0]->id]->op == TD_OP_BATCH_NORM_EVAL)
            rw.map[i] = NULL; /* a batch statistic: only tracks use it, and those go */
        else
            td__rewrite_copy(&rw, n);
    }
    return td__rewrite_end(&rw, out);
}
