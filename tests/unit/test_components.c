/* Updates that may run at the same time: against a search by hand on random touches. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "parallel/components.h"
#include "support/check.h"

enum { MOST = 60, ROWS = 200 };

static unsigned next(unsigned *seed)
{
    return *seed = *seed * 1103515245U + 12345U;
}

TEST(a_chain_is_one_component)
{
    td__components *c;
    int largest, n;
    CHECK_OK(td__components_create(5, 6, 2, &c));
    td__components_begin(c, 5); /* 0-1 by row 0, 1-3 by row 5; 2 and 4 alone */
    td__components_touch(c, 0, 0);
    td__components_touch(c, 1, 0);
    td__components_touch(c, 1, 5);
    td__components_touch(c, 2, 1);
    td__components_touch(c, 3, 5);
    CHECK_EQ_INT(td__components_deal(c, &largest), 3);
    CHECK_EQ_INT(largest, 3);
    const int *own = td__components_of(c, 0, &n);
    CHECK_EQ_INT(n, 3);
    CHECK_EQ_INT(own[0], 0);
    CHECK_EQ_INT(own[1], 1);
    CHECK_EQ_INT(own[2], 3);
    own = td__components_of(c, 1, &n);
    CHECK_EQ_INT(n, 2);
    CHECK_EQ_INT(own[0], 2);
    CHECK_EQ_INT(own[1], 4);
    td__components_begin(c, 0); /* nothing is left of the round before */
    CHECK_EQ_INT(td__components_deal(c, &largest), 0);
    CHECK_EQ_INT(largest, 0);
    td__components_destroy(c);
}

/* Names of components by spreading the lowest number until nothing changes. */
static void spread(bool touched[MOST][ROWS], int n, int *name)
{
    bool changed = true;
    for (int u = 0; u < n; u++)
        name[u] = u;
    while (changed) {
        changed = false;
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++)
                for (int r = 0; name[b] < name[a] && r < ROWS; r++)
                    if (touched[a][r] && touched[b][r]) {
                        name[a] = name[b];
                        changed = true;
                    }
    }
}

TEST(components_are_whole_and_in_order)
{
    static bool touched[MOST][ROWS];
    unsigned seed = 1;
    for (int threads = 1; threads <= 4; threads++) {
        td__components *c;
        CHECK_OK(td__components_create(MOST, ROWS, threads, &c));
        for (int round = 0; round < 30; round++) {
            int n = 1 + (int)(next(&seed) >> 16) % MOST, name[MOST], thread_of[MOST], roots = 0;
            int largest, members[MOST] = {0}, seen = 0;
            memset(touched, 0, sizeof touched);
            td__components_begin(c, n);
            for (int u = 0; u < n; u++)
                for (int k = 0; k < 3; k++) {
                    unsigned row = (next(&seed) >> 16) % ROWS;
                    touched[u][row] = true;
                    td__components_touch(c, u, row);
                }
            spread(touched, n, name);
            for (int u = 0; u < n; u++) {
                roots += name[u] == u;
                members[name[u]]++;
            }
            CHECK_EQ_INT(td__components_deal(c, &largest), roots);
            for (int t = 0; t < threads; t++) {
                int count;
                const int *own = td__components_of(c, t, &count);
                for (int i = 0; i < count; i++) {
                    CHECK(i == 0 || own[i - 1] < own[i], "thread %d is out of order", t);
                    thread_of[own[i]] = t;
                }
                seen += count;
            }
            CHECK_EQ_INT(seen, n);
            for (int u = 0; u < n; u++) {
                CHECK(thread_of[u] == thread_of[name[u]], "component %d is cut", name[u]);
                CHECK(members[u] <= largest, "component %d of %d, not %d", u, members[u], largest);
            }
        }
        td__components_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_one_component),
        cmocka_unit_test(components_are_whole_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
