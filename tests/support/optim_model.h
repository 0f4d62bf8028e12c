/* optim_model.h -- models whose gradients a test chooses, for the tests of optimizers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_OPTIM_MODEL_H
#define TD_TESTS_SUPPORT_OPTIM_MODEL_H

#include "tandem/program.h"

typedef struct optim_model {
    td_program *program;
    td_params *params;
    td_runner *runner;
} optim_model;

/* loss = sum over params of sum(w * x) with x an input: the gradient of w is what is put into x.
 * The params are two matrices, a vector and a scalar. */
enum { OPTIM_PARAMS = 4 };
optim_model optim_model_create(void);
void optim_model_destroy(optim_model *m);
/* Run with new gradients: normal numbers, a function of step, of different scale for each param. */
void optim_model_run(optim_model *m, int step);

/* loss = sum(table[ids] * x * w): the table (OPTIM_V, OPTIM_D) has a row-sparse gradient. Inputs
 * ids (OPTIM_N) and x (OPTIM_N, OPTIM_D). */
enum { OPTIM_V = 9, OPTIM_D = 5, OPTIM_N = 6 };
extern const int32_t OPTIM_IDS[2][OPTIM_N];
optim_model optim_table_create(void);

#endif
