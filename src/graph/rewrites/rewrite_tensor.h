/* rewrite_tensor.h -- the rewrite that cuts products (tensor.h), for its files: rewrite_tensor.c
 * has products, tables and losses, rewrite_tensor_each.c what is done piece by piece,
 * rewrite_tensor_rows.c what is done on rows between two products. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_REWRITE_TENSOR_H
#define TD_GRAPH_REWRITE_TENSOR_H

#include "graph/params.h"
#include "graph/rewrite.h"
#include "graph/tensor.h"

/* An old value that is cut. */
typedef struct td__cut_value {
    int axis, groups;                /* groups 0: it is not */
    bool rows;                       /* cut by rows: rewrite_tensor_rows.c */
    td_node *piece[TD__MOST_PIECES]; /* those of this rank */
} td__cut_value;

typedef struct td__tensor {
    td__rewriter rw;
    td__tensor_cut cut;
    int own;               /* pieces of this rank */
    td__cut_value *cuts;   /* by old id */
    td__cut_value *params; /* by old id: how params are cut, without pieces */
    td_node **fans;        /* by old id: for all pieces; of params: all pieces of it */
    bool any, any_rows;
} td__tensor;

td_attr_pieces td__tensor_pieces(const td__tensor *t, int axis, int groups);
/* The new node that stands for all of an old one. */
td_node *td__tensor_whole(td__tensor *t, const td_node *old);
/* old becomes cut; its pieces are to be filled in. */
td__cut_value *td__tensor_set(td__tensor *t, const td_node *old, int axis, int groups);
/* An old value for every piece: readers of the same one share it, so that its gradient is one sum.
 */
td_node *td__tensor_fan(td__tensor *t, const td_node *old);
/* Carry out old on each piece of its inputs, if it can be; false: nothing was done. */
bool td__tensor_by_piece(td__tensor *t, const td_node *old);
/* Is old, of which every rank has partial sums, to be cut by rows? Returns the axis, or -1. */
int td__tensor_row_axis(const td__tensor *t, const td_node *old);
/* The rows of `sum`, which stands for all of old before what is left to do on each piece. */
td__cut_value *td__tensor_cut_rows(td__tensor *t, const td_node *old, int axis, td_node *sum);
/* Carry out old on each piece of rows, if an input is cut so; false: nothing was done. */
bool td__tensor_by_rows(td__tensor *t, const td_node *old);

TD_NODISCARD td_status td__rewrite_tensor(const td_graph *g, const td__tensor_cut *cut,
                                          td_graph **out);
/* Products stay whole, and params of `of` that lie piece by piece are put in order first. */
TD_NODISCARD td_status td__rewrite_packed(const td_graph *g, const td_params *of, td_graph **out);
/* Sums over ranks of which a rank reads its rows alone become reduce-scatters. */
TD_NODISCARD td_status td__rewrite_scatter(const td_graph *g, td_graph **out);
/* Gathered rows that the backward reads are gathered again there. */
TD_NODISCARD td_status td__rewrite_regather(const td_graph *g, td_graph **out);

#endif
