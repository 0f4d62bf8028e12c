/* Row-sparse gradients through whole training programs: a sparse table learns what a dense one
 * does, rows that were not looked up do not move, and misuse is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/check.h"
#include "support/nets.h"
#include "tandem/tandem.h"

enum { VOCAB = 50, WIDTH = 6, IDS = 12, BAGS = 4, CLASSES = 3, STEPS = 8 };

static const int32_t TOKENS[IDS] = {3, 7, 3, -1, 9, 49, 0, 7, 7, 20, 21, 3};
static const int32_t STARTS[BAGS] = {0, 4, 4, 9}; /* the second bag is empty */
static const int32_t LABELS[BAGS] = {0, 1, 2, 1};

static trained start(bool sparse, bool bag, const char *optimizer)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(IDS));
    td_node *table =
        td_param(g, "table", TD_SHAPE(VOCAB, WIDTH), (td_init){.kind = TD_INIT_NORMAL, .b = 1});
    td_node *x;
    if (bag) {
        td_node *offsets = td_input(g, "offsets", TD_I32, TD_SHAPE(BAGS));
        x = td_embedding_bag(g, ids, offsets, table, TD_BAG_MEAN, sparse);
    } else {
        x = td_slice(g, td_embedding(g, ids, table, sparse), 0, 0, BAGS, 1);
    }
    td_node *logits = td_nn_linear(g, "fc", x, CLASSES, NULL);
    td_node *loss =
        td_softmax_cross_entropy(g, logits, td_input(g, "y", TD_I32, TD_SHAPE(BAGS)), NULL);
    trained t = trained_start(g, loss, NULL, 5, optimizer);
    CHECK_OK(td_runner_set_input(t.r, "ids", TOKENS, sizeof TOKENS));
    if (bag)
        CHECK_OK(td_runner_set_input(t.r, "offsets", STARTS, sizeof STARTS));
    CHECK_OK(td_runner_set_input(t.r, "y", LABELS, sizeof LABELS));
    return t;
}

static const float *table_of(trained *t)
{
    return td_params_block(t->ps, NULL) +
           td_params_info(t->ps, td_params_find(t->ps, "table")).offset;
}

static float train(trained *t)
{
    for (unsigned s = 0; s < STEPS; s++) {
        CHECK_OK(td_runner_run(t->r, (td_run_key){.step = s}));
        CHECK_OK(td_optimizer_step(t->o, t->r, 0.5));
    }
    return td_runner_loss(t->r);
}

TEST(sparse_learns_what_dense_learns)
{
    static const char *const EXACT[] = {"sgd", "adagrad"};
    for (int bag = 0; bag < 2; bag++)
        for (int k = 0; k < 2; k++) {
            trained a = start(false, bag, EXACT[k]), b = start(true, bag, EXACT[k]);
            CHECK_EQ_INT(td_runner_sparse_count(a.r), 0);
            CHECK_EQ_INT(td_runner_sparse_count(b.r), 1);
            float la = train(&a), lb = train(&b);
            CHECK(fabsf(la - lb) < 1e-5f, "%s: losses %g and %g", EXACT[k], (double)la, (double)lb);
            for (int i = 0; i < VOCAB * WIDTH; i++)
                CHECK(fabsf(table_of(&a)[i] - table_of(&b)[i]) < 1e-5f, "%s: element %d", EXACT[k],
                      i);
            trained_stop(&a);
            trained_stop(&b);
        }
}

TEST(rows_are_sorted_unique_and_only_they_move)
{
    trained t = start(true, true, "adamw");
    float before[VOCAB * WIDTH];
    memcpy(before, table_of(&t), sizeof before);
    CHECK_OK(td_runner_run(t.r, (td_run_key){0}));
    td_sparse_grad s = td_runner_sparse_grad(t.r, 0);
    static const int32_t ROWS[] = {0, 3, 7, 9, 20, 21, 49};
    CHECK_EQ_INT(s.n_rows, 7);
    CHECK_EQ_INT(s.width, WIDTH);
    for (int i = 0; i < 7; i++)
        CHECK_EQ_INT(s.rows[i], ROWS[i]);
    CHECK_OK(td_optimizer_step(t.o, t.r, 0.1));
    for (int row = 0, k = 0; row < VOCAB; row++) {
        bool looked_up = k < 7 && ROWS[k] == row;
        k += looked_up;
        bool moved =
            memcmp(before + row * WIDTH, table_of(&t) + row * WIDTH, WIDTH * sizeof(float)) != 0;
        CHECK(moved == looked_up, "row %d %s", row, moved ? "moved" : "did not move");
    }
    trained_stop(&t);
}

TEST(a_table_is_sparse_in_all_its_uses_or_in_none)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(IDS));
    td_node *table = td_param(g, "table", TD_SHAPE(VOCAB, WIDTH), (td_init){.kind = TD_INIT_ONES});
    td_node *x = td_embedding(g, ids, table, true);
    td_node *logits = td_linear(g, x, table, NULL, TD_ACT_NONE); /* tied: a dense use */
    td_node *loss = td_mean(g, logits, NULL, 0, false);
    td_program *p;
    CHECK_STATUS(td_program_create(g, loss, NULL, &p), TD_ENOTSUP);
    CHECK(strstr(td_last_error(), "table") && strstr(td_last_error(), "sparse"), "%s",
          td_last_error());
    td_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_learns_what_dense_learns),
        cmocka_unit_test(rows_are_sorted_unique_and_only_they_move),
        cmocka_unit_test(a_table_is_sparse_in_all_its_uses_or_in_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
