/* cut.h -- a program cut into one program per place.
 *
 * The cut is made after all rewrites: a fused node is never taken apart, so that the pieces compute
 * what the whole computes, bit for bit. Every step of the program is a step of exactly one piece,
 * with the same kernel. A value that another place reads is an edge: an output of the piece that
 * makes it, an input of each that reads it. Pieces are phased (graph/phases.h), with the phases of
 * the whole, and are run by runners of their own on params that hold their names, those of the
 * whole among them.
 *
 *     FORWARD    in order of rising places    edges to higher ones
 *     BACKWARD   in order of falling places   edges to lower ones, and forward values to any
 *     WEIGHT     in order of falling places   likewise; a param that several places use has its
 *                                             gradients added at its own place
 *
 * Leaves are no edges: each piece has the inputs, constants and params that it reads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_CUT_H
#define TD_GRAPH_CUT_H

#include "ops/phase.h"
#include "tandem/program.h"

typedef struct td__edge {
    const char *name;    /* of the reader's input: td_runner_set_input */
    int from, to;        /* pieces; to > from: a forward edge */
    td_run_phase made;   /* after this phase of `from` it can be read there: td__runner_edge */
    td_run_phase needed; /* before this phase of `to` it must be set */
    size_t nbytes;
} td__edge;

/* Elements [begin, end) of the block of params and states of the whole program. */
typedef struct td__param_range {
    size_t begin, end;
} td__param_range;

typedef struct td__piece {
    int place;
    td_program *program;
    int *in, *out; /* indices of edges, rising */
    int n_in, n_out;
    td__param_range *params; /* whose gradients or statistics are made here; rising, not adjacent */
    int n_params;
    td__param_range *shared; /* that it reads, but which another piece updates */
    int n_shared;
    size_t activations; /* bytes: of one micro-batch under way, with the values received */
} td__piece;

typedef struct td__cut {
    td__piece *pieces; /* by rising place; places without steps have none */
    int n_pieces;
    td__edge *edges;
    int n_edges;
} td__cut;

/* p is phased and may be destroyed afterwards. TD_EINVAL, naming both nodes, if a value flows
 * against the order above. */
TD_NODISCARD td_status td__program_cut(const td_program *p, td__cut **out);
void td__cut_destroy(td__cut *c); /* NULL is allowed */

/* What people call a piece: its first and last layers that have params, "h.0.attn to h.3.mlp".
 * Returns buf. */
enum { TD__PIECE_NAME = 96 };
char *td__cut_name(const td__cut *c, int piece, char buf[TD__PIECE_NAME]);
/* The same with where the job has them: "h.0.attn to h.3.mlp, job.yaml:9 to 12". Returns buf. */
enum { TD__PIECE_PLACE = 196 };
char *td__cut_place(const td__cut *c, int piece, char buf[TD__PIECE_PLACE]);

/* The value of an edge that this runner's piece makes; NULL if it makes none of that number. */
const void *td__runner_edge(const td_runner *r, int edge, size_t *nbytes);

#endif
