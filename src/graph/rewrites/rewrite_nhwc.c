/* rewrite_nhwc.c -- image chains in NHWC.
 *
 * Convolutions, pools and norms prefer channels last. Each operator says how it meets layouts
 * (td_layout_rule): IMAGE operators get their 4-D activations in NHWC, elementwise ones (ANY) keep
 * whatever their operands have, all others get plain tensors. Reorders stand only where a value
 * crosses from one kind to the other, once per value and direction. Infer rules carry the layout of
 * the inputs to the outputs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/rewrite.h"

typedef struct layouter {
    td__rewriter rw;
    td_node **nhwc;  /* by new id: its NHWC twin, or NULL */
    td_node **plain; /* by new id: its plain twin, or NULL */
    int cap;         /* length of both */
} layouter;

static td_node *reordered(layouter *l, td_node *n, td_layout to)
{
    if (!n || n->out[0].layout == to)
        return n;
    td_node **twin = n->id < l->cap ? &(to == TD_LAYOUT_NHWC ? l->nhwc : l->plain)[n->id] : NULL;
    if (twin && *twin)
        return *twin;
    td_node *r = TD__NODE(l->rw.to, TD_OP_REORDER, &(td_attr_reorder){.to = (int)to}, n);
    if (twin)
        *twin = r;
    return r;
}

static void lay_out(layouter *l, const td_node *old)
{
    const td_op_def *def = td__op(old->op);
    td_node *in[TD_MAX_IN];
    bool any_nhwc = false;
    for (int i = 0; i < old->n_in; i++) {
        in[i] = l->rw.map[old->in[i]->id];
        any_nhwc = any_nhwc || (in[i] && in[i]->out[0].layout == TD_LAYOUT_NHWC);
    }
    bool nhwc =
        def->layout == TD_LAYOUT_RULE_IMAGE || (def->layout == TD_LAYOUT_RULE_ANY && any_nhwc);
    for (int i = 0; old->op != TD_OP_PART && i < old->n_in; i++) {
        bool image = in[i] && in[i]->out[0].shape.ndim == 4 && !(def->weights & (1u << i));
        in[i] = reordered(l, in[i], nhwc && image ? TD_LAYOUT_NHWC : TD_LAYOUT_PLAIN);
    }
    td__rewrite_copy_as(&l->rw, old, old->attr, in, old->n_in);
}

/* What leaves the program is plain. */
static void lay_out_roots(layouter *l)
{
    const td_graph *g = l->rw.from;
    for (int i = 0; i < g->n_roots; i++) {
        td_node **n = &l->rw.map[td__rewrite_visit(&l->rw, g->roots[i].node->id)->id];
        *n = reordered(l, *n, TD_LAYOUT_PLAIN);
    }
}

td_status td__rewrite_nhwc(const td_graph *g, td_graph **out)
{
    layouter l = {.cap = 4 * g->n_nodes};
    TD_TRY(td__rewrite_begin(&l.rw, g));
    l.nhwc = td__calloc((size_t)l.cap + 1, sizeof *l.nhwc);
    l.plain = td__calloc((size_t)l.cap + 1, sizeof *l.plain);
    if (!l.nhwc || !l.plain)
        td__graph_fail(l.rw.to, TD_ENOMEM, "td_graph", "no memory to lay out a graph");
    for (int i = 0; i < g->n_nodes && !l.rw.to->status; i++)
        lay_out(&l, td__rewrite_visit(&l.rw, i));
    if (!l.rw.to->status)
        lay_out_roots(&l);
    td__free(l.nhwc);
    td__free(l.plain);
    return td__rewrite_end(&l.rw, out);
}
