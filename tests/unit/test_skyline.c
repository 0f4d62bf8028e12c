/* The skyline of a block of memory against the definition, step by step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "graph/skyline.h"
#include "support/check.h"

enum { STEPS = 37, CASES = 40, ADDS = 60 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static size_t highest(const size_t *of, int first, int last)
{
    size_t most = 0;
    for (int t = first; t <= last; t++)
        most = of[t] > most ? of[t] : most;
    return most;
}

TEST(full_and_top_are_what_was_added)
{
    uint64_t state = 7;
    for (int c = 0; c < CASES; c++) {
        size_t full[STEPS] = {0}, top[STEPS] = {0};
        td__skyline *s = td__skyline_create(STEPS);
        CHECK(s, "no memory");
        for (int i = 0; i < ADDS; i++) {
            int a = (int)draw(&state, STEPS), b = (int)draw(&state, STEPS);
            int first = a < b ? a : b, last = a < b ? b : a;
            CHECK_EQ_INT(td__skyline_full(s, first, last), highest(full, first, last));
            CHECK_EQ_INT(td__skyline_top(s, first, last), highest(top, first, last));
            size_t begin = highest(full, first, last) + draw(&state, 3) % 2 * 64;
            size_t end = begin + 64 * (1 + draw(&state, 4));
            td__skyline_add(s, first, last, begin, end);
            for (int t = first; t <= last; t++) {
                full[t] = full[t] == begin ? end : full[t];
                top[t] = end > top[t] ? end : top[t];
            }
        }
        td__skyline_destroy(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_and_top_are_what_was_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
