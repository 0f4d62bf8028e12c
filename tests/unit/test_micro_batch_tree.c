/* The micro-batch tree against its definition by recursion, and sums of gradients in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/micro_batch_tree.h"

#include "support/check.h"

TEST(default_micro_batches)
{
    static const struct {
        int64_t batch;
        int micro_batches;
    } CASES[] = {{1, 1},    {2, 2},     {3, 2},     {4, 4},     {7, 4},
                 {16, 4},   {63, 4},    {64, 4},    {127, 4},   {128, 8},
                 {256, 16}, {1000, 32}, {1024, 64}, {4096, 64}, {100000000000, 64}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        CHECK(td__micro_batches_default(CASES[i].batch) == CASES[i].micro_batches,
              "batch %lld: %d micro-batches", (long long)CASES[i].batch,
              td__micro_batches_default(CASES[i].batch));
}

TEST(micro_batches_cover_the_batch)
{
    for (int64_t rows = 0; rows < 40; rows++)
        for (int v = 1; v < 20; v++) {
            int64_t least = rows, most = 0;
            CHECK_EQ_INT(td__micro_batch_begin(rows, v, 0), 0);
            CHECK_EQ_INT(td__micro_batch_begin(rows, v, v), rows);
            for (int s = 0; s < v; s++) {
                int64_t n =
                    td__micro_batch_begin(rows, v, s + 1) - td__micro_batch_begin(rows, v, s);
                least = n < least ? n : least;
                most = n > most ? n : most;
            }
            CHECK(most - least <= 1, "%lld rows, %d micro-batches: from %lld to %lld rows",
                  (long long)rows, v, (long long)least, (long long)most);
        }
}

/* Is [begin, end) the range of a node of the tree over [lo, lo + size) cut off at v? */
static bool is_node(int v, int lo, int size, int begin, int end)
{
    int hi = lo + size < v ? lo + size : v;
    if (lo >= v || end <= lo || begin >= hi)
        return false;
    if (lo == begin && hi == end)
        return true;
    return size > 1 && (is_node(v, lo, size / 2, begin, end) ||
                        is_node(v, lo + size / 2, size / 2, begin, end));
}

TEST(sub_trees_of_ranges)
{
    for (int v = 1; v <= 33; v++)
        for (int begin = 0; begin < v; begin++)
            for (int end = begin; end <= v; end++) {
                td__subtree out[64];
                int n = td__micro_batch_subtrees(v, begin, end, out), at = begin;
                for (int i = 0; i < n; i++) {
                    int stop = out[i].begin + (1 << out[i].level);
                    stop = stop < v ? stop : v;
                    CHECK_EQ_INT(out[i].begin, at);
                    CHECK(is_node(v, 0, 64, at, stop), "[%d, %d) of %d is no sub-tree", at, stop,
                          v);
                    at = stop;
                }
                CHECK_EQ_INT(at, end);
                CHECK(n <= 12, "%d sub-trees", n);
                if (begin == 0 && end == v)
                    CHECK_EQ_INT(n, 1);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_micro_batches),
        cmocka_unit_test(micro_batches_cover_the_batch),
        cmocka_unit_test(sub_trees_of_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
