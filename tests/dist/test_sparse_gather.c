/* Row-sparse gradients of several ranks: what is sent is as long as the longest list of the step,
 * not as the longest there ever was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/sparse_gather.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/tandem.h"

enum { RANKS = 3, WIDTH = 12, MOST = 40 };

static td_program *sparse_program(void)
{
    td_graph *g;
    td_program *p;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(2, 64));
    td_node *h = td_nn_embedding(g, "table", x, 50, WIDTH, &(td_nn_embedding_opts){.sparse = true});
    td_node *loss = td_mean(g, td_square(g, h), NULL, 0, false);
    CHECK_OK(td_program_create(g, loss, &(td_program_opts){.backend = "null"}, &p));
    td_graph_destroy(g);
    return p;
}

/* Rank r has rows r, r + 1, ... r + n - 1, all values r + 1. */
static void gather(ranks_ctx *r, td__grad_pool *pool, td__sparse_gather *s, int64_t n)
{
    td__partial one[1];
    td__grad_stack local = TD__GRAD_STACK_IN(one);
    int32_t rows[MOST];
    float values[MOST * WIDTH];
    for (int64_t i = 0; i < n; i++)
        rows[i] = (int32_t)(r->rank + i);
    for (int64_t i = 0; i < n * WIDTH; i++)
        values[i] = (float)(r->rank + 1);
    local.n = 1;
    local.at[0] = (td__partial){.tree = {r->rank, 0}, .weight = 1};
    RANK_OK(r, td__grad_hold(pool, &local.at[0]));
    td__grad_set_rows(pool, &local.at[0], 0, n, rows, values);
    RANK_OK(r, td__sparse_gather_run(s, &local, RANKS, (td__work_partition){.size = RANKS}));
    td_sparse_grad sum = td__sparse_gather_sum(s, 0);
    RANK_CHECK(r, sum.n_rows == n + RANKS - 1, "%lld rows", (long long)sum.n_rows);
    for (int64_t i = 0; i < sum.n_rows; i++) {
        float want = 0;
        for (int k = 0; k < RANKS; k++)
            want += i >= k && i < k + n ? (float)(k + 1) : 0;
        RANK_CHECK(r, sum.rows[i] == i && sum.values[i * WIDTH] == want, "row %lld: %g, not %g",
                   (long long)i, (double)sum.values[i * WIDTH], (double)want);
    }
    td__sparse_gather_clear(s);
    td__grad_clear(pool, &local);
}

static void body(ranks_ctx *r)
{
    static const int64_t ROWS[] = {MOST, 2, MOST / 2, 1};
    td_program *p = sparse_program();
    td_params *ps;
    td__grad_pool *pool;
    td__sparse_gather *s;
    RANK_OK(r, td_params_create(p, 1, &ps));
    RANK_OK(r, td__grad_pool_create(p, ps, RANKS, &pool));
    RANK_OK(r, td__sparse_gather_create(r->comm, pool, 1, &s));
    for (int i = 0; i < 4; i++) {
        gather(r, pool, s, ROWS[i]);
        RANK_CHECK(r, td__sparse_gather_words(s) == (size_t)ROWS[i] * (1 + WIDTH),
                   "%zu words for %lld rows", td__sparse_gather_words(s), (long long)ROWS[i]);
    }
    td__sparse_gather_destroy(s);
    td__grad_pool_destroy(pool);
    td_params_destroy(ps);
    td_program_destroy(p);
}

TEST(messages_are_as_long_as_the_lists)
{
    ranks_run(RANKS, NULL, body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_are_as_long_as_the_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
