/* graph_def.c -- a graph as TensorFlow's GraphDef, as far as TensorBoard shows it:
 *
 *     GraphDef    1 node (NodeDef, any number)       4 versions (1 producer: varint)
 *     NodeDef     1 name  2 op  3 input (string, any number)  5 attr (entry: 1 key, 2 AttrValue)
 *     AttrValue   1 list (7 shape: TensorShapeProto, any number)
 *     TensorShapeProto  2 dim (1 size: varint)
 *
 * A name before a slash is a scope, which TensorBoard folds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/wire.h"
#include "graph/draw.h"
#include "graph/graph_impl.h"

enum { PRODUCER = 22 };

/* Output k of a node is called NAME:k, the first by the name alone. */
static void add_input(td__text *out, const td_node *in)
{
    char name[320];

    if (in->op != TD_OP_PART) {
        td__wire_text(out, 3, in->name);
        return;
    }
    const td_attr_part *attr = in->attr;
    snprintf(name, sizeof name, "%.300s:%d", in->in[0]->name, attr->index);
    td__wire_text(out, 3, name);
}

static void add_shapes(td__text *out, const td_node *n, td__text *work)
{
    td__text *list = &work[0], *shape = &work[1], *dim = &work[2], *attr = &work[3];

    td__text_clear(list);
    for (int k = 0; k < n->n_out; k++) {
        td__text_clear(shape);
        for (int i = 0; i < n->out[k].shape.ndim; i++) {
            td__text_clear(dim);
            td__wire_int(dim, 1, n->out[k].shape.dim[i]);
            td__wire_part(shape, 2, dim);
        }
        td__wire_part(list, 7, shape);
    }
    td__text_clear(attr); /* AttrValue */
    td__wire_part(attr, 1, list);
    td__text_clear(shape); /* the map's entry */
    td__wire_text(shape, 1, "_output_shapes");
    td__wire_part(shape, 2, attr);
    td__wire_part(out, 5, shape);
}

void td__graph_def(td__text *out, const td_graph *g)
{
    static const char VERSIONS[] = {1 << 3 | TD_WIRE_VARINT, PRODUCER};
    td__text node = {0}, work[4] = {0};

    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op == TD_OP_PART)
            continue;
        td__text_clear(&node);
        td__wire_text(&node, 1, n->name);
        td__wire_text(&node, 2, td__op(n->op)->name);
        for (int k = 0; k < n->n_in; k++)
            add_input(&node, n->in[k]);
        add_shapes(&node, n, work);
        td__wire_part(out, 1, &node);
    }
    td__wire_bytes(out, 4, VERSIONS, sizeof VERSIONS);
    td__text_fini(&node);
    for (size_t i = 0; i < sizeof work / sizeof work[0]; i++)
        td__text_fini(&work[i]);
}
