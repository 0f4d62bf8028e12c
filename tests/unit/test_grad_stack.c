/* Adding up gradients needs little of a thread's stack, however many micro-batches there are: a
 * program may run it on threads of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "parallel/rank_tree.h"
#include "parallel/zero.h"
#include "support/check.h"
#include "support/sanitized.h"
#include "tandem/tandem.h"

enum { STACK = SANITIZED ? 192 << 10 : 64 << 10, MICRO_BATCHES = 4096 };

typedef struct sums {
    td_params *params;
    td__grad_pool *pool;
    td_status st;
    int whole, range, left, adds;
    size_t nbytes;
} sums;

static td_status add_up(sums *x)
{
    td__partial at[TD__GRAD_RANGE], leaf;
    td__grad_stack s = TD__GRAD_STACK_IN(at);
    td__rank_tree tree;
    td__ownership map;

    x->whole = td__grad_blocks_needed(x->pool, 0, MICRO_BATCHES, 1);
    x->range = td__grad_blocks_needed(x->pool, 1, MICRO_BATCHES - 1, 0);
    for (int i = 1; i < MICRO_BATCHES - 1; i++) { /* micro-batches without rows */
        td_status st = td__grad_bind(x->pool, &s, i, NULL, 1, &leaf);
        if (st)
            return st;
        td__grad_push(x->pool, &s, &leaf, NULL);
    }
    x->left = s.n;
    td_status st = td__rank_tree_init(&tree, (td__work_partition){.size = 3}, MICRO_BATCHES, 1);
    bool changed;
    if (!st)
        st = td__rank_tree_plan(&tree, 1, MICRO_BATCHES, &changed);
    x->adds = st ? 0 : tree.n_adds;
    td__rank_tree_fini(&tree);
    if (!st)
        st = td__ownership_init(&map, x->params, 2, 0);
    if (st)
        return st;
    x->nbytes = td__zero_nbytes(&map, &(td__zero_case){2, MICRO_BATCHES, 1, false, false});
    td__ownership_fini(&map);
    return TD_OK;
}

static void *on_thread(void *user)
{
    sums *x = user;
    x->st = add_up(x);
    return NULL;
}

static td_program *make_program(void)
{
    td_graph *g;
    td_program *p;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2, 3));
    td_node *loss = td_mean(g, td_square(g, td_nn_linear(g, "one", x, 4, NULL)), NULL, 0, false);
    CHECK_OK(td_program_create(g, loss, &(td_program_opts){.backend = "null"}, &p));
    td_graph_destroy(g);
    return p;
}

TEST(sums_fit_a_small_stack)
{
    td_program *p = make_program();
    sums x = {.st = TD_EINVAL};
    pthread_attr_t small;
    pthread_t thread;
    CHECK_OK(td_params_create(p, 1, &x.params));
    CHECK_OK(td__grad_pool_create(p, x.params, MICRO_BATCHES, &x.pool));
    CHECK_EQ_INT(pthread_attr_init(&small), 0);
    CHECK_EQ_INT(pthread_attr_setstacksize(&small, STACK), 0);
    CHECK_EQ_INT(pthread_create(&thread, &small, on_thread, &x), 0);
    CHECK_EQ_INT(pthread_join(thread, NULL), 0);
    CHECK_OK(x.st);
    CHECK_EQ_INT(x.whole, 12); /* a partial per level but the last, which is the runner's */
    CHECK_EQ_INT(x.range, 22); /* on both sides */
    CHECK_EQ_INT(x.left, 22);
    CHECK(x.adds > 1 && x.nbytes > 0, "%d additions, %zu bytes", x.adds, x.nbytes);
    td__grad_pool_destroy(x.pool);
    td_params_destroy(x.params);
    td_program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_fit_a_small_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
