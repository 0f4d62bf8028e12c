/* rewrite_lookup.c -- look up after the product instead of before it.
 *
 *     linear(embedding(ids, table), w, b)  ->  embedding(ids, linear(table, w)) + b
 *
 * Both give the same rows, but the product now has one row per entry of the table instead of one
 * per id, and so have its gradients: a character model multiplies 96 rows where it had thousands.
 * Done where the table is clearly the smaller one, nobody else reads the looked-up rows and the
 * table's gradient is dense. The bias stays outside because rows of negative ids are zero
 * before it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

/* Is n a linear layer on rows that are cheaper to look up afterwards? */
static bool applies(const td_node *n, const int *uses)
{
    if (n->op != TD_OP_LINEAR || n->in[0]->op != TD_OP_EMBEDDING || uses[n->in[0]->id] != 1)
        return false;
    const td_node *lookup = n->in[0], *table = lookup->in[1];
    td_dtype dtype = lookup->out[0].dtype;
    return (dtype == TD_F32 || dtype == TD_BF16) &&
           ((const td_attr_linear *)n->attr)->act == TD_ACT_NONE &&
           !((const td_attr_embedding *)lookup->attr)->sparse &&
           td__desc_count(&lookup->in[0]->out[0]) >= 2 * table->out[0].shape.dim[0];
}

static void swap(td__rewriter *rw, const td_node *n)
{
    const td_node *lookup = n->in[0];
    td_dtype dtype = lookup->out[0].dtype;
    td_node *in[] = {rw->map[lookup->in[1]->id], rw->map[n->in[1]->id]};
    if (in[0] && in[0]->out[0].dtype != dtype) /* bf16 programs round the rows when looked up */
        in[0] = td_cast(rw->to, in[0], dtype);
    td_attr_linear linear;
    memcpy(&linear, n->attr, sizeof linear);
    linear.has_bias = false;
    td_node *table = td__node_named(rw->to, TD_OP_LINEAR, &linear, in, 2, n->name);
    if (table && table->out[0].dtype != TD_F32) /* tables are f32: gradients of rows add up there */
        table = td_cast(rw->to, table, TD_F32);
    td_attr_embedding attr;
    memcpy(&attr, lookup->attr, sizeof attr);
    attr.out_dtype = n->out[0].dtype;
    td_node *y = TD__NODE(rw->to, TD_OP_EMBEDDING, &attr, rw->map[lookup->in[0]->id], table);
    if (n->n_in == 3) {
        td_node *bias = rw->map[n->in[2]->id];
        if (bias && bias->out[0].dtype != n->out[0].dtype)
            bias = td_cast(rw->to, bias, n->out[0].dtype);
        y = td_add(rw->to, y, bias);
    }
    rw->map[n->id] = y;
}

td_status td__rewrite_lookup(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    int *uses = td__use_counts(g);
    if (!uses)
        td__graph_fail(rw.to, TD_ENOMEM, "td_graph", "no memory to count uses");
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++) {
        const td_node *n = td__rewrite_visit(&rw, i);
        if (applies(n, uses))
            swap(&rw, n);
        else
            td__rewrite_copy(&rw, n);
    }
    td__free(uses);
    return td__rewrite_end(&rw, out);
}
