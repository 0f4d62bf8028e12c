/* cut_impl.h -- the work of cutting a program: cut.c finds pieces and edges, cut_piece.c makes the
 * program of a piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_CUT_IMPL_H
#define TD_GRAPH_CUT_IMPL_H

#include "graph/cut.h"
#include "graph/program_impl.h"

typedef struct td__cutter {
    const td_program *p;
    td__cut *cut;
    int *piece_of; /* by node id: where its step is; leaves: where they go unless read elsewhere */
    int *owner;    /* by slot: the piece that makes its gradient or statistic */
    int *edge_of;  /* by value * n_pieces + reader: index of the edge, -1: none */
    const td_node **made_by; /* by edge: the node, */
    int *output;             /* and which output of it */
} td__cutter;

/* The edge by which piece `to` gets output k of n; -1: none. */
static inline int td__cut_edge(const td__cutter *c, const td_node *n, int k, int to)
{
    size_t value = (size_t)n->id * TD_MAX_OUT + (size_t)k;
    return c->edge_of[value * (size_t)c->cut->n_pieces + (size_t)to];
}

/* Pieces of a param (tensor.h) are cheap to make where they are read, and the param is there. */
static inline bool td__cut_anew(const td_node *n)
{
    return n->op == TD_OP_PIECES_CUT && n->in[0]->op == TD_OP_PARAM;
}

/* Fill program and activations of piece i. */
TD_NODISCARD td_status td__cut_piece(const td__cutter *c, int i);

#endif
