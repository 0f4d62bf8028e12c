/* test_ps_map.c -- shards of a parameter server: whole params, every element once, shares as near
 * to equal as the params allow; and parts of the data (parts.h). */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <string.h>

#include "graph/params.h"
#include "ps/parts.h"
#include "ps/shard_map.h"
#include "support/check.h"
#include "tandem/tandem.h"

enum { MOST = 8 };

/* Params of these sizes. */
static void check(const int64_t *sizes, int n, int servers, const size_t *want)
{
    td_graph *g;
    td_program *program;
    td_params *ps;
    td__ps_map m;
    td_node *loss = NULL;

    CHECK_OK(td_graph_create(&g));
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        td_node *p = td_param(g, name, TD_SHAPE(sizes[i]), (td_init){.kind = TD_INIT_ONES});
        td_node *sum = td_sum(g, td_mul(g, p, p), NULL, 0, false);
        loss = loss ? td_add(g, loss, sum) : sum;
    }
    CHECK_OK(td_program_create(g, loss, NULL, &program));
    CHECK_OK(td_params_create(program, 1, &ps));
    td_graph_destroy(g);
    if (n < servers) {
        CHECK_STATUS(td__ps_map_init(&m, ps, servers), TD_EINVAL);
    } else {
        CHECK_OK(td__ps_map_init(&m, ps, servers));
        size_t at = 0;
        for (int s = 0; s < servers; s++) {
            int whole = 0;
            assert_int_equal(m.at[s].begin, at);
            at = m.at[s].end;
            for (int i = 0; i < n; i++) {
                td_param_info info = td_params_info(ps, i);
                bool begins = info.offset >= m.at[s].begin && info.offset < at;
                bool ends =
                    info.offset + info.count > m.at[s].begin && info.offset + info.count <= at;
                assert_int_equal(begins, ends); /* nothing is cut */
                whole += begins;
            }
            assert_true(whole > 0);
            if (want)
                assert_int_equal(td__ps_map_count(&m, s), want[s]);
        }
        assert_int_equal(at, td__params_total(ps));
    }
    td__ps_map_fini(&m);
    td_params_destroy(ps);
    td_program_destroy(program);
}

static void test_shares(void **state)
{
    (void)state;
    const int64_t even[] = {64, 64, 64, 64}, one[] = {16, 16, 4096, 16};
    check(even, 4, 1, (const size_t[]){256});
    check(even, 4, 2, (const size_t[]){128, 128});
    check(even, 4, 4, (const size_t[]){64, 64, 64, 64});
    check(even, 4, 3, NULL);
    for (int servers = 1; servers <= 4; servers++)
        check(one, 4, servers, NULL);
    check(one, 4, 5, NULL);
}

static void test_any(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 60; round++) {
        int64_t sizes[MOST];
        int n = 1 + round % MOST;
        for (int i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            sizes[i] = 1 + (int64_t)(seed >> 16) % (i % 2 ? 9 : 999);
        }
        for (int servers = 1; servers <= n + 1; servers++)
            check(sizes, n, servers, NULL);
    }
}

/* Steps of an epoch by the sizes of parts; numbers for others than the workers that are there are
 * refused, and so are those that give nobody anything. */
TEST(parts_are_as_large_as_weights_say)
{
    static const int64_t WEIGHTS[] = {1, 3, 0};
    td__ps_part part[8];
    int got[3] = {0};
    CHECK_OK(td__ps_parts_fill(3, WEIGHTS, 3, 8, part));
    for (int k = 0; k < 8; k++)
        CHECK_EQ_INT(part[k].index, got[part[k].worker]++);
    CHECK(got[0] == 2 && got[1] == 6, "%d, %d and %d steps", got[0], got[1], got[2]);
    CHECK_OK(td__ps_parts_fill(4, NULL, 0, 8, part));
    CHECK_EQ_INT(td__ps_parts_fill(4, WEIGHTS, 3, 8, part), TD_EINVAL);
    CHECK_EQ_INT(td__ps_parts_fill(1, WEIGHTS + 2, 1, 8, part), TD_EINVAL);
    CHECK(strstr(td_last_error(), "add up to 0"), "%s", td_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_any),
        cmocka_unit_test(parts_are_as_large_as_weights_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
