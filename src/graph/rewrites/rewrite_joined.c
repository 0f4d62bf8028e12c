/* rewrite_joined.c -- attention over queries, keys and values that were cut out of one product:
 *
 *     attention(reshape(slice(x)), reshape(slice(x)), reshape(slice(x))) -> attention_joined(x)
 *
 * Runs before autodiff, whose gradient of the joined operator lies as x does. Heads must lie side
 * by side in x: all queries, all keys, all values. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

/* What q, k or v (B, T, H, D) is a slice of: elements [*start, ...) of the last axis of a
 * (B, T, C); NULL: of nothing. */
static const td_node *sliced(const td_node *n, int64_t *start)
{
    if (n->op != TD_OP_RESHAPE || n->in[0]->op != TD_OP_SLICE)
        return NULL;
    const td_node *slice = n->in[0], *x = slice->in[0];
    const td_attr_slice *a = slice->attr;
    const td_shape *to = &n->out[0].shape, *whole = &x->out[0].shape;
    if (whole->ndim != 3 || a->axis != 2 || a->step != 1 || to->dim[0] != whole->dim[0] ||
        to->dim[1] != whole->dim[1])
        return NULL;
    *start = a->start;
    return x;
}

/* x, if attention n reads nothing else and all of it, in order. */
static const td_node *joined(const td_node *n, td_attr_attention *attr)
{
    int64_t next = 0;
    const td_node *x = NULL;
    memcpy(attr, n->attr, sizeof *attr);
    if (n->op != TD_OP_ATTENTION || attr->has_mask)
        return NULL;
    for (int i = 0; i < 3; i++) {
        int64_t start;
        const td_node *of = sliced(n->in[i], &start);
        const int64_t *dim = n->in[i]->out[0].shape.dim;
        if (!of || (x && of != x) || start != next)
            return NULL;
        x = of;
        next += dim[2] * dim[3];
    }
    attr->heads = (int)n->in[0]->out[0].shape.dim[2];
    attr->kv_heads = (int)n->in[1]->out[0].shape.dim[2];
    return next == x->out[0].shape.dim[2] ? x : NULL;
}

td_status td__rewrite_joined(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++) {
        const td_node *n = td__rewrite_visit(&rw, i);
        td_attr_attention attr;
        const td_node *x = n->op == TD_OP_ATTENTION ? joined(n, &attr) : NULL;
        if (x)
            rw.map[i] = td__node_named(rw.to, TD_OP_ATTENTION_JOINED, &attr,
                                       (td_node *[]){rw.map[x->id]}, 1, n->name);
        else
            td__rewrite_copy(&rw, n);
    }
    return td__rewrite_end(&rw, out);
}
