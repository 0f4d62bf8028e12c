/* optim_model.c -- see optim_model.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/optim_model.h"

#include "base/rng.h"
#include "support/check.h"
#include "tandem/ops.h"

const int32_t OPTIM_IDS[2][OPTIM_N] = {{3, 1, 3, 7, 7, 7}, {3, 0, 0, 8, 1, 1}};

/* Two matrices, a vector and a scalar; no size is a multiple of a vector's width. */
static const td_shape SHAPES[] = {{2, {37, 11}}, {1, {5}}, {3, {3, 17, 101}}, {0, {0}}};

optim_model optim_model_create(void)
{
    optim_model m;
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *loss = NULL;
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        char w[8] = {'w', (char)('0' + i)}, x[8] = {'x', (char)('0' + i)};
        td_init init = {.kind = TD_INIT_NORMAL, .b = 1};
        td_node *y = td_mul(g, td_param(g, w, SHAPES[i], init), td_input(g, x, TD_F32, SHAPES[i]));
        td_node *sum = td_sum(g, y, NULL, 0, false);
        loss = loss ? td_add(g, loss, sum) : sum;
    }
    td_program_opts opts = {.backend = "ref"};
    CHECK_OK(td_program_create(g, loss, &opts, &m.program));
    CHECK_OK(td_params_create(m.program, 5, &m.params));
    CHECK_OK(td_runner_create(m.program, m.params, &m.runner));
    td_graph_destroy(g);
    return m;
}

void optim_model_destroy(optim_model *m)
{
    td_runner_destroy(m->runner);
    td_params_destroy(m->params);
    td_program_destroy(m->program);
}

/* New gradients for a step: normal numbers of different scale for each param. */
void optim_model_run(optim_model *m, int step)
{
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        char name[8] = {'x', (char)('0' + i)};
        td__rng_key key = {.seed = 99, .stream = (uint32_t)i, .step = (uint32_t)step};
        size_t nbytes;
        float *x = td_runner_input(m->runner, name, &nbytes);
        for (size_t k = 0; k < nbytes / sizeof *x; k++)
            x[k] = td__rng_normal(&key, k) * (i == 2 ? 0.01f : 1.0f);
    }
    CHECK_OK(td_runner_run(m->runner, (td_run_key){.step = (uint32_t)step}));
}

optim_model optim_table_create(void)
{
    optim_model m;
    td_graph *g;
    td_init init = {.kind = TD_INIT_NORMAL, .b = 1};
    CHECK_OK(td_graph_create(&g));
    td_node *table = td_param(g, "table", TD_SHAPE(OPTIM_V, OPTIM_D), init);
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(OPTIM_N));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(OPTIM_N, OPTIM_D));
    td_node *w = td_param(g, "w", TD_SHAPE(OPTIM_D), init);
    td_node *y = td_mul(g, td_mul(g, td_embedding(g, ids, table, true), x), w);
    td_program_opts opts = {.backend = "ref"};
    CHECK_OK(td_program_create(g, td_sum(g, y, NULL, 0, false), &opts, &m.program));
    CHECK_OK(td_params_create(m.program, 5, &m.params));
    CHECK_OK(td_runner_create(m.program, m.params, &m.runner));
    td_graph_destroy(g);
    return m;
}
