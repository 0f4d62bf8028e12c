/* rewrite_tensor_rows.c -- what lies between two products, on rows (sequence parallelism:
 * Korthikanti 2022): see tensor.h.
 *
 *     partial sums of a product      pieces_sum, then pieces_cut by rows: together a reduce-scatter
 *     bias, activation, dropout,     on each piece of rows; params that all rows read go through
 *     layer norm, residual sums      pieces_fan, so that their gradients are sums over pieces
 *     the next product               pieces_join (an all-gather), then as without
 *
 * Rows are the first axis that the pieces divide, but the last: samples, else tokens. Autodiff
 * makes the conjugates: the gradient of a cut is a join, that of a join of fanned values a
 * reduce-scatter. All sums over rows are by piece and then in the tree over pieces, so that the
 * number of ranks decides nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/rewrites/rewrite_tensor.h"

static bool is_norm(const td_node *n)
{
    return n->op == TD_OP_LAYER_NORM || n->op == TD_OP_RMS_NORM;
}

/* Is there something to do on rows before the next product? */
static bool feeds_row_work(const td__tensor *t, const td_node *old)
{
    for (int i = old->id + 1; i < t->rw.from->n_nodes; i++) {
        const td_node *n = t->rw.from->nodes[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] == old && (is_norm(n) || n->op == TD_OP_DROPOUT || td__op(n->op)->scalar))
                return true;
    }
    return false;
}

int td__tensor_row_axis(const td__tensor *t, const td_node *old)
{
    const td_shape *s = &old->out[0].shape;
    if (!t->cut.sequence || old->op == TD_OP_CONV2D || !feeds_row_work(t, old))
        return -1;
    for (int axis = 0; axis < s->ndim - 1; axis++)
        if (s->dim[axis] && s->dim[axis] % t->cut.pieces == 0)
            return axis;
    return -1;
}

td__cut_value *td__tensor_cut_rows(td__tensor *t, const td_node *old, int axis, td_node *sum)
{
    td_attr_pieces a = td__tensor_pieces(t, axis, 1);
    td_node *cut = TD__NODE(t->rw.to, TD_OP_PIECES_CUT, &a, sum);
    td__cut_value *v = td__tensor_set(t, old, axis, 1);
    v->rows = true;
    t->any_rows = true;
    for (int i = 0; i < t->own; i++)
        v->piece[i] = td__part(t->rw.to, cut, i);
    return v;
}

/* Piece i of an input that is whole and is broadcast to the shape of the result, which has `size`
 * rows along `axis`, counted from the end as broadcasting does. */
static td_node *rows_of(td__tensor *t, const td_node *in, int64_t size, int from_end, int i)
{
    const td_shape *s = &in->out[0].shape;
    int axis = s->ndim - from_end;
    td_graph *g = t->rw.to;
    bool all = axis < 0 || s->dim[axis] != size; /* then every row reads the same */
    if (td_dtype_is_float(in->out[0].dtype) && (all || in->op == TD_OP_PARAM)) {
        int64_t n = size / t->cut.pieces, begin = n * (t->own * t->cut.rank + i);
        td_node *one = td__part(g, td__tensor_fan(t, in), i);
        return all ? one : td_slice(g, one, axis, begin, begin + n, 1);
    }
    td_node *whole = td__tensor_whole(t, in);
    if (all)
        return whole;
    td_attr_pieces a = td__tensor_pieces(t, axis, 1);
    return td__part(g, TD__NODE(g, TD_OP_PIECES_CUT, &a, whole), i);
}

/* The input that is cut by rows and has those of the result; NULL: none. */
static const td__cut_value *cut_input(const td__tensor *t, const td_node *old)
{
    for (int k = 0; k < (is_norm(old) ? 1 : old->n_in); k++)
        if (t->cuts[old->in[k]->id].rows && old->in[k]->op != TD_OP_PARAM &&
            td_shape_equal(&old->in[k]->out[0].shape, &old->out[0].shape))
            return &t->cuts[old->in[k]->id];
    return NULL;
}

bool td__tensor_by_rows(td__tensor *t, const td_node *old)
{
    const td_shape *s = &old->out[0].shape;
    const td__cut_value *x = cut_input(t, old);
    if (!x || (!is_norm(old) && !td__op(old->op)->scalar) || old->n_out > (is_norm(old) ? 3 : 1))
        return false;
    int axis = x->axis, from_end = s->ndim - axis;
    td__cut_value *v = td__tensor_set(t, old, axis, 1);
    v->rows = true;
    for (int i = 0; i < t->own; i++) {
        td_node *in[TD_MAX_IN];
        for (int k = 0; k < old->n_in; k++) {
            const td__cut_value *c = &t->cuts[old->in[k]->id];
            bool cut = c->rows && c->axis == axis && old->in[k]->op != TD_OP_PARAM &&
                       td_shape_equal(&old->in[k]->out[0].shape, s);
            in[k] = cut ? c->piece[i] : rows_of(t, old->in[k], s->dim[axis], from_end, i);
        }
        v->piece[i] = td__node(t->rw.to, old->op, old->attr, in, old->n_in);
    }
    return true;
}
