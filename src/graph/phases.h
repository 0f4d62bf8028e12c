/* phases.h -- programs that run phase by phase: forward, backward of activations, backward of
 * params.
 *
 * A pipeline sends the gradients of its activations on before it makes those of its params, so that
 * the stage below need not wait for them (zero-bubble schedules). A program made by
 * td__program_create_phased() has its steps in that order; anything else about it is as
 * td_program_create() makes it: the same nodes, kernels and order of params, the same bits.
 *
 * Memory    A runner has the activations of one micro-batch. From its FORWARD to its WEIGHT phase
 *           no other run may start on it, but other runners (td__runner_create_sibling) may run in
 *           between: as many micro-batches are under way as there are runners. Gradients of params
 *           are written in BACKWARD as well as in WEIGHT (some operators make both at once), so
 *           micro-batches under way need a gradient block each (td__runner_set_grads). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_PHASES_H
#define TD_GRAPH_PHASES_H

#include "ops/phase.h"
#include "tandem/program.h"

/* As td_program_create, with the steps in order of phases. */
TD_NODISCARD td_status td__program_create_phased(const td_graph *g, td_node *loss,
                                                 const td_program_opts *opts, td_program **out);

/* The phase's steps are those from where the one before ends up to here. Phased programs only. */
int td__program_phase_end(const td_program *p, td_run_phase phase);

const char *td__run_phase_name(td_run_phase phase); /* "forward" */

/* One phase of the run that FORWARD begins; they come in order, with the same key, and together are
 * td_runner_run(). TD_EINVAL if the order is another one, if the program is not phased, and after
 * FORWARD for a loss that is not finite. */
TD_NODISCARD td_status td__runner_run_phase(td_runner *r, td_run_phase phase, td_run_key key);

/* An input was set after FORWARD began, for a later phase: kernels are to see it. Nothing to do
 * where they read the memory that it was set in. */
void td__runner_input_set(td_runner *r, const char *name);

/* Decide the phase of every node, after all rewrites: a node runs in the earliest phase that needs
 * it. Loss, outputs and statistics are needed in FORWARD, gradients of inputs in BACKWARD; what
 * autodiff marked stays where it is, unless a reader is earlier. */
void td__settle_phases(td_graph *g);

/* Sort the nodes of a settled graph by phase, in place; within a phase their order stays. */
TD_NODISCARD td_status td__order_by_phase(td_graph *g);

#endif
