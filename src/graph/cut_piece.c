/* cut_piece.c -- the program of one piece: its steps, the leaves and views that they read, an input
 * for each value that comes from elsewhere, and the roots that are made here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/cut_impl.h"
#include "graph/rewrite.h"

typedef struct copier {
    td__rewriter rw;
    const td__cutter *c;
    int piece;
} copier;

static td_node *edge_input(copier *x, const td_node *n, int k)
{
    int e = td__cut_edge(x->c, n, k, x->piece);
    TD_ASSERT(e >= 0, "output %d of '%s' does not come to piece %d", k, n->name, x->piece);
    td_attr_leaf attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = n->out[k].dtype;
    attr.shape = n->out[k].shape;
    attr.layout = (int)n->out[k].layout;
    return td__node_named(x->rw.to, TD_OP_INPUT, &attr, NULL, 0, x->c->cut->edges[e].name);
}

/* The node that stands for n here: views are made again on what they look at. */
static td_node *value_of(copier *x, const td_node *n)
{
    td_node **mapped = &x->rw.map[n->id];
    bool part = n->op == TD_OP_PART, view = td__op(n->op)->is_view && !part;
    const td_node *made_by = part ? n->in[0] : n;
    if (*mapped || x->rw.to->status)
        return *mapped;
    if (view || td__cut_anew(made_by))
        value_of(x, n->in[0]);
    td__rewrite_visit(&x->rw, n->id);
    if (view || td__is_leaf(n) || td__cut_anew(made_by) || x->c->piece_of[made_by->id] == x->piece)
        td__rewrite_copy(&x->rw, n);
    else
        *mapped = edge_input(x, made_by, part ? ((const td_attr_part *)n->attr)->index : 0);
    return *mapped;
}

/* In FORWARD, whoever reads them. */
static void make_anew(copier *x)
{
    const td_program *p = x->c->p;
    for (int i = 0; i < p->n_steps && !x->rw.to->status; i++)
        for (int k = 0; k < p->steps[i].node->n_in; k++) {
            int output;
            const td_node *base = td__view_base(p->steps[i].node->in[k], &output);
            if (x->c->piece_of[p->steps[i].node->id] == x->piece && td__cut_anew(base) &&
                x->c->piece_of[base->id] != x->piece)
                value_of(x, base);
        }
}

static void copy_steps(copier *x)
{
    const td_program *p = x->c->p;
    make_anew(x);
    for (int i = 0; i < p->n_steps && !x->rw.to->status; i++) {
        const td_node *n = p->steps[i].node;
        if (x->c->piece_of[n->id] != x->piece)
            continue;
        for (int k = 0; k < n->n_in; k++)
            value_of(x, n->in[k]);
        td__rewrite_copy(&x->rw, td__rewrite_visit(&x->rw, n->id));
    }
}

/* Roots of the whole stay with the piece that makes them; values for others become roots. */
static void copy_roots(copier *x)
{
    const td_graph *g = x->c->p->g;
    const td__cut *cut = x->c->cut;
    for (int i = 0; i < g->n_roots; i++) {
        const td__root *r = &g->roots[i];
        int k;
        if (x->c->piece_of[td__view_base(r->node, &k)->id] != x->piece) {
            x->rw.map[r->node->id] = NULL; /* read here, but not made */
            continue;
        }
        value_of(x, r->node);
        if (r->leaf)
            value_of(x, r->leaf);
    }
    for (int e = 0; e < cut->n_edges && !x->rw.to->status; e++)
        if (cut->edges[e].from == x->piece) {
            td_node *n = x->rw.map[td__rewrite_visit(&x->rw, x->c->made_by[e]->id)->id];
            td__graph_add_root(x->rw.to,
                               (td__root){.kind = TD_ROOT_EDGE,
                                          .index = e,
                                          .node = td__part(x->rw.to, n, x->c->output[e])});
        }
}

/* The params that are read or updated here, in the order of the whole. */
static td_status copy_slots(copier *x, td_program *own)
{
    const td_program *p = x->c->p;
    own->slots = td__calloc((size_t)p->n_slots + 1, sizeof *own->slots);
    if (!own->slots)
        return TD_FAIL(TD_ENOMEM, "no memory for a list of params");
    for (int i = 0; i < p->n_slots; i++) {
        if (x->c->owner[i] == x->piece)
            value_of(x, p->slots[i].leaf);
        if (!x->rw.map[p->slots[i].leaf->id])
            continue;
        own->slots[own->n_slots] = p->slots[i];
        own->slots[own->n_slots++].leaf = x->rw.map[p->slots[i].leaf->id];
    }
    return TD_OK;
}

static td_status build(copier *x, td_program *own)
{
    TD_TRY(td__rewrite_begin(&x->rw, x->c->p->g));
    copy_steps(x);
    copy_roots(x);
    td_status st = copy_slots(x, own), end = td__rewrite_end(&x->rw, &own->g);
    TD_TRY(st ? st : end);
    TD_TRY(td_graph_verify(own->g));
    TD_TRY(td__backend_create(x->c->p->backend->ops->name, &own->backend));
    return td__program_plan(own, false);
}

td_status td__cut_piece(const td__cutter *c, int i)
{
    td__piece *piece = &c->cut->pieces[i];
    copier x = {.c = c, .piece = i};
    td_program *own = piece->program = td__calloc(1, sizeof *own);
    if (!own)
        return TD_FAIL(TD_ENOMEM, "no memory for a program");
    own->evaluate = c->p->evaluate;
    own->phased = true;
    TD_TRY(build(&x, own));
    piece->activations = td_program_memory(own).activations;
    for (int k = 0; k < piece->n_in; k++)
        piece->activations += td__align_up(c->cut->edges[piece->in[k]].nbytes, TD_ALIGN);
    return TD_OK;
}
