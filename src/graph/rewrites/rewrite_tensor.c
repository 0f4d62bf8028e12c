/* rewrite_tensor.c -- products in pieces: see tensor.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrites/rewrite_tensor.h"

/* Fewer outputs than these in a piece are not worth a message. */
enum { LEAST = 8 };

/* ---- Values ---------------------------------------------------------------------------------- */

td_attr_pieces td__tensor_pieces(const td__tensor *t, int axis, int groups)
{
    td_attr_pieces a;
    memset(&a, 0, sizeof a);
    a.axis = axis;
    a.groups = groups;
    a.pieces = t->cut.pieces;
    a.n = t->cut.pieces / t->cut.ranks;
    a.first = a.n * t->cut.rank;
    a.ranks = t->cut.ranks;
    return a;
}

/* All pieces together. */
static td_node *join(td__tensor *t, const td__cut_value *v, td_shape whole)
{
    td_attr_pieces a = td__tensor_pieces(t, v->axis, v->groups);
    a.whole = whole;
    return td__node(t->rw.to, TD_OP_PIECES_JOIN, &a, v->piece, a.n);
}

static td_node *piece_of(td__tensor *t, const td_node *param, int axis, int groups, int i);

/* Of a param that is cut no rank has all that is up to date. */
static td_node *whole_param(td__tensor *t, const td_node *old)
{
    const td__cut_value *how = &t->params[old->id];
    td__cut_value *v = &t->cuts[old->id];
    if (!how->groups)
        return t->rw.map[old->id];
    if (!t->fans[old->id]) {
        *v = *how;
        for (int i = 0; i < t->own; i++)
            v->piece[i] = piece_of(t, old, v->axis, v->groups, i);
        t->fans[old->id] = join(t, v, old->out[0].shape);
    }
    return t->fans[old->id];
}

td_node *td__tensor_whole(td__tensor *t, const td_node *old)
{
    td_node **at = &t->rw.map[old->id];
    if (old->op == TD_OP_PARAM)
        return whole_param(t, old);
    if (!*at && t->cuts[old->id].groups)
        *at = join(t, &t->cuts[old->id], old->out[0].shape);
    return *at;
}

td__cut_value *td__tensor_set(td__tensor *t, const td_node *old, int axis, int groups)
{
    td__cut_value *v = &t->cuts[old->id];
    v->axis = axis;
    v->groups = groups;
    return v;
}

td_node *td__tensor_fan(td__tensor *t, const td_node *old)
{
    bool is_cut =
        old->op == TD_OP_PARAM && t->params[old->id].groups; /* then fans[] has the join */
    td_node *own = NULL, **at = is_cut ? &own : &t->fans[old->id];
    td_attr_pieces a = td__tensor_pieces(t, 0, 1);
    if (!*at)
        *at = td__node(t->rw.to, TD_OP_PIECES_FAN, &a, (td_node *[]){td__tensor_whole(t, old)}, 1);
    return *at;
}

/* Piece i of a param; all of its readers share it, so that its gradient is one. */
static td_node *piece_of(td__tensor *t, const td_node *param, int axis, int groups, int i)
{
    td_attr_pieces a = td__tensor_pieces(t, axis, groups);
    td_node *from = t->rw.map[param->id], *cut = NULL;
    a.ranks = 1;
    a.packed = t->cut.packed;
    for (int k = from ? from->id : 0; k < t->rw.to->n_nodes && !cut; k++) {
        td_node *n = t->rw.to->nodes[k];
        const td_attr_pieces *b = n->attr; /* which pieces this rank has is the same for all */
        if (n->op == TD_OP_PIECES_CUT && n->in[0] == from && b->axis == axis && b->groups == groups)
            cut = n;
    }
    if (!cut)
        cut = td__node(t->rw.to, TD_OP_PIECES_CUT, &a, &from, 1);
    return td__part(t->rw.to, cut, i);
}

static td_node *sum(td__tensor *t, td_node *const *partials)
{
    td_attr_pieces a = td__tensor_pieces(t, 0, 1);
    return td__node(t->rw.to, TD_OP_PIECES_SUM, &a, partials, a.n);
}

static td_node *cast_to(td__tensor *t, td_node *y, td_dtype dtype)
{
    return y && y->out[0].dtype != dtype ? td_cast(t->rw.to, y, dtype) : y;
}

/* May the param be cut so? Not in two ways: no rank would have what another way reads. */
static bool may_cut(const td__tensor *t, const td_node *param, int axis, int groups)
{
    const td__cut_value *v = &t->params[param->id];
    return param->op == TD_OP_PARAM && (!v->groups || (v->axis == axis && v->groups == groups));
}

static void note_cut(td__tensor *t, const td_node *param, int axis, int groups)
{
    t->params[param->id].axis = axis;
    t->params[param->id].groups = groups;
    t->any = true;
}

static bool divides(const td__tensor *t, int64_t size)
{
    return size % t->cut.pieces == 0 && size / t->cut.pieces >= LEAST;
}

/* ---- Products -------------------------------------------------------------------------------- */

/* How many equal slices of the last axis is old read in? 1: it is read whole. */
static int groups_of(const td__tensor *t, const td_node *old)
{
    int64_t size = old->out[0].shape.dim[old->out[0].shape.ndim - 1], part = 0;
    for (int i = old->id + 1; i < t->rw.from->n_nodes; i++) {
        const td_node *n = t->rw.from->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            const td_attr_slice *a = n->attr;
            if (n->in[k] != old)
                continue;
            if (n->op != TD_OP_SLICE || a->axis != old->out[0].shape.ndim - 1 || a->step != 1 ||
                (part && a->stop - a->start != part))
                return 1;
            part = a->stop - a->start;
            if (!part || size % part || a->start % part)
                return 1;
        }
    }
    return part ? (int)(size / part) : 1;
}

/* Do losses alone read it? Their pieces need not be equal. */
static bool are_logits(const td__tensor *t, const td_node *old)
{
    bool read = false;
    for (int i = 0; i < t->rw.from->n_roots; i++)
        if (t->rw.from->roots[i].node == old)
            return false;
    for (int i = old->id + 1; i < t->rw.from->n_nodes; i++)
        for (int k = 0; k < t->rw.from->nodes[i]->n_in; k++)
            if (t->rw.from->nodes[i]->in[k] == old) {
                if (t->rw.from->nodes[i]->op != TD_OP_XENT)
                    return false;
                read = true;
            }
    return read;
}

/* Outputs of the product, whose weight has them along axis 0, in pieces. */
static bool by_outputs(td__tensor *t, const td_node *old)
{
    const td_node *w = old->in[1];
    int axis = old->op == TD_OP_CONV2D ? 1 : old->out[0].shape.ndim - 1, groups = 1;
    int64_t outputs = w->out[0].shape.dim[0];
    bool logits = old->op == TD_OP_LINEAR && outputs / t->cut.pieces >= LEAST && are_logits(t, old);
    if (old->op == TD_OP_LINEAR && !logits)
        groups = groups_of(t, old);
    if ((!logits && !divides(t, outputs / groups)) ||
        (old->n_in > 2 && !may_cut(t, old->in[2], 0, groups)) || !may_cut(t, w, 0, groups))
        return false;
    note_cut(t, w, 0, groups);
    if (old->n_in > 2)
        note_cut(t, old->in[2], 0, groups);
    td__cut_value *v = td__tensor_set(t, old, axis, groups);
    for (int i = 0; i < t->own; i++) {
        td_node *in[3] = {td__part(t->rw.to, td__tensor_fan(t, old->in[0]), i),
                          piece_of(t, w, 0, groups, i)};
        if (old->n_in > 2)
            in[2] = piece_of(t, old->in[2], 0, groups, i);
        v->piece[i] = td__node(t->rw.to, old->op, old->attr, in, old->n_in);
    }
    return true;
}

/* What comes after a sum of partial products: bias, if there is one, and activation. */
static td_node *finish(td__tensor *t, const td_node *old, td_node *y, td_node *b, td_act act)
{
    td_graph *g = t->rw.to;
    y = cast_to(t, y, old->out[0].dtype);
    if (old->n_in > 2) {
        b = cast_to(t, b, old->out[0].dtype);
        if (old->op == TD_OP_CONV2D)
            b = td_reshape(g, b, TD_SHAPE(1, old->out[0].shape.dim[1], 1, 1));
        y = td_add(g, y, b);
    }
    switch (act) {
    case TD_ACT_RELU: return td_relu(g, y);
    case TD_ACT_GELU: return td_gelu(g, y);
    case TD_ACT_GELU_TANH: return td_gelu_tanh(g, y);
    default: return y;
    }
}

static void finish_rows(td__tensor *t, const td_node *old, int axis, td_node *y, td_act act)
{
    td__cut_value *v = td__tensor_cut_rows(t, old, axis, y);
    for (int i = 0; i < t->own; i++) {
        td_node *b = old->n_in > 2 ? td__part(t->rw.to, td__tensor_fan(t, old->in[2]), i) : NULL;
        v->piece[i] = finish(t, old, v->piece[i], b, act);
    }
}

/* Inputs of the product, which are cut as the weight is along axis 1: partial sums. */
static bool by_inputs(td__tensor *t, const td_node *old)
{
    const td__cut_value *x = &t->cuts[old->in[0]->id];
    int axis = old->op == TD_OP_CONV2D ? 1 : old->in[0]->out[0].shape.ndim - 1;
    td_node *partial[TD__MOST_PIECES];
    union {
        td_attr_linear linear;
        td_attr_conv2d conv;
    } attr;
    memset(&attr, 0, sizeof attr);
    memcpy(&attr, old->attr, td__op(old->op)->attr_size);
    td_act act = old->op == TD_OP_CONV2D ? attr.conv.act : attr.linear.act;
    if (x->groups != 1 || x->axis != axis || !may_cut(t, old->in[1], 1, 1))
        return false;
    note_cut(t, old->in[1], 1, 1);
    if (old->op == TD_OP_CONV2D) {
        attr.conv.act = TD_ACT_NONE;
        attr.conv.has_bias = false;
    } else {
        attr.linear.act = TD_ACT_NONE;
        attr.linear.has_bias = false;
    }
    for (int i = 0; i < t->own; i++)
        partial[i] =
            TD__NODE(t->rw.to, old->op, &attr, x->piece[i], piece_of(t, old->in[1], 1, 1, i));
    int rows = td__tensor_row_axis(t, old);
    td_node *y = sum(t, partial);
    if (rows >= 0)
        finish_rows(t, old, rows, y, act);
    else
        t->rw.map[old->id] =
            finish(t, old, y, old->n_in > 2 ? td__tensor_whole(t, old->in[2]) : NULL, act);
    return true;
}

static bool product(td__tensor *t, const td_node *old)
{
    const td__cut_value *x = &t->cuts[old->in[0]->id];
    if (old->op == TD_OP_CONV2D && ((const td_attr_conv2d *)old->attr)->groups > 1)
        return false;
    return x->groups && !x->rows ? by_inputs(t, old) : by_outputs(t, old);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static bool look_up(td__tensor *t, const td_node *old)
{
    const td_node *table = old->in[1];
    int64_t rows = table->out[0].shape.dim[0];
    td_node *partial[TD__MOST_PIECES];
    if (((const td_attr_embedding *)old->attr)->sparse || rows / t->cut.pieces < LEAST ||
        !may_cut(t, table, 0, 1))
        return false;
    note_cut(t, table, 0, 1);
    td_attr_pieces a = td__tensor_pieces(t, 0, 1);
    for (int i = 0; i < t->own; i++) {
        td__tensor_piece p = td__piece_of(&a, &table->out[0].shape, a.first + i);
        td_attr_piece_ids ids;
        memset(&ids, 0, sizeof ids);
        ids.first = p.begin;
        ids.rows = p.count;
        ids.last = a.first + i == a.pieces - 1;
        td_node *here = TD__NODE(t->rw.to, TD_OP_PIECE_IDS, &ids, t->rw.map[old->in[0]->id]);
        partial[i] =
            TD__NODE(t->rw.to, TD_OP_EMBEDDING, old->attr, here, piece_of(t, table, 0, 1, i));
    }
    int axis = td__tensor_row_axis(t, old);
    td_node *y = sum(t, partial);
    if (axis < 0) {
        t->rw.map[old->id] = cast_to(t, y, old->out[0].dtype);
        return true;
    }
    td__cut_value *v = td__tensor_cut_rows(t, old, axis, y);
    for (int i = 0; i < t->own; i++)
        v->piece[i] = cast_to(t, v->piece[i], old->out[0].dtype);
    return true;
}

static bool cross_entropy(td__tensor *t, const td_node *old)
{
    const td__cut_value *x = &t->cuts[old->in[0]->id];
    td_shape logits = old->in[0]->out[0].shape;
    if (x->groups != 1 || x->axis != logits.ndim - 1)
        return false;
    td_node *target = t->rw.map[old->in[1]->id];
    td__cut_value stats = {.axis = 0, .groups = 1};
    td_attr_pieces a = td__tensor_pieces(t, logits.ndim - 1, 1);
    td_attr_xent_piece attr;
    memset(&attr, 0, sizeof attr);
    memcpy(&attr.loss, old->attr, sizeof attr.loss);
    attr.classes = logits.dim[logits.ndim - 1];
    for (int i = 0; i < t->own; i++) {
        td_node *piece = x->piece[i];
        if (piece && piece->out[0].dtype != TD_F32)
            piece = td_cast(t->rw.to, piece, TD_F32);
        attr.first = td__piece_of(&a, &logits, a.first + i).begin;
        stats.piece[i] = TD__NODE(t->rw.to, TD_OP_XENT_PIECE, &attr, piece, target);
    }
    attr.first = 0;
    td_node *all =
        join(t, &stats, TD_SHAPE(3 * t->cut.pieces, td_shape_count(&old->in[1]->out[0].shape)));
    t->rw.map[old->id] = TD__NODE(t->rw.to, TD_OP_XENT_JOIN, &attr, all, target);
    return true;
}

/* ---- All nodes ------------------------------------------------------------------------------- */

static void convert(td__tensor *t, const td_node *old)
{
    bool done = false;
    switch (old->op) {
    case TD_OP_LINEAR:
    case TD_OP_CONV2D: done = product(t, old); break;
    case TD_OP_EMBEDDING: done = look_up(t, old); break;
    case TD_OP_XENT: done = cross_entropy(t, old); break;
    default: done = td__tensor_by_piece(t, old) || td__tensor_by_rows(t, old); break;
    }
    if (done)
        return;
    td_node *in[TD_MAX_IN];
    for (int i = 0; i < old->n_in; i++)
        in[i] = td__tensor_whole(t, old->in[i]);
    td__rewrite_copy_as(&t->rw, old, old->attr, in, old->n_in);
}

/* One pass; params: by old id, which are cut. */
static td_status rewrite(const td_graph *g, const td__tensor_cut *cut, td__cut_value *params,
                         td_graph **out)
{
    td__tensor t = {.cut = *cut, .own = cut->pieces / cut->ranks, .params = params};
    TD_TRY(td__rewrite_begin(&t.rw, g));
    t.cuts = td__calloc((size_t)g->n_nodes + 1, sizeof *t.cuts);
    t.fans = td__calloc((size_t)g->n_nodes + 1, sizeof(td_node *));
    if (!t.cuts || !t.fans)
        td__graph_fail(t.rw.to, TD_ENOMEM, "td_graph", "no memory to cut products");
    for (int i = 0; i < g->n_nodes && !t.rw.to->status; i++) {
        const td_node *old = td__rewrite_visit(&t.rw, i);
        if (td__is_leaf(old))
            td__rewrite_copy(&t.rw, old);
        else
            convert(&t, old);
    }
    for (int i = 0; i < g->n_roots && !t.rw.to->status; i++)
        td__tensor_whole(&t, td__rewrite_visit(&t.rw, g->roots[i].node->id));
    if (!t.any && !t.rw.to->status)
        td__graph_fail(t.rw.to, TD_EINVAL, "parallel.tensor",
                       "no layer of the model is wide enough for %d pieces of equal size, of at "
                       "least %d",
                       cut->pieces, LEAST);
    if (cut->rows_wanted && !t.any_rows && !t.rw.to->status)
        td__graph_fail(t.rw.to, TD_EINVAL, "parallel.sequence",
                       "no norm or sum between two layers in pieces has rows (samples or tokens of "
                       "a micro-batch) that %d pieces divide; change train.batch, "
                       "train.micro_batches or the context, or leave parallel.sequence out",
                       cut->pieces);
    td__free(t.cuts);
    td__free(t.fans);
    return td__rewrite_end(&t.rw, out);
}

/* The first pass finds out which params are cut, so that in the second one those that read all of
 * one of them, earlier in the graph, ask for its pieces. */
td_status td__rewrite_tensor(const td_graph *g, const td__tensor_cut *cut, td_graph **out)
{
    td_graph *first;
    td__cut_value *params = td__calloc((size_t)g->n_nodes + 1, sizeof *params);
    *out = NULL;
    if (!params)
        return TD_FAIL(TD_ENOMEM, "no memory to cut products");
    td_status st = rewrite(g, cut, params, &first);
    if (!st) {
        td_graph_destroy(first);
        st = rewrite(g, cut, params, out);
    }
    td__free(params);
    return st;
}
