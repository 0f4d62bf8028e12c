/* test_backends.c -- backends by name, over all lines of backends.def. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "graph/backend.h"
#include "graph/backend_auto.h"
#include "support/check.h"

/* Is it one of the words? */
static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

TEST(every_backend_is_made_by_its_name)
{
    const char *name;
    int n = 0;
    for (; (name = td__backend_name(n)); n++) {
        td_backend *b;
        td_backend_traits traits = td__backend_traits(name);
        td_status st = td__backend_create(name, &b);
        CHECK(traits.gpus ? st == TD_OK || st == TD_ENOTSUP : st == TD_OK, "%s: %s", name,
              td_last_error());
        if (!st)
            td__backend_destroy(b);
        CHECK(has_word(td__backend_words, name) == (strcmp(name, "null") != 0), "%s in '%s'", name,
              td__backend_words);
        CHECK(!traits.gpus || !traits.on_processor, "%s is a GPU's and the processor's", name);
    }
    CHECK(n >= 5, "%d backends", n);
    CHECK(has_word(td__backend_words, "auto"), "%s", td__backend_words);
    CHECK(has_word(td__backend_words, td__backend_auto()), "auto is %s", td__backend_auto());
}

TEST(names_that_are_none)
{
    static const char *const WRONG[] = {"", "gpu", "cpu:0", "cpuda", "far:1"};
    td_backend *b;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        CHECK_STATUS(td__backend_create(WRONG[i], &b), TD_EINVAL);
        CHECK(!b && strstr(td_last_error(), "(known: cpu"), "%s", td_last_error());
    }
    CHECK(td__backend_traits(NULL).on_processor && td__backend_traits("gpu").on_processor,
          "an unknown backend is not taken for cpu");
}

/* What has no GPUs is the same on every rank, and no bits belong to one. */
TEST(ranks_of_a_processor)
{
    char text[128];
    td__backend_for("far", 3, text, sizeof text);
    assert_string_equal(text, "far");
    td__backend_for(NULL, 3, text, sizeof text);
    assert_string_equal(text, "");
    td__backend_gpu("cpu", text, sizeof text);
    assert_string_equal(text, "");
    td__backend_gpu(NULL, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_backend_is_made_by_its_name),
        cmocka_unit_test(names_that_are_none),
        cmocka_unit_test(ranks_of_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
