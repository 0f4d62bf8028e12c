/* tensor.h -- tensor parallel programs: products in pieces.
 *
 * The rewrite (rewrite_tensor.c) cuts the products of a forward graph into `pieces`. A value is
 * whole, the same on all ranks, or cut along an axis, each rank with its pieces:
 *
 *     linear, conv2d of a whole x        cut by outputs: a rank multiplies by its rows of the
 *                                        weight, and has its columns of the result
 *     elementwise, dropout, pooling,     piece by piece
 *     slices and shapes, attention
 *     linear, conv2d of a cut x          cut by inputs: partial sums, added up: whole again
 *     embedding                          rows of the table, looked up where they are: a sum
 *     cross entropy of cut logits        three numbers of each row and piece (ops/op_xent_piece.c)
 *
 * With `sequence` (parallel.sequence) what lies between products is cut by rows
 * (rewrite_tensor_rows.c): a sum over pieces becomes a reduce-scatter, norms, dropout, biases and
 * residual sums run on the rows of each piece, and are gathered for the next product.
 *
 * Anything else takes whole values; a cut one is joined first. Autodiff then makes the conjugate of
 * each: the gradient of a whole x that pieces read is a sum over pieces, and so on.
 *
 * Bits      All is computed by the piece and added up in one tree over pieces, so the number of
 *           ranks, if it divides `pieces` and both are powers of two, decides nothing.
 * Params    Programs have whole params; a rank reads its part of those that are cut, and of their
 *           gradients makes that part. Where they are packed (ops/op_pieces.h) it touches no other
 *           memory, so that a rank need not hold what it has no pieces of. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_TENSOR_H
#define TD_GRAPH_TENSOR_H

#include "ops/op_pieces.h"
#include "ops/phase.h"
#include "tandem/coll.h"
#include "tandem/program.h"

enum { TD__MOST_PIECES = 8 };

typedef struct td__tensor_cut {
    int pieces; /* 0 or 1: nothing is cut */
    int ranks, rank;
    bool packed;         /* params that are cut lie piece by piece (graph/params.h) */
    bool sequence;       /* norms and sums between products are cut by rows */
    bool rows_wanted;    /* and it is an error if there are none */
    const td_params *of; /* of a program with whole products: whose params may lie so */
} td__tensor_cut;

/* A param that is cut: pieces of `whole`, in all ranks as on this one. */
typedef struct td__param_cut {
    const char *name; /* of the param */
    td_attr_pieces pieces;
} td__param_cut;

/* As td_program_create, with products in pieces. TD_EINVAL, with what would work, if they do not
 * divide the heads of an attention, or nothing can be cut. phased: graph/phases.h. */
TD_NODISCARD td_status td__program_create_tensor(const td_graph *g, td_node *loss,
                                                 const td_program_opts *opts, bool phased,
                                                 const td__tensor_cut *cut, td_program **out);
/* The i-th param that is cut, in the order of nodes; false: there are fewer. */
bool td__program_param_cut(const td_program *p, int i, td__param_cut *out);

/* Fill in the pieces that other ranks of `comm` have of a tensor of elements of e bytes, of which
 * `how` says what this rank has. The staging is kept, and the caller's to free (td__free). */
typedef struct td__staging {
    void *at;
    size_t nbytes;
} td__staging;
TD_NODISCARD td_status td__pieces_gather(td_comm *comm, const td_attr_pieces *how, void *whole,
                                         size_t e, td__staging *staging);

/* Bytes of the values that a run of the phase exchanges with the ranks of other pieces. */
uint64_t td__program_meets(const td_program *p, td_run_phase phase);
/* Who has the other pieces; borrowed while the runner lives. Without it a program of several ranks
 * fails. */
void td__runner_set_comm(td_runner *r, td_comm *comm);

#endif
