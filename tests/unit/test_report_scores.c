/* test_report_scores.c -- what the report says of predictions: more classes than a matrix has room
 * for, and samples that are files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "run/report_data.h"
#include "run/report_scores.h"
#include "support/check.h"

enum { CLASSES = 21 };

static bool has(const td__text *t, const char *what)
{
    return strstr(t->data, what) != NULL;
}

/* Class k is taken for k + 1 in k % 4 of 100 cases, and class 3 for class 9 in 40. */
TEST(the_most_confused_classes)
{
    static int64_t confusion[CLASSES * CLASSES];
    static td__class_score by_class[CLASSES];
    td__scores s = {.samples = 100 * CLASSES,
                    .classes = CLASSES,
                    .confusion = confusion,
                    .by_class = by_class,
                    .n_worst = 2,
                    .worst = {{.index = 7, .truth = 3, .said = 9, .name = "cat/<7>.png"},
                              {.index = 1, .truth = 2, .said = 3, .name = "dog/1.png"}}};
    td__report_opts o = {.scores = &s, .scores_part = "test"};
    td__text t = {0};

    for (int k = 0; k < CLASSES; k++) {
        by_class[k].samples = 100;
        confusion[k * CLASSES + k] = 100 - k % 4;
        if (k + 1 < CLASSES)
            confusion[k * CLASSES + k + 1] = k % 4;
    }
    confusion[3 * CLASSES + 9] = 40;
    td__report_scores(&t, &o);
    CHECK_OK(td__text_status(&t));
    CHECK(!has(&t, "Confusion matrix") && has(&t, "Most confused classes"), "%s", t.data);
    CHECK(has(&t, "16 of the 16 pairs"), "%s", t.data);
    const char *first = strstr(t.data, ">3</td><td class=\"name\">9</td><td class=\"n\">40</td>"
                                       "<td class=\"n\">40.0 %</td>");
    const char *next = strstr(t.data, ">3</td><td class=\"name\">4</td><td class=\"n\">3</td>");
    CHECK(first && next && first < next, "%s", t.data);
    CHECK(has(&t, ">file</th>") && has(&t, ">cat/&lt;7&gt;.png</td>") && has(&t, ">dog/1.png</td>"),
          "%s", t.data);
    s.worst[0].name = s.worst[1].name = NULL;
    td__text_clear(&t);
    td__report_scores(&t, &o);
    CHECK(!has(&t, ">file</th>") && has(&t, "Worst samples"), "%s", t.data);
    td__text_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_most_confused_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
