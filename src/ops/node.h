/* node.h -- what a node is, and how one is added to a graph.
 *
 * A node is an operator applied to other nodes. Most nodes have one output, and then "the node" is
 * also its output. Further outputs k = 1, 2, ... are reached through `part` nodes, which are views
 * and cost nothing. Nodes are created in topological order and never changed afterwards; rewrites
 * make a new graph. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_NODE_H
#define TD_OPS_NODE_H

#include "ops/phase.h"
#include "tandem/graph.h"

/* Memory order. Shapes stay logical (N, C, H, W); the layout says how the bytes lie. Only image
 * tensors (4-D) are ever NHWC, and only inside a program: users see plain row-major. */
typedef enum td_layout { TD_LAYOUT_PLAIN, TD_LAYOUT_NHWC, TD_LAYOUT_COUNT } td_layout;

typedef struct td_desc {
    td_dtype dtype;
    td_layout layout;
    td_shape shape;
} td_desc;

enum { TD_MAX_IN = 16, TD_MAX_OUT = 8 };

/* Where a node is to run: a stage of a pipeline, a device. 0 unless set, at most this. */
enum { TD_PLACE_MOST = 65535 };

typedef enum td_opcode {
#define TD_OP(ID, name) TD_OP_##ID,
#include "ops/ops.def"
#undef TD_OP
    TD_OP_COUNT
} td_opcode;

struct td_node {
    td_opcode op;
    int id;           /* index in its graph; inputs have smaller ids */
    const char *name; /* "block0/attn/qkv"; never NULL */
    int n_in, n_out;
    td_node **in;
    const td_desc *out; /* n_out of them; out[0] is "the node's" */
    const void *attr;   /* the operator's attribute struct (attr.h); NULL if it has none */
    const char
        *origin; /* of params and states: where the job has them, "job.yaml:9"; NULL: unknown */
    int place;
    td_run_phase phase; /* carried along by rewrites, final in a program (graph/phases.c) */
};

/* Add a node: runs the operator's infer rule, names the node after scope and operator. NULL and a
 * sticky error in g on failure, or when an input is NULL. `attr` is copied. */
td_node *td__node(td_graph *g, td_opcode op, const void *attr, td_node *const *in, int n_in);
#define TD__NODE(g, op, attr, ...)                          \
    td__node((g), (op), (attr), (td_node *[]){__VA_ARGS__}, \
             (int)(sizeof((td_node *[]){__VA_ARGS__}) / sizeof(td_node *)))

/* Output k of n as a node; k == 0 gives n itself. */
td_node *td__part(td_graph *g, td_node *n, int k);

/* Record the first error of g (formatted like printf); always returns NULL. For builders that check
 * more than infer can see. `call` is the public function's name. */
td_node *td__graph_fail(td_graph *g, td_status code, const char *call, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The place of the nodes that are made from now on; returns what it was. Wrong ones are an error of
 * the graph. */
int td__graph_set_place(td_graph *g, int place);

/* A fresh random stream number for ops such as dropout; same for the same order of calls. */
uint32_t td__graph_next_stream(td_graph *g);

/* After each training step, state `s` becomes (1 - weight) s + weight
 * mean-over-micro-batches(value). */
void td__graph_track(td_graph *g, td_node *state, td_node *value, double weight);

/* As td_batch_norm; sync: training takes the statistics of all micro-batches of a batch. */
typedef struct td__batch_norm_opts {
    double momentum, eps;
    bool sync;
} td__batch_norm_opts;
td_node *td__batch_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta,
                        td_node *running_mean, td_node *running_var, const td__batch_norm_opts *o);

int64_t td__desc_count(const td_desc *d); /* elements */
size_t td__desc_bytes(const td_desc *d);

#endif
