/* What is UTF-8 and what is not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(valid_and_cleaned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
