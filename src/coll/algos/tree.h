/* tree.h -- moving an array along a tree of ranks, in segments. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_TREE_H
#define TD_COLL_TREE_H

#include "coll/algo.h"

enum { TD_TREE_CHILDREN = 16 };

/* This rank's place: parent -1 at the top; children in the order in which they are served. */
typedef struct td__tree {
    int parent, n_children;
    const int *children;
} td__tree;

/* A binomial tree with `root` at the top: rank v from there has the parent v without its lowest
 * bit. Children nearest first, as the tree over ranks adds them; `list` gets them. */
td__tree td__tree_binomial(int rank, int size, int root, int list[TD_TREE_CHILDREN]);

/* From the top down: receive each segment of data[0..count) and pass it on. */
TD_NODISCARD td_status td__tree_down(td__coll_ctx *x, const td__coll_call *c, td__tree t,
                                     void *data);
/* From the leaves up: sums of c->in are made in `sum` (NULL: in scratch), which at the top has the
 * total in the end. */
TD_NODISCARD td_status td__tree_up(td__coll_ctx *x, const td__coll_call *c, td__tree t, void *sum);
/* Elements in a segment. */
size_t td__tree_segment(const td__coll_call *c);

#endif
