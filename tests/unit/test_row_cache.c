/* The cache of what is made per number of rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/row_cache.h"
#include "support/check.h"

static int find(td__row_cache *c, int64_t rows, bool want)
{
    bool found;
    int place = td__row_cache_find(c, rows, &found);
    CHECK(found == want, "%lld rows: found is %d", (long long)rows, found);
    return place;
}

TEST(every_number_has_a_place_until_there_are_too_many)
{
    td__row_cache c = {.clock = 0};
    bool taken[TD__ROW_PLACES] = {false};
    for (int r = 0; r < TD__ROW_PLACES; r++) { /* 0 rows are a number like any other */
        int place = find(&c, r, false);
        CHECK(!taken[place], "place %d is taken", place);
        taken[place] = true;
    }
    for (int r = 0; r < TD__ROW_PLACES; r++)
        CHECK_EQ_INT(find(&c, r, true), find(&c, r, true));
}

TEST(the_least_recently_used_gives_way)
{
    td__row_cache c = {.clock = 0};
    int place[TD__ROW_PLACES];
    for (int r = 0; r < TD__ROW_PLACES; r++)
        place[r] = find(&c, 10 + r, false);
    (void)find(&c, 10, true);
    CHECK_EQ_INT(find(&c, 99, false), place[1]);
    (void)find(&c, 10, true);
    CHECK_EQ_INT(find(&c, 11, false), place[2]);
}

TEST(what_was_forgotten_is_not_found)
{
    td__row_cache c = {.clock = 0};
    int place = find(&c, 5, false);
    (void)find(&c, 6, false);
    td__row_cache_forget(&c, place);
    CHECK_EQ_INT(find(&c, 7, false), place);
    (void)find(&c, 5, false);
    (void)find(&c, 6, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_has_a_place_until_there_are_too_many),
        cmocka_unit_test(the_least_recently_used_gives_way),
        cmocka_unit_test(what_was_forgotten_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
