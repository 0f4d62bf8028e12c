/* test_golden_ddp.c -- data parallel training of ours against PyTorch's DistributedDataParallel.
 *
 * A CNN with batch norm, 24 steps with SGD and with AdamW, from the same weights, with the same
 * rows on each of two ranks: every loss within 1e-5 of PyTorch's. A micro-batch is to us what a
 * rank is to DDP (whose batch norm sees a rank's rows alone), so with two micro-batches the numbers
 * are the same on one rank, on two and on three. tests/golden/ddp/make.py made the losses and
 * trains the same model; sizes and rates below repeat its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "support/check.h"
#include "support/golden.h"
#include "support/ranks.h"
#include "parallel/sync.h"

enum { ROWS = 16, MICRO_BATCHES = 2, STEPS = 24, BATCHES = 4, SIDE = 12, CLASSES = 10 };
static const double TOLERANCE = 1e-5;

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 3, SIDE, SIDE));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_nn_conv2d(g, "conv1", x, 8, 3, NULL);
    h = td_max_pool2d(g, td_relu(g, td_nn_batch_norm(g, "norm1", h, NULL)),
                      &(td_pool2d_opts){.size = {2, 2}});
    h = td_relu(g, td_nn_batch_norm(g, "norm2", td_nn_conv2d(g, "conv2", h, 16, 3, NULL), NULL));
    h = td_nn_linear(g, "fc", td_reshape(g, h, TD_SHAPE(rows, -1)), CLASSES, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, h, y, NULL),
                             .output = h,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static const struct {
    td_optim_opts optim;
    double lr;
} RUNS[] = {
    {{.name = "sgd", .momentum = 0.9, .weight_decay = 1e-3}, 0.05},
    {{.name = "adamw", .weight_decay = 0.01}, 0.004},
};

typedef struct golden_run {
    size_t k; /* of RUNS */
    double want[STEPS], worst;
} golden_run;

typedef struct parts {
    td__pool *pool;
    td__micro_batch_set *set;
    td_params *ps;
    td_optimizer *o;
    td__sync *sync;
} parts;

static td_status make_parts(size_t k, td_comm *comm, parts *p)
{
    static const td__dataset FIELDS = {
        .count = ROWS,
        .n_fields = 2,
        .fields = {{.name = "x", .dtype = TD_F32, .shape = {3, {3, SIDE, SIDE}}},
                   {.name = "y", .dtype = TD_I32, .classes = CLASSES}}};
    const td_program *program;
    TD_TRY(td__pool_create(1, &p->pool));
    td__micro_batch_set_opts so = {.model = {.build = build}, .pool = p->pool, .precision = TD_F32};
    TD_TRY(td__micro_batch_set_create(&so, &p->set));
    TD_TRY(td__micro_batch_program(p->set, ROWS / MICRO_BATCHES, &program, NULL));
    TD_TRY(td_params_create(program, 1, &p->ps));
    golden_params(p->ps);
    td__micro_batch_set_params(p->set, p->ps);
    TD_TRY(td__micro_batch_set_dataset(p->set, &FIELDS, ROWS / MICRO_BATCHES));
    TD_TRY(td_optimizer_create(&RUNS[k].optim, p->ps, &p->o));
    static const td__sync_config CONFIG = {0};
    td__sync_ctx x = {.config = &CONFIG,
                      .comm = comm,
                      .step = {.set = p->set,
                               .pool = p->pool,
                               .params = p->ps,
                               .optimizer = p->o,
                               .program = program,
                               .micro_batches = MICRO_BATCHES,
                               .accumulate = 1}};
    return td__sync_create(&x, &p->sync);
}

static void drop_parts(parts *p)
{
    td__sync_destroy(p->sync);
    td_optimizer_destroy(p->o);
    td__micro_batch_set_destroy(p->set);
    td_params_destroy(p->ps);
    td__pool_destroy(p->pool);
}

static td_status train(parts *p, double lr, double losses[STEPS])
{
    _Alignas(64) float x[ROWS * 3 * SIDE * SIDE];
    _Alignas(64) int32_t y[ROWS];
    td__batch batch = {.rows = ROWS, .here = {0, ROWS}, .field = {x, y}};

    for (int step = 0; step < STEPS; step++) {
        char name[] = {'x', (char)('0' + step % BATCHES), '\0'};
        golden_fill(name, 0, x, sizeof x / sizeof *x);
        name[0] = 'y';
        golden_fill(name, CLASSES, y, ROWS);
        td__step_result r;
        td__sync_place at = {.step = (uint64_t)step + 1};
        TD_TRY(td__sync_begin(p->sync, &at, 1, ROWS));
        TD_TRY(td__sync_batch(p->sync, &batch));
        TD_TRY(td__sync_end(p->sync, lr, (td__step_say){0}, &r));
        losses[step] = r.loss;
    }
    return TD_OK;
}

static void body(ranks_ctx *r)
{
    golden_run *u = r->arg;
    parts p = {0};
    double got[STEPS] = {0}, worst = 0;
    td_status st = make_parts(u->k, r->size > 1 ? r->comm : NULL, &p);
    if (!st)
        st = train(&p, RUNS[u->k].lr, got);
    drop_parts(&p);
    RANK_OK(r, st);
    for (int step = 0; step < STEPS; step++) {
        double d = fabs(got[step] - u->want[step]) / u->want[step];
        RANK_CHECK(r, d <= TOLERANCE, "%s, step %d: %.7f, DDP %.7f", RUNS[u->k].optim.name, step,
                   got[step], u->want[step]);
        worst = d > worst ? d : worst;
    }
    if (r->rank == 0)
        u->worst = worst;
}

TEST(losses_are_those_of_pytorchs_ddp)
{
    for (size_t k = 0; k < sizeof RUNS / sizeof *RUNS; k++)
        for (int n = 1; n <= 3; n++) {
            golden_run u = {.k = k};
            golden_losses("tests/golden/ddp/losses.safetensors", RUNS[k].optim.name, u.want, STEPS);
            CHECK(u.want[STEPS - 1] < u.want[0] / 2, "nothing was learned");
            ranks_run(n, NULL, body, &u);
            printf("%-6s %d ranks: largest deviation %.1e\n", RUNS[k].optim.name, n, u.worst);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_those_of_pytorchs_ddp)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
