/* rewrite.h -- graph-to-graph rewriting.
 *
 * A rewrite reads one graph and builds another: it walks the old nodes in order and, for each,
 * either copies it with its inputs mapped or puts something else in its place. Every new node
 * passes the operators' infer rules again, so a rewrite cannot produce a graph that does not fit
 * together. Roots (loss, outputs, gradients) are carried over by rewrite_end.
 *
 * Places and phases are carried along and never looked at: what a rewrite makes while it visits an
 * old node has the place and phase of that node. So of two equal nodes the earlier one's stay, and
 * a fused node has those of its last part, which lies downstream of all values that the others
 * read. A phase also moves forward with the map: a node that stands for two has the earlier one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_REWRITE_H
#define TD_GRAPH_REWRITE_H

#include "graph/backend.h"
#include "graph/graph_impl.h"

typedef struct td__rewriter {
    const td_graph *from;
    td_graph *to;
    td_node **map; /* by old id: the new node that stands for it; NULL when not (yet) there */
} td__rewriter;

TD_NODISCARD td_status td__rewrite_begin(td__rewriter *rw, const td_graph *from);

/* The old node i: what is made before the next visit has its place and phase. */
const td_node *td__rewrite_visit(td__rewriter *rw, int i);

/* Copy `old` with its inputs mapped and enter it in the map; NULL on failure (sticky in rw->to). */
td_node *td__rewrite_copy(td__rewriter *rw, const td_node *old);
/* The same with other inputs or attributes. */
td_node *td__rewrite_copy_as(td__rewriter *rw, const td_node *old, const void *attr,
                             td_node *const *in, int n_in);

/* Map the roots, hand out the new graph and release the rest. After a failure *out is NULL. */
TD_NODISCARD td_status td__rewrite_end(td__rewriter *rw, td_graph **out);

/* How often output 0 (or a part) of each node is read, roots included; by id, owned by the caller
 * (td__free). NULL when out of memory. */
int *td__use_counts(const td_graph *g);

/* The passes, one file each. Each makes a new graph in *out and leaves `g` alone. */
typedef td_status td__rewrite_fn(const td_graph *g, td_graph **out);
td__rewrite_fn td__rewrite_prune;     /* drop what no root needs (inputs stay) */
td__rewrite_fn td__rewrite_evaluate;  /* dropout off, batch norm from running averages, no tracks */
td__rewrite_fn td__rewrite_bf16;      /* activations in bf16 */
td__rewrite_fn td__rewrite_sync_norm; /* batch norms over all micro-batches, as operators */
td__rewrite_fn td__rewrite_fold;      /* constants and identities */
td__rewrite_fn td__rewrite_merge;     /* common subexpressions */
td__rewrite_fn td__rewrite_lookup;    /* linear layers of looked-up rows: product first */
td__rewrite_fn td__rewrite_epilogue;  /* activations and residual sums into the producer */
td__rewrite_fn td__rewrite_joined;    /* attention over q, k and v as one product made them */
td__rewrite_fn td__rewrite_one_pass;  /* neighbours over the same memory into one node */
td__rewrite_fn td__rewrite_classifier; /* logits and their cross entropy, some rows at a time */
td__rewrite_fn td__rewrite_classifier_parts; /* their products alone: the same bits */
td__rewrite_fn td__rewrite_unsplit;          /* sums of slices' gradients into concatenations */
td__rewrite_fn td__rewrite_nhwc;             /* image chains in NHWC, reorders at their borders */
td__rewrite_fn td__rewrite_elementwise;      /* chains of elementwise operators into one */

/* Append the backward nodes of the LOSS root to g in place; wanted: every param, and the inputs
 * `grad_inputs`. Adds PARAM_GRAD, SPARSE_GRAD and INPUT_GRAD roots. */
TD_NODISCARD td_status td__autodiff(td_graph *g, td_node *const *grad_inputs, int n_grad_inputs);

#endif
