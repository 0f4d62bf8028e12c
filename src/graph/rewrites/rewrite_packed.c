/* rewrite_packed.c -- programs with whole products on params that lie piece by piece, as those that
 * train in pieces have left them (tensor.h): every reader gets the param in row-major order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrites/rewrite_tensor.h"

/* The param as users see it: its pieces, put together again. */
static td_node *plain(td_graph *g, const td_attr_pieces *how, td_node *param)
{
    td_attr_pieces a = *how;
    td_node *piece[TD__MOST_PIECES];
    a.first = 0;
    a.n = a.pieces;
    a.ranks = 1;
    td_node *cut = TD__NODE(g, TD_OP_PIECES_CUT, &a, param);
    for (int i = 0; i < a.n; i++)
        piece[i] = td__part(g, cut, i);
    a.packed = 0;
    return td__node(g, TD_OP_PIECES_JOIN, &a, piece, a.n);
}

td_status td__rewrite_packed(const td_graph *g, const td_params *of, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++) {
        const td_node *old = td__rewrite_visit(&rw, i);
        td_node *node = td__rewrite_copy(&rw, old);
        int k = old->op == TD_OP_PARAM ? td_params_find(of, old->name) : -1;
        const td_attr_pieces *how = k < 0 ? NULL : td__params_pieces(of, k);
        if (how)
            rw.map[old->id] = plain(rw.to, how, node);
    }
    return td__rewrite_end(&rw, out);
}
