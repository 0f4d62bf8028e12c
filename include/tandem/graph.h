/* tandem/graph.h -- describing a computation: a graph of nodes, built once, run many times.
 *
 * Errors    Functions that add a node return it, so that calls nest: td_relu(g, td_linear(...)).
 *           On failure they return NULL and the graph keeps the first error, which names the call,
 *           the node and the shapes; a NULL given as an input gives NULL again without a new
 *           error. Check once, with td_graph_status(); td_program_create() checks too.
 * Memory    A graph owns its nodes, names and constants; they die with it.
 * Threads   A graph is used by one thread at a time. Graphs are independent of one another. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_H
#define TD_GRAPH_H

#include <stdio.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_graph td_graph;
typedef struct td_node td_node;

TD_NODISCARD TD_API td_status td_graph_create(td_graph **out);
TD_API void td_graph_destroy(td_graph *g); /* NULL is allowed */

/* The first error met while building, and its one-line text ("" when there is none). */
TD_API td_status td_graph_status(const td_graph *g);
TD_API const char *td_graph_error(const td_graph *g);

/* Names of nodes made between push and pop are prefixed with "name/". Scopes nest. */
TD_API void td_graph_push_scope(td_graph *g, const char *name);
TD_API void td_graph_pop_scope(td_graph *g);

/* Leaves. Names must be unique among the leaves of a graph.
 * input: given anew for every run. param: trained, f32. state: kept between steps but not trained,
 * f32 (running averages). constant: `data` is copied; NULL means zeros. */
TD_API td_node *td_input(td_graph *g, const char *name, td_dtype dtype, td_shape shape);
TD_API td_node *td_constant(td_graph *g, td_dtype dtype, td_shape shape, const void *data);

/* How a param's first values are made; formulas and names as in PyTorch's torch.nn.init. */
typedef enum td_init_kind {
    TD_INIT_ZEROS,
    TD_INIT_ONES,
    TD_INIT_CONSTANT,        /* a */
    TD_INIT_UNIFORM,         /* [a, b) */
    TD_INIT_NORMAL,          /* mean a, standard deviation b */
    TD_INIT_TRUNC_NORMAL,    /* mean a, standard deviation b, cut at 2 deviations */
    TD_INIT_XAVIER_UNIFORM,  /* gain a (0 means 1) */
    TD_INIT_XAVIER_NORMAL,   /* gain a (0 means 1) */
    TD_INIT_KAIMING_UNIFORM, /* gain a (0 means sqrt 2), over fan_in, or fan_out if that is set */
    TD_INIT_KAIMING_NORMAL,  /* likewise */
    TD_INIT_ORTHOGONAL,      /* gain a (0 means 1) */
    TD_INIT_KIND_COUNT
} td_init_kind;

typedef struct td_init {
    td_init_kind kind;
    double a, b;
    bool fan_out;
} td_init;

TD_API td_node *td_param(td_graph *g, const char *name, td_shape shape, td_init init);
TD_API td_node *td_state(td_graph *g, const char *name, td_shape shape, td_init init);

/* Give a node a name of its own (within the current scope); returns the node. */
TD_API td_node *td_named(td_graph *g, td_node *n, const char *name);

/* Looking at nodes. */
TD_API const char *td_node_name(const td_node *n);
TD_API td_dtype td_node_dtype(const td_node *n);
TD_API td_shape td_node_shape(const td_node *n);
TD_API int td_graph_node_count(const td_graph *g);
TD_API td_node *td_graph_find(const td_graph *g, const char *name); /* NULL if there is none */

/* Check every rule a graph must obey (order, arity, shapes as inferred, unique leaf names). */
TD_NODISCARD TD_API td_status td_graph_verify(const td_graph *g);

/* One line per node; Graphviz. */
TD_NODISCARD TD_API td_status td_graph_write_text(const td_graph *g, FILE *to);
TD_NODISCARD TD_API td_status td_graph_write_dot(const td_graph *g, FILE *to);

#ifdef __cplusplus
}
#endif
#endif
