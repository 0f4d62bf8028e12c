/* walk.h -- running a program step by step while somebody sees to it that params are there.
 *
 * Where ranks hold params in shards (parallel/zero.h), those that a step reads are brought before
 * it and given back after it; gradients are taken away as soon as they are final. Which step reads
 * which param and makes which gradient is known from the program alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_WALK_H
#define TD_GRAPH_WALK_H

#include "tandem/program.h"

/* Step `step` reads a param, or writes its gradient (a state: its statistic). */
typedef struct td__param_use {
    int step, param; /* param: index in td_params */
    bool grad;
} td__param_use;

/* All of them, in order of steps; the caller frees *out. */
TD_NODISCARD td_status td__program_uses(const td_program *p, const td_params *ps,
                                        td__param_use **out, int *n);
int td__program_steps(const td_program *p);
size_t td__program_packed_most(const td_program *p); /* bytes: of the step that packs most */

/* Before step `step`, and after the last one with their number. */
typedef td_status td__walk_fn(void *user, int step);
/* As td_runner_run. pack: weights are put into the kernels' formats step by step, right before they
 * are used, all in the same memory; else all at once, as usual. A loss that is not finite is not
 * looked into. */
TD_NODISCARD td_status td__runner_walk(td_runner *r, td_run_key key, bool pack, td__walk_fn *fn,
                                       void *user);
/* Parts of its gradients' memory will be given back: let it be made of small pages. */
void td__runner_thin(td_runner *r);
/* Elements [begin, begin + count) of its own gradients have been read. */
void td__runner_discard(td_runner *r, size_t begin, size_t count);

/* The first values of param i (states included), as td_params_create would set them. */
TD_NODISCARD td_status td__params_fill(td_params *ps, const td_program *p, int i, uint64_t seed);

#endif
