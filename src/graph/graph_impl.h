/* graph_impl.h -- the inside of td_graph, shared by the files of this layer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_GRAPH_IMPL_H
#define TD_GRAPH_GRAPH_IMPL_H

#include "base/alloc.h"
#include "ops/attr.h"
#include "graph/frozen.h"
#include "ops/op.h"

/* Why a node is wanted. Everything a program keeps is reachable from its roots; rewrites carry the
 * roots over, so nobody has to remember where a node went. */
typedef enum td__root_kind {
    TD_ROOT_LOSS,
    TD_ROOT_OUTPUT,      /* index: position in td_program_opts.outputs */
    TD_ROOT_INPUT_GRAD,  /* index: position in td_program_opts.grad_inputs */
    TD_ROOT_PARAM_GRAD,  /* leaf: the param; node: its gradient, f32, dense */
    TD_ROOT_SPARSE_GRAD, /* leaf: the param; node: an embedding_rows node */
    TD_ROOT_EDGE,        /* index: of td__cut.edges; node: a value that another piece reads */
    TD_ROOT_TRACK        /* leaf: the state; node: its new statistic; weight: of the new value */
} td__root_kind;

typedef struct td__root {
    td__root_kind kind;
    td_node *node;
    td_node *leaf;
    int index;
    double weight;
} td__root;

/* Nodes by name (graph/names.c). */
typedef struct td__name_table {
    const td_node **entry; /* open addressing; a power of two of them */
    size_t cap, used;
    int n_nodes; /* of the graph's nodes, how many are entered */
} td__name_table;

struct td_graph {
    td__arena *arena;
    td_node **nodes; /* in topological order; node->id is the index */
    int n_nodes, cap_nodes;
    td__root *roots;
    int n_roots, cap_roots;
    const char *scope; /* "block0/attn/" or "" */
    const struct td__scope {
        const char *text;
        const struct td__scope *outer;
    } * outer; /* what `scope` was before each push; NULL: nothing */
    td__name_table names;
    int place;             /* of nodes made now */
    const char *origin;    /* of params made now; NULL: none */
    td__frozen_fn *frozen; /* NULL: no param is */
    void *frozen_user;
    td_run_phase phase;
    uint32_t next_stream;
    td_status status; /* the first error */
    char error[512];
};

/* Add a root; a failure is the graph's sticky error. */
void td__graph_add_root(td_graph *g, td__root root);

/* Is n a node of this graph? */
bool td__graph_owns(const td_graph *g, const td_node *n);

/* Has a node this name? */
TD_NODISCARD td_status td__graph_name_taken(td_graph *g, const char *name, bool *taken);
/* n has another name than before. */
TD_NODISCARD td_status td__graph_renamed(td_graph *g, const td_node *n);

/* td__node with a full name given (copied), or the automatic one where name is NULL. */
td_node *td__node_named(td_graph *g, td_opcode op, const void *attr, td_node *const *in, int n_in,
                        const char *name);

/* The node and output that hold n's memory: views are followed to what they look at. */
const td_node *td__view_base(const td_node *n, int *output);

/* "f32(64, 784) nhwc" into buf; returns buf. */
char *td__desc_text(const td_desc *d, char *buf, size_t nbytes);

/* n is needed in this phase, if not earlier. */
static inline void td__need_in(td_node *n, td_run_phase phase)
{
    n->phase = phase < n->phase ? phase : n->phase;
}

static inline bool td__is_leaf(const td_node *n)
{
    return n->op == TD_OP_INPUT || n->op == TD_OP_PARAM || n->op == TD_OP_STATE ||
           n->op == TD_OP_CONSTANT;
}

#endif
