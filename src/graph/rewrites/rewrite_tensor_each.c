/* rewrite_tensor_each.c -- operators that are carried out on each piece of what they read: see
 * tensor.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrites/rewrite_tensor.h"

/* The operator with the given attributes on the pieces of all inputs. */
static void each(td__tensor *t, const td_node *old, const void *attr, int axis, int groups)
{
    td__cut_value *v = td__tensor_set(t, old, axis, groups);
    v->rows = t->cuts[old->in[0]->id].rows;
    for (int i = 0; i < t->own; i++) {
        td_node *in[TD_MAX_IN];
        for (int k = 0; k < old->n_in; k++)
            in[k] = t->cuts[old->in[k]->id].piece[i];
        v->piece[i] = td__node(t->rw.to, old->op, attr, in, old->n_in);
    }
}

/* Are all inputs cut alike, and of one shape? */
static bool alike(const td__tensor *t, const td_node *old)
{
    const td__cut_value *first = &t->cuts[old->in[0]->id];
    for (int k = 0; k < old->n_in; k++) {
        const td__cut_value *v = &t->cuts[old->in[k]->id];
        if (old->in[k]->op == TD_OP_PARAM || v->groups != first->groups || v->axis != first->axis ||
            !td_shape_equal(&old->in[k]->out[0].shape, &old->in[0]->out[0].shape))
            return false;
    }
    return first->groups > 0;
}

/* Every piece has a random stream of its own, whoever has the piece. */
static void drop_out(td__tensor *t, const td_node *old)
{
    const td__cut_value *x = &t->cuts[old->in[0]->id];
    td__cut_value *v = td__tensor_set(t, old, x->axis, x->groups);
    int first = t->own * t->cut.rank;
    v->rows = x->rows;
    for (int w = 0; w < t->cut.pieces; w++) {
        td_attr_dropout attr;
        memcpy(&attr, old->attr, sizeof attr);
        attr.stream = td__graph_next_stream(t->rw.to);
        if (w >= first && w < first + t->own)
            v->piece[w - first] = TD__NODE(t->rw.to, old->op, &attr, x->piece[w - first]);
    }
}

/* One of the groups. */
static bool slice(td__tensor *t, const td_node *old)
{
    const td__cut_value *x = &t->cuts[old->in[0]->id];
    const td_attr_slice *a = old->attr;
    int64_t size = old->in[0]->out[0].shape.dim[x->axis], part = size / x->groups;
    if (x->groups < 2 || a->axis != x->axis || a->step != 1 || a->stop - a->start != part ||
        a->start % part)
        return false;
    td__cut_value *v = td__tensor_set(t, old, x->axis, 1);
    for (int i = 0; i < t->own; i++) {
        int64_t here = x->piece[i] ? x->piece[i]->out[0].shape.dim[x->axis] / x->groups : 0;
        int64_t begin = a->start / part * here;
        v->piece[i] = td_slice(t->rw.to, x->piece[i], x->axis, begin, begin + here, 1);
    }
    return true;
}

/* The cut axis is split, or joined with those behind it: what was cut stays in order. */
static bool reshape(td__tensor *t, const td_node *old)
{
    const td__cut_value *x = &t->cuts[old->in[0]->id];
    const td_shape *from = &old->in[0]->out[0].shape, *to = &old->out[0].shape;
    int64_t outer = 1, before = 1;
    int axis = 0;
    for (int i = 0; i < x->axis; i++)
        outer *= from->dim[i];
    while (axis < to->ndim && before < outer)
        before *= to->dim[axis++];
    while (axis < to->ndim - 1 && before == outer && to->dim[axis] == 1)
        axis++;
    if (x->groups != 1 || before != outer || axis >= to->ndim || to->dim[axis] % t->cut.pieces ||
        from->dim[x->axis] % t->cut.pieces)
        return false;
    td__cut_value *v = td__tensor_set(t, old, axis, 1);
    v->rows = x->rows && axis < to->ndim - 1;
    td_shape shape = *to;
    shape.dim[axis] /= t->cut.pieces;
    for (int i = 0; i < t->own; i++)
        v->piece[i] = td_reshape(t->rw.to, x->piece[i], shape);
    return true;
}

/* Heads are what pieces have; a mask is the same for all of them. */
static bool attention(td__tensor *t, const td_node *old)
{
    enum { HEADS = 2 };
    for (int k = 0; k < 3; k++) {
        const td__cut_value *x = &t->cuts[old->in[k]->id];
        if (x->groups != 1 || x->axis != HEADS)
            return false;
    }
    td__cut_value *v = td__tensor_set(t, old, HEADS, 1);
    td_node *mask = old->n_in > 3 ? td__tensor_whole(t, old->in[3]) : NULL;
    for (int i = 0; i < t->own; i++) {
        td_node *in[4] = {NULL, NULL, NULL, mask};
        for (int k = 0; k < 3; k++)
            in[k] = t->cuts[old->in[k]->id].piece[i];
        v->piece[i] = td__node(t->rw.to, old->op, old->attr, in, old->n_in);
    }
    return true;
}

/* Heads that pieces do not divide would be joined again, and nothing gained: better say so. */
static void check_heads(td__tensor *t, const td_node *old)
{
    for (int k = 0; k < 3; k++) {
        int64_t heads = old->in[k]->out[0].shape.dim[2];
        if (heads % t->cut.pieces)
            td__graph_fail(t->rw.to, TD_EINVAL, "parallel.tensor",
                           "%d pieces do not divide the %lld heads of '%s'; use a number of "
                           "pieces that does",
                           t->cut.pieces, (long long)heads, old->name);
    }
}

bool td__tensor_by_piece(td__tensor *t, const td_node *old)
{
    const td__cut_value *x = old->n_in ? &t->cuts[old->in[0]->id] : NULL;
    if (old->op == TD_OP_ATTENTION)
        check_heads(t, old);
    if (!x || !x->groups || old->in[0]->op == TD_OP_PARAM)
        return false;
    switch (old->op) {
    case TD_OP_DROPOUT: drop_out(t, old); return true;
    case TD_OP_SLICE: return slice(t, old);
    case TD_OP_RESHAPE: return reshape(t, old);
    case TD_OP_ATTENTION: return attention(t, old);
    case TD_OP_ROPE: /* of each head alike */
        if (x->groups != 1 || x->axis != 2 || old->in[0]->out[0].shape.ndim != 4)
            return false;
        break;
    case TD_OP_MAX_POOL2D:
    case TD_OP_AVG_POOL2D:
    case TD_OP_GLOBAL_AVG_POOL: /* of each channel */
        if (x->groups != 1 || x->axis != 1)
            return false;
        break;
    default:
        if (!td__op(old->op)->scalar || !alike(t, old))
            return false;
        break;
    }
    each(t, old, old->attr, x->axis, x->groups);
    return true;
}
