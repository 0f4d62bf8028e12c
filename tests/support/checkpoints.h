/* checkpoints.h -- a small model whose numbers are a function of the step, to be saved, loaded and
 * told apart: for tests of checkpoints. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_CHECKPOINTS_H
#define TD_TESTS_SUPPORT_CHECKPOINTS_H

#include "support/optim_model.h"
#include "checkpoint/checkpoint.h"

typedef struct saved_model {
    optim_model m;
    td_optimizer *o;
} saved_model;

saved_model saved_model_create(void);
void saved_model_destroy(saved_model *s);
/* Params, optimizer state and what goes with them, after step `step` of run `variant`. */
td__train_state saved_model_at(saved_model *s, uint64_t step, int variant);
/* Do params, optimizer and state say exactly that? */
bool saved_model_is(saved_model *s, const td__train_state *state, uint64_t step, int variant);
/* Save one checkpoint and wait for it. */
td_status save_checkpoint(const char *dir, int keep, uint64_t step, int variant, bool best);
/* The newest whole checkpoint of dir, loaded and compared: its step. Fails the test if none loads,
 * or if it is not what some variant below `variants` wrote. */
uint64_t load_checkpoint(const char *dir, int variants, int *variant);

#endif
