/* rewrite_scatter.c -- sums over tensor ranks of which a rank reads only its own rows
 * (rewrite_tensor_rows.c) are asked for as reduce-scatters: half the bytes of an all-reduce, and
 * the same bits in those rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrites/rewrite_tensor.h"

/* Of each node, by id: the one cut that all of its readers, or theirs, are; NULL: there is none. */
typedef struct finder {
    const td_graph *g;
    const td_node **cut;
    bool *other; /* something else reads it */
} finder;

static void note(finder *f, const td_node *from, const td_node *cut)
{
    if (!cut || (f->cut[from->id] && f->cut[from->id] != cut))
        f->other[from->id] = true;
    f->cut[from->id] = cut;
}

static void find(finder *f)
{
    for (int i = 0; i < f->g->n_roots; i++)
        f->other[f->g->roots[i].node->id] = true;
    for (int i = f->g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = f->g->nodes[i];
        const td_attr_pieces *a = n->attr;
        const td_node *cut = n->op == TD_OP_PIECES_CUT && a->ranks > 1 && a->groups == 1 ? n : NULL;
        if (n->op == TD_OP_CAST && !f->other[i])
            cut = f->cut[i];
        for (int k = 0; k < n->n_in; k++)
            note(f, n->in[k], cut);
    }
}

static void convert(const finder *f, td__rewriter *rw)
{
    for (int i = 0; i < f->g->n_nodes && !rw->to->status; i++) {
        const td_node *old = td__rewrite_visit(rw, i);
        td_attr_pieces a;
        if (old->op != TD_OP_PIECES_SUM || !f->cut[i] || f->other[i]) {
            td__rewrite_copy(rw, old);
            continue;
        }
        td_node *in[TD_MAX_IN];
        memcpy(&a, f->cut[i]->attr, sizeof a);
        a.whole = old->out[0].shape;
        a.scatter = 1;
        for (int k = 0; k < old->n_in; k++)
            in[k] = rw->map[old->in[k]->id];
        td__rewrite_copy_as(rw, old, &a, in, old->n_in);
    }
}

td_status td__rewrite_scatter(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    *out = NULL;
    finder f = {.g = g,
                .cut = td__calloc((size_t)g->n_nodes + 1, sizeof(td_node *)),
                .other = td__calloc((size_t)g->n_nodes + 1, sizeof(bool))};
    td_status st =
        f.cut && f.other ? td__rewrite_begin(&rw, g) : TD_FAIL(TD_ENOMEM, "no memory for a list");
    if (!st) {
        find(&f);
        convert(&f, &rw);
        st = td__rewrite_end(&rw, out);
    }
    td__free((void *)f.cut);
    td__free(f.other);
    return st;
}
