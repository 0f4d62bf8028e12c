/* Scores against scikit-learn's, to 1e-12: confusion matrix, precision, recall and F1 of each class
 * and their means, areas under the ROC curve, top-k; MAE, RMSE and R2. tests/golden/metrics/make.py
 * made the predictions and asked scikit-learn. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "support/check.h"
#include "support/golden_json.h"
#include "tandem/tandem.h"
#include "train/scores.h"

#define EXPECTED "tests/golden/metrics/expected.json"
enum { MOST_CLASSES = 8, MOST_ROWS = 160 };

/* Both are no numbers, or they are equal to 1e-12 of 1 or of themselves. */
#define SAME(got, want, ...)                                                                      \
    do {                                                                                          \
        double got_ = (got), want_ = (want), scale_ = fabs(want_) > 1 ? fabs(want_) : 1;          \
        CHECK((isnan(got_) && isnan(want_)) || fabs(got_ - want_) <= 1e-12 * scale_, __VA_ARGS__, \
              got_, want_);                                                                       \
    } while (0)

typedef struct predictions {
    const char *name;
    int64_t rows, classes;
    double p1024[MOST_ROWS * MOST_CLASSES];
    float p[MOST_ROWS * MOST_CLASSES];
    double truth[MOST_ROWS];
    int64_t class[MOST_ROWS];
} predictions;

static predictions *open_case(const json_t *c)
{
    predictions *x = calloc(1, sizeof *x);

    CHECK(x, "no memory");
    x->name = golden_text(c, "name");
    x->classes = golden_int(c, "classes");
    x->rows = golden_list(c, "truth", x->truth, MOST_ROWS);
    CHECK_EQ_INT(golden_list(c, "p1024", x->p1024, MOST_ROWS * MOST_CLASSES), x->rows * x->classes);
    for (int64_t i = 0; i < x->rows * x->classes; i++)
        x->p[i] = (float)(x->p1024[i] / 1024);
    for (int64_t i = 0; i < x->rows; i++)
        x->class[i] = (int64_t)x->truth[i];
    return x;
}

static void check_classes(const json_t *c, const predictions *x, const td__scores *s)
{
    static const char *const EACH[] = {"precision", "recall", "f1", "auc", "support"};
    double want[TD_LEN(EACH)][MOST_CLASSES];
    double matrix[MOST_CLASSES * MOST_CLASSES];
    int64_t n = golden_list(c, "confusion", matrix, TD_LEN(matrix));

    CHECK_EQ_INT(n, x->classes * x->classes);
    for (int64_t i = 0; i < n; i++)
        CHECK(s->confusion[i] == (int64_t)matrix[i], "%s: confusion %d", x->name, (int)i);
    for (int e = 0; e < TD_LEN(EACH); e++)
        CHECK_EQ_INT(golden_list(c, EACH[e], want[e], MOST_CLASSES), x->classes);
    for (int64_t k = 0; k < x->classes; k++) {
        const td__class_score *got = &s->by_class[k];
        const double values[] = {got->precision, got->recall, got->f1, got->auc,
                                 (double)got->samples};
        for (int e = 0; e < TD_LEN(EACH); e++)
            SAME(values[e], want[e][k], "%s: %s of class %d is %.17g, not %.17g", x->name, EACH[e],
                 (int)k);
    }
}

/* Means over classes, and over classes by their samples. */
static void check_means(const json_t *c, const predictions *x, const td__scores *s)
{
    static const char *const NAMES[] = {"precision", "recall", "f1"};
    double macro[3], weighted[3], got[3] = {0};

    CHECK_EQ_INT(golden_list(c, "macro", macro, 3), 3);
    CHECK_EQ_INT(golden_list(c, "weighted", weighted, 3), 3);
    for (int64_t k = 0; k < x->classes; k++) {
        const td__class_score *by = &s->by_class[k];
        double share = (double)by->samples / (double)s->samples;
        got[0] += by->precision * share;
        got[1] += by->recall * share;
        got[2] += by->f1 * share;
    }
    for (int i = 0; i < 3; i++) {
        SAME(td__scores_value(s, NAMES[i]), macro[i], "%s: mean %s is %.17g, not %.17g", x->name,
             NAMES[i]);
        SAME(got[i], weighted[i], "%s: weighted %s is %.17g, not %.17g", x->name, NAMES[i]);
    }
    SAME(s->accuracy, golden_real(c, "accuracy"), "%s: accuracy %.17g, not %.17g", x->name);
    SAME(s->auc, golden_real(c, "mean_auc"), "%s: mean area %.17g, not %.17g", x->name);
}

TEST(classes)
{
    json_t *root = golden_json(EXPECTED);
    const json_t *list = golden_get(root, "classes");

    CHECK(json_array_size(list) >= 7, "%zu cases", json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        predictions *x = open_case(c);
        td__scores s;
        CHECK_OK(td__scores_classes(x->p, x->class, x->rows, x->classes, &s));
        check_classes(c, x, &s);
        check_means(c, x, &s);
        td__scores_fini(&s);
        free(x);
    }
    json_decref(root);
}

/* The operator that validations use: an f32, which must be the nearest to scikit-learn's number. */
static float top_share(const predictions *x, int k)
{
    static const int64_t IGNORED = -100;
    td_graph *g;
    td_program *program;
    td_params *params;
    td_runner *r;

    CHECK_OK(td_graph_create(&g));
    td_node *p = td_input(g, "p", TD_F32, TD_SHAPE(x->rows, x->classes));
    td_node *y = td_input(g, "y", TD_I64, TD_SHAPE(x->rows));
    td_node *out = td_accuracy_of(g, p, y, k, &IGNORED);
    CHECK(out, "%s", td_graph_error(g));
    td_program_opts o = {.evaluate = true, .outputs = &out, .n_outputs = 1};
    CHECK_OK(td_program_create(g, NULL, &o, &program));
    CHECK_OK(td_params_create(program, 1, &params));
    CHECK_OK(td_runner_create(program, params, &r));
    CHECK_OK(td_runner_set_input(r, "p", x->p, (size_t)(x->rows * x->classes) * sizeof *x->p));
    CHECK_OK(td_runner_set_input(r, "y", x->class, (size_t)x->rows * sizeof *x->class));
    CHECK_OK(td_runner_run(r, (td_run_key){0}));
    float share = *(const float *)td_runner_output(r, 0, NULL);
    td_runner_destroy(r);
    td_params_destroy(params);
    td_program_destroy(program);
    td_graph_destroy(g);
    return share;
}

TEST(top_k)
{
    json_t *root = golden_json(EXPECTED);
    const json_t *list = golden_get(root, "classes");
    int compared = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i), *top = golden_get(c, "top");
        predictions *x = open_case(c);
        for (int k = 1; k <= 5; k += 2) {
            char key[8];
            snprintf(key, sizeof key, "%d", k);
            if (!json_object_get(top, key))
                continue;
            double want = golden_real(top, key);
            float got = top_share(x, k);
            CHECK(got == (float)want, "%s: top %d is %.9g, not %.17g", x->name, k, (double)got,
                  want);
            compared++;
        }
        free(x);
    }
    CHECK(compared >= 10, "%d compared", compared);
    json_decref(root);
}

TEST(numbers)
{
    static const char *const NAMES[] = {"mae", "rmse", "r2"};
    json_t *root = golden_json(EXPECTED);
    const json_t *list = golden_get(root, "numbers");
    double said[MOST_ROWS], truth[MOST_ROWS];

    CHECK(json_array_size(list) >= 5, "%zu cases", json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        int64_t n = golden_list(c, "said", said, MOST_ROWS);
        td__scores s;
        CHECK_EQ_INT(golden_list(c, "truth", truth, MOST_ROWS), n);
        td__scores_numbers(said, truth, n, &s);
        for (int k = 0; k < TD_LEN(NAMES); k++)
            SAME(td__scores_value(&s, NAMES[k]), golden_real(c, NAMES[k]),
                 "%s: %s is %.17g, not %.17g", golden_text(c, "name"), NAMES[k]);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes), cmocka_unit_test(top_k),
                                       cmocka_unit_test(numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
