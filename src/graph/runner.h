/* runner.h -- being told of gradients while a run is under way.
 *
 * Gradients become final front to back (tandem/program.h, "Params"). Whoever wants to send them on
 * before backward ends is told after each step that makes more of the block final: "elements [0,
 * count) will not change any more in this run". Which steps these are is found once, when the
 * runner is made; a run that nobody watches does not look. Statistics of the states, which lie
 * behind the gradients, are final with the last call, whose count is the whole block. That comes
 * before the loss is looked at: the run may still fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_RUNNER_H
#define TD_GRAPH_RUNNER_H

#include "tandem/program.h"

/* On the thread that runs; rising counts. */
typedef void td__grads_final_fn(void *user, size_t count);
/* From the next run on; NULL: nobody. */
void td__runner_on_final(td_runner *r, td__grads_final_fn *fn, void *user);

/* Where the next runs put gradients and statistics: a block laid out as td_runner_grads(), which
 * then returns it, with zeros where nothing will be written; borrowed. NULL: the runner's own. */
void td__runner_set_grads(td_runner *r, float *block);

#endif
