/* What is UTF-8 and what is not; texts as JSON. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "base/utf8.h"
#include "support/check.h"

TEST(valid_and_cleaned)
{
    static const struct {
        const char *text, *clean; /* NULL: it is UTF-8 */
    } CASES[] = {
        {"", NULL},
        {"plain", NULL},
        {"gr\xc3\xbc\xc3\x9f", NULL},
        {"\xe2\x82\xac \xf0\x9f\x98\x80", NULL},
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", NULL},
        {"a\xff", "a?"},
        {"\x80z", "?z"},
        {"\xc0\xafz", "??z"},           /* '/' in two bytes */
        {"\xe0\x80\xafz", "???z"},      /* in three */
        {"\xed\xa0\x80z", "???z"},      /* a surrogate */
        {"\xf4\x90\x80\x80z", "????z"}, /* beyond the last */
        {"\xc3(z", "?(z"},
        {"cut \xe2\x82", "cut "},
        {"cut \xf0\x9f\x98", "cut "},
        {"\xe2\x82z", "??z"},
    };

    for (int i = 0; i < TD_LEN(CASES); i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", CASES[i].text);
        if (td__utf8_valid(text, strlen(text)) != !CASES[i].clean)
            fail_msg("case %d", i);
        td__utf8_clean(text);
        assert_string_equal(text, CASES[i].clean ? CASES[i].clean : CASES[i].text);
        assert_true(td__utf8_valid(text, strlen(text)));
    }
}

/* Also what ends a line only in YAML, of which JSON is a part. */
TEST(as_json)
{
    td__text t = {0};

    td__text_json(&t, "a\"\n\x7f\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xc2\x86\xe2");
    assert_string_equal(t.data, "\"a\\\"\\u000a\\u007f\\u0085\\u2028\\u2029\xe2\x80\xaa\xc2\x86"
                                "\xe2\"");
    td__text_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(valid_and_cleaned),
                                       cmocka_unit_test(as_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
