/* Scores against values that scikit-learn's documentation gives for the same numbers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/check.h"
#include "support/check.h"
#include "train/scores.h"

#define NEAR(a, b) CHECK(fabs((a) - (b)) < 1e-12, "%.17g, expected %.17g", (double)(a), (double)(b))

/* precision_recall_fscore_support, confusion_matrix */
TEST(classes)
{
    static const int64_t TRUE[] = {0, 1, 2, 0, 1, 2}, SAID[] = {0, 2, 1, 0, 0, 1};
    float p[6][3] = {{0}};
    td__scores s;

    for (int i = 0; i < 6; i++)
        p[i][SAID[i]] = 1;
    CHECK_OK(td__scores_classes(p[0], TRUE, 6, 3, &s));
    static const int64_t MATRIX[] = {2, 0, 0, 1, 0, 1, 0, 2, 0};
    for (int i = 0; i < 9; i++)
        CHECK_EQ_INT(s.confusion[i], MATRIX[i]);
    NEAR(s.accuracy, 1.0 / 3);
    NEAR(s.precision, 2.0 / 9);
    NEAR(s.recall, 1.0 / 3);
    NEAR(s.f1, 4.0 / 15);
    td__scores_fini(&s);
}

/* roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) is 0.75; with a tie in it, 0.625; ignored
 * classes do not count. */
TEST(area_under_the_curve)
{
    static const struct {
        float score[5];
        int64_t class[5];
        double want;
    } CASES[] = {{{0.1F, 0.4F, 0.35F, 0.8F, 0.9F}, {0, 0, 1, 1, -100}, 0.75},
                 {{0.1F, 0.4F, 0.4F, 0.1F, 0}, {0, 0, 1, 1, -1}, 0.5},
                 {{0.1F, 0.35F, 0.35F, 0.8F, 0}, {0, 0, 1, 1, -1}, 0.875}};

    for (int c = 0; c < TD_LEN(CASES); c++) {
        float p[5][2];
        td__scores s;
        for (int i = 0; i < 5; i++) {
            p[i][0] = 1 - CASES[c].score[i];
            p[i][1] = CASES[c].score[i];
        }
        CHECK_OK(td__scores_classes(p[0], CASES[c].class, 5, 2, &s));
        CHECK_EQ_INT(s.samples, 4);
        NEAR(s.by_class[1].auc, CASES[c].want);
        td__scores_fini(&s);
    }
}

/* r2_score, mean_squared_error, mean_absolute_error of ([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]) */
TEST(numbers)
{
    td__scores s;

    td__scores_numbers((const double[]){2.5, 0.0, 2, 8}, (const double[]){3, -0.5, 2, 7}, 4, &s);
    NEAR(s.r2, 0.9486081370449679);
    NEAR(s.rmse, sqrt(0.375));
    NEAR(s.mae, 0.5);
    td__scores_numbers((const double[]){1, 2}, (const double[]){5, 5}, 2, &s);
    NEAR(s.r2, 0); /* nothing varies */
}

/* The worst samples first, of classes and of numbers; a point per sample. */
TEST(worst_samples)
{
    static const double SAID[] = {1, 5, 3, -7}, TRUE[] = {1, 2, 2.5, -2};
    static const int64_t CLASS[] = {1, 0, 1, 0, -1};
    const float p[5][2] = {{0.9F, 0.1F}, {0.2F, 0.8F}, {0.3F, 0.7F}, {0.4F, 0.6F}, {1, 0}};
    static const int64_t WORST[] = {3, 1, 2, 0}, WRONG[] = {0, 1, 3};
    td__scores s;

    td__scores_numbers(SAID, TRUE, 4, &s);
    CHECK_OK(td__scores_points(&s, SAID, TRUE, 4));
    CHECK_EQ_INT(s.n_points, 4);
    CHECK_EQ_INT(s.n_worst, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(s.worst[i].index, WORST[i]);
        NEAR(s.points[i].said, SAID[i]);
    }
    td__scores_fini(&s);
    CHECK_OK(td__scores_classes(p[0], CLASS, 5, 2, &s));
    CHECK_EQ_INT(s.n_worst, 3); /* sample 2 is right, sample 4 does not count */
    for (int i = 0; i < 3; i++)
        CHECK_EQ_INT(s.worst[i].index, WRONG[i]);
    NEAR(s.worst[0].score, (double)0.1F);
    td__scores_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes),
                                       cmocka_unit_test(area_under_the_curve),
                                       cmocka_unit_test(numbers), cmocka_unit_test(worst_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
