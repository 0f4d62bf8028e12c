/* rewrite_regather.c -- rows that are gathered for a product (rewrite_tensor_rows.c) are not kept
 * for the gradient of its weight: they are gathered again where that is made, from the rows that
 * every rank keeps of its own. Another all-gather, for a whole activation less in memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/rewrites/rewrite_tensor.h"

/* The forward's fan of a gathered value that `n` is a part of; NULL: it is none. */
static const td_node *gathered(const td_node *n, int *part)
{
    const td_node *fan = n->op == TD_OP_PART ? td__view_base(n, part) : n;
    if (fan->op != TD_OP_PIECES_FAN || fan->phase != TD_RUN_FORWARD)
        return NULL;
    const td_node *join = fan->in[0];
    const td_attr_pieces *a = join->attr;
    return join->op == TD_OP_PIECES_JOIN && a->ranks > 1 ? fan : NULL;
}

static td_node *gather_again(td__rewriter *rw, const td_node *fan)
{
    const td_node *join = fan->in[0];
    td_node *piece[TD_MAX_IN];
    for (int i = 0; i < join->n_in; i++)
        piece[i] = rw->map[join->in[i]->id];
    td_node *whole = td__node(rw->to, TD_OP_PIECES_JOIN, join->attr, piece, join->n_in);
    return TD__NODE(rw->to, TD_OP_PIECES_FAN, fan->attr, whole);
}

/* A reader in the backward; again: by id of a fan, that of the second time. */
static void convert(td__rewriter *rw, const td_node *old, td_node **again)
{
    td_node *in[TD_MAX_IN];
    for (int k = 0; k < old->n_in; k++) {
        int part = 0;
        const td_node *fan = gathered(old->in[k], &part);
        in[k] = rw->map[old->in[k]->id];
        if (!fan)
            continue;
        if (!again[fan->id])
            again[fan->id] = gather_again(rw, fan);
        in[k] = td__part(rw->to, again[fan->id], part);
    }
    td__rewrite_copy_as(rw, old, old->attr, in, old->n_in);
}

td_status td__rewrite_regather(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    *out = NULL;
    td_node **again = td__calloc((size_t)g->n_nodes + 1, sizeof *again);
    td_status st = again ? td__rewrite_begin(&rw, g) : TD_FAIL(TD_ENOMEM, "no memory for a list");
    for (int i = 0; !st && i < g->n_nodes && !rw.to->status; i++) {
        const td_node *old = td__rewrite_visit(&rw, i);
        if (old->phase == TD_RUN_FORWARD || td__is_leaf(old))
            td__rewrite_copy(&rw, old);
        else
            convert(&rw, old, again);
    }
    if (!st)
        st = td__rewrite_end(&rw, out);
    td__free(again);
    return st;
}
