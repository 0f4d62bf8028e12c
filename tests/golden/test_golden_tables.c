/* Tables against pandas and scikit-learn: which cells are missing, SimpleImputer, StandardScaler,
 * OneHotEncoder, OrdinalEncoder and LabelEncoder with categories that training has not seen,
 * KBinsDiscretizer's bins, KFold, windows over rows and TimeSeriesSplit. What is measured is equal
 * to 1e-12, samples are the f32 nearest to theirs. tests/golden/tables/make.py made the files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "data/data.h"
#include "data/fit_json.h"
#include "data/schema/schema.h"
#include "support/check.h"
#include "support/golden_json.h"

#define FOLDER "tests/golden/tables/"
enum { ROWS = 45, NEW_ROWS = 5, MOST = 4096 };

static const char *const COLUMNS[] = {"age", "income", "one", "small", "city"};

static td__data_opts table(const char *missing)
{
    return (td__data_opts){.source = "csv",
                           .source_opts = {.train = FOLDER "train.csv",
                                           .label = "kind",
                                           .columns = COLUMNS,
                                           .n_columns = TD_LEN(COLUMNS),
                                           .missing = missing}};
}

/* Field x of all samples of a part. */
static void check_x(td__data *d, td__part part, const json_t *want, const char *key, double room)
{
    td__dataset *p = td__data_part(d, part);
    int at = td__dataset_field(p, "x");
    int64_t width = td_shape_count(&p->fields[at].shape), n;
    double *list = calloc(MOST, sizeof *list);
    char rows[TD__MAX_FIELDS][1024];
    void *out[TD__MAX_FIELDS];

    CHECK(list && width <= 256, "%d places", (int)width);
    n = golden_list(want, key, list, MOST);
    CHECK(n > 0 && n == p->count * width, "%s: %d values, not %d", key, (int)(p->count * width),
          (int)n);
    for (int f = 0; f < TD__MAX_FIELDS; f++)
        out[f] = rows[f];
    for (int64_t i = 0; i < p->count; i++) {
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, out));
        const float *x = (const float *)(void *)rows[at];
        for (int64_t k = 0; k < width; k++) {
            double w = list[i * width + k], off = fabs((double)x[k] - w);
            CHECK(room > 0 ? off <= room * (1 + fabs(w)) : x[k] == (float)w,
                  "%s: row %d, place %d is %.9g, not %.17g", key, (int)i, (int)k, (double)x[k], w);
        }
    }
    free(list);
}

static td__fit *fit_of(td__data *d)
{
    td__text text = {0};
    td__fit *fit;

    CHECK_OK(td__data_fit(d, &text));
    CHECK_OK(td__fit_parse(text.data, text.used, "fit", &fit));
    td__text_fini(&text);
    return fit;
}

/* A list of numbers of ours is that of scikit-learn, to 1e-12 of each. */
static void check_measured(const json_t *ours, const json_t *want, const char *key, int n)
{
    double a[16], b[16];

    CHECK_EQ_INT(golden_list(want, key, b, 16), n);
    CHECK(td__fit_load_numbers(ours, a, n), "%s: not measured", key);
    for (int i = 0; i < n; i++)
        CHECK(fabs(a[i] - b[i]) <= 1e-12 * fabs(b[i]), "%s: number %d is %.17g, not %.17g", key, i,
              a[i], b[i]);
}

static const json_t *measured_column(const td__fit *fit, size_t i)
{
    return json_array_get(golden_get(td__fit_measured(fit), "columns"), i);
}

/* What stands for missing numbers. */
static void check_fill(const td__fit *fit, const json_t *want)
{
    double fill[4], facts[3];

    CHECK_EQ_INT(golden_list(want, "fill", fill, 4), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *c = measured_column(fit, i);
        CHECK(td__fit_load_numbers(golden_get(c, "fill_least_most"), facts, 3), "column %zu", i);
        CHECK(fabs(facts[0] - fill[i]) <= 1e-12 * fabs(fill[i]), "column %zu: %.17g, not %.17g", i,
              facts[0], fill[i]);
    }
}

/* The train part, and new rows by what was measured on it alone. */
static void check_both(td__data_opts o, const json_t *want, const char *train, const char *new_rows,
                       double room, td__fit **fit)
{
    td__data *d;

    CHECK_OK(td__data_open(&o, &d));
    check_x(d, TD_PART_TRAIN, want, train, room);
    *fit = fit_of(d);
    td__data_close(d);
    o.fit = *fit;
    o.input = FOLDER "new.csv";
    CHECK_OK(td__data_open(&o, &d));
    CHECK_EQ_INT(td__data_part(d, TD_PART_TEST)->count, NEW_ROWS);
    check_x(d, TD_PART_TEST, want, new_rows, room);
    td__data_close(d);
}

TEST(missing_cells_and_unknown_categories)
{
    static const char *const FILLED[] = {"mean", "median", "zero"};
    json_t *root = golden_json(FOLDER "expected.json");
    const json_t *missing = golden_get(root, "missing");
    td__fit *fit;
    td__data *d;

    for (int i = 0; i < TD_LEN(FILLED); i++) {
        const json_t *want = golden_get(missing, FILLED[i]);
        check_both(table(FILLED[i]), want, "train", "new", 0, &fit);
        check_fill(fit, want);
        td__fit_destroy(fit);
    }
    td__data_opts o = table("drop");
    CHECK_OK(td__data_open(&o, &d));
    check_x(d, TD_PART_TRAIN, golden_get(missing, "drop"), "train", 0);
    td__data_close(d);
    json_decref(root);
}

/* The divisor of the variance is n. Scaled values are an f32 product and sum. */
TEST(standardised)
{
    static const char *const FILLED[] = {"mean", "median", "zero"};
    static const td__map_opts NORMALIZE = {.name = "normalize", .field = "x"};
    json_t *root = golden_json(FOLDER "expected.json");

    for (int i = 0; i < TD_LEN(FILLED); i++) {
        const json_t *want = golden_get(golden_get(root, "missing"), FILLED[i]);
        td__data_opts o = table(FILLED[i]);
        td__fit *fit;
        o.maps = &NORMALIZE;
        o.n_maps = 1;
        check_both(o, want, "train_scaled", "new_scaled", 2e-6, &fit);
        const json_t *m = td__fit_map(fit, 0, "normalize");
        check_measured(json_object_get(m, "mean"), want, "mean", 8);
        check_measured(json_object_get(m, "std"), want, "std", 8);
        td__fit_destroy(fit);
    }
    json_decref(root);
}

/* Fitted on the rows that the split leaves for training; the other parts are read by that. */
TEST(fitted_on_training_rows)
{
    static const char *const FILLED[] = {"mean", "median"};
    static const td__map_opts NORMALIZE = {.name = "normalize", .field = "x"};
    json_t *root = golden_json(FOLDER "expected.json");

    for (int i = 0; i < 2 * TD_LEN(FILLED); i++) {
        const json_t *want = golden_get(golden_get(root, "cut"), FILLED[i / 2]);
        td__data_opts o = table(FILLED[i / 2]);
        bool scaled = i % 2;
        td__data *d;
        o.measured = "train";
        o.order = "file";
        o.valid_fraction = o.test_fraction = 0.45;
        o.maps = &NORMALIZE;
        o.n_maps = scaled;
        CHECK_OK(td__data_open(&o, &d));
        for (int p = 0; p < TD_PART_COUNT; p++) {
            char key[32];
            snprintf(key, sizeof key, "%s%s", td__part_name((td__part)p), scaled ? "_scaled" : "");
            check_x(d, (td__part)p, want, key, scaled ? 2e-6 : 0);
        }
        td__fit *fit = fit_of(d);
        int places = (int)td__data_part(d, TD_PART_TRAIN)->fields[0].shape.dim[0];
        const json_t *m = td__fit_map(fit, 0, "normalize");
        check_fill(fit, want);
        CHECK(!scaled || places < 8, "%d places: no city is missing in the training rows", places);
        if (scaled)
            check_measured(json_object_get(m, "mean"), want, "mean", places);
        if (scaled)
            check_measured(json_object_get(m, "std"), want, "std", places);
        td__fit_destroy(fit);
        td__data_close(d);
    }
    json_decref(root);
}

/* A table in the order of time or of its label has the means of all its rows. */
TEST(standardised_in_the_order_of_the_file)
{
    static const td__map_opts NORMALIZE = {.name = "normalize"};
    json_t *root = golden_json(FOLDER "expected.json");
    td__data_opts o = {.source = "csv",
                       .source_opts = {.dir = check_tmpdir(), .train = "a.csv", .label = "kind"},
                       .maps = &NORMALIZE,
                       .n_maps = 1};
    td__data *d;

    FILE *f = fopen(check_path("a.csv"), "w");
    CHECK(f, "a.csv");
    fprintf(f, "time,block,saw,kind\n");
    for (int i = 0; i < 30000; i++)
        fprintf(f, "%.17g,%d,%.17g,%d\n", i / 8.0, i / 10000 * 100, i * 7919 % 1000 / 4.0,
                i / 10000);
    CHECK(!fclose(f), "a.csv");
    CHECK_OK(td__data_open(&o, &d));
    td__fit *fit = fit_of(d);
    const json_t *m = td__fit_map(fit, 0, "normalize"), *want = golden_get(root, "in_order");
    check_measured(json_object_get(m, "mean"), want, "mean", 3);
    check_measured(json_object_get(m, "std"), want, "std", 3);
    td__fit_destroy(fit);
    td__data_close(d);
    check_tmpdir_remove();
    json_decref(root);
}

/* Classes and ids of categories, as LabelEncoder and OrdinalEncoder number them. */
TEST(numbered)
{
    static const td_feature FEATURES[] = {{.kind = "numeric", .column = "small"},
                                          {.kind = "embedding", .column = "city"}};
    json_t *root = golden_json(FOLDER "expected.json");
    const json_t *names = golden_get(root, "classes"), *ids = golden_get(root, "ids");
    td__data_opts o = table("mean");
    double label[ROWS], id[2][ROWS];
    td__data *d;

    o.source_opts.n_columns = 0;
    o.source_opts.features = FEATURES;
    o.source_opts.n_features = 2;
    CHECK_EQ_INT(golden_list(root, "labels", label, ROWS), ROWS);
    CHECK_EQ_INT(golden_list(ids, "train", id[0], ROWS), ROWS);
    CHECK_EQ_INT(golden_list(ids, "new", id[1], ROWS), NEW_ROWS);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(td__data_open(&o, &d));
        td__dataset *p = td__data_part(d, k ? TD_PART_TEST : TD_PART_TRAIN);
        const td__field *y = &p->fields[1];
        CHECK_EQ_INT(p->n_fields, 3);
        CHECK_EQ_INT(y->classes, json_array_size(names));
        for (size_t c = 0; c < json_array_size(names); c++)
            assert_string_equal(y->class_names[c], json_string_value(json_array_get(names, c)));
        for (int64_t i = 0; i < p->count; i++) {
            float x;
            int32_t class, city;
            CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){&x, &class, &city}));
            CHECK(k || class == (int32_t)label[i], "row %d: class %d", (int)i, (int)class);
            CHECK(city == (int32_t)id[k][i], "row %d: id %d, not %g", (int)i, (int)city, id[k][i]);
        }
        if (!k)
            o.fit = fit_of(d);
        td__data_close(d);
        o.input = FOLDER "new.csv";
    }
    td__fit_destroy((td__fit *)(uintptr_t)o.fit);
    json_decref(root);
}

TEST(bins)
{
    json_t *root = golden_json(FOLDER "expected.json");
    const json_t *cases = golden_get(root, "bins");

    CHECK_EQ_INT(json_array_size(cases), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *want = json_array_get(cases, i);
        double boundaries[8];
        td_feature f = {.kind = "bucketized", .column = "age", .boundaries = boundaries};
        f.n_boundaries = (int)golden_list(want, "boundaries", boundaries, 8);
        td__data_opts o = table("median");
        td__data *d;
        o.source_opts.n_columns = 0;
        o.source_opts.features = &f;
        o.source_opts.n_features = 1;
        CHECK_OK(td__data_open(&o, &d));
        check_x(d, TD_PART_TRAIN, want, "x", 0);
        td__data_close(d);
    }
    json_decref(root);
}

/* All texts that pandas takes for missing, and some that it does not. */
TEST(missing_words)
{
    static const char *const LISTS[] = {"missing_words", "words"};
    json_t *root = golden_json(FOLDER "expected.json");

    for (int k = 0; k < 2; k++) {
        const json_t *list = golden_get(root, LISTS[k]);
        CHECK(json_array_size(list) > 10, "%zu words", json_array_size(list));
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *word = json_string_value(json_array_get(list, i));
            td__cell c = {word, strlen(word)};
            CHECK(td__cell_missing(&c) == (k == 0), "'%s'", word);
        }
    }
    json_decref(root);
}

/* What `check` says of columns: range and share of missing cells. */
TEST(ranges)
{
    json_t *root = golden_json(FOLDER "expected.json");
    double share[4], least[4], most[4], facts[3];
    td__data_opts o = table("mean");
    td__data *d;

    CHECK_EQ_INT(golden_list(root, "missing_share", share, 4), 4);
    CHECK_EQ_INT(golden_list(root, "least", least, 4), 4);
    CHECK_EQ_INT(golden_list(root, "most", most, 4), 4);
    CHECK_OK(td__data_open(&o, &d));
    td__fit *fit = fit_of(d);
    for (size_t i = 0; i < 4; i++) {
        const json_t *c = measured_column(fit, i);
        double missing = golden_real(c, "missing") / golden_real(c, "rows");
        CHECK(fabs(missing - share[i]) <= 1e-12, "column %zu: %g missing", i, missing);
        CHECK(td__fit_load_numbers(golden_get(c, "fill_least_most"), facts, 3), "column %zu", i);
        CHECK(facts[1] == least[i] && facts[2] == most[i], "column %zu: %.17g to %.17g", i,
              facts[1], facts[2]);
    }
    td__fit_destroy(fit);
    td__data_close(d);
    json_decref(root);
}

/* ---- Splits and windows ---------------------------------------------------------------------- */

/* A table of numbers (rows, columns) in a file. */
static void write_rows(const char *path, const double *x, int64_t rows, int columns)
{
    FILE *f = fopen(path, "w");

    CHECK(f, "%s", path);
    for (int c = 0; c < columns; c++)
        fprintf(f, "%sc%d", c ? "," : "", c);
    for (int64_t i = 0; i < rows * columns; i++)
        fprintf(f, "%s%.17g", i % columns ? "," : "\n", x[i]);
    fprintf(f, "\n");
    CHECK(!fclose(f), "%s", path);
}

TEST(folds)
{
    json_t *root = golden_json(FOLDER "expected.json");
    const json_t *cases = golden_get(root, "folds");
    double x[2 * ROWS], fold[ROWS];

    CHECK(json_array_size(cases) >= 4, "%zu cases", json_array_size(cases));
    for (int i = 0; i < 2 * ROWS; i++)
        x[i] = i / 2;
    for (size_t k = 0; k < json_array_size(cases); k++) {
        const json_t *want = json_array_get(cases, k);
        int64_t n = golden_int(want, "n");
        td__data_opts o = {
            .source = "csv",
            .source_opts = {.dir = check_tmpdir(), .train = "a.csv", .target = "number"},
            .order = "file",
            .folds = golden_int(want, "folds")};
        CHECK_EQ_INT(golden_list(want, "fold", fold, ROWS), n);
        write_rows(check_path("a.csv"), x, n, 2);
        for (o.fold = 0; o.fold < o.folds; o.fold++) {
            int64_t seen = 0;
            td__data *d;
            CHECK_OK(td__data_open(&o, &d));
            for (int part = TD_PART_TRAIN; part <= TD_PART_VALID; part++) {
                td__dataset *p = td__data_part(d, (td__part)part);
                for (int64_t i = 0; i < p->count; i++, seen++) {
                    float row, y;
                    CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){&row, &y}));
                    CHECK((fold[(int)row] == (double)o.fold) == (part == TD_PART_VALID),
                          "row %d, fold %d of %d", (int)row, (int)o.fold, (int)o.folds);
                }
            }
            CHECK_EQ_INT(seen, n);
            td__data_close(d);
        }
        check_tmpdir_remove();
    }
    json_decref(root);
}

/* Which windows a part has: their numbers among all, in order. */
static void check_windows_of(td__data *d, td__part part, const json_t *want, const char *key,
                             const double *x, int64_t width)
{
    td__dataset *p = td__data_part(d, part);
    double number[ROWS];
    float got[64], y;

    CHECK_EQ_INT(golden_list(want, key, number, ROWS), p->count);
    for (int64_t i = 0; i < p->count; i++) {
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){got, &y}));
        for (int64_t k = 0; k < width; k++)
            CHECK(got[k] == (float)x[(int64_t)number[i] * width + k], "%s: sample %d is another",
                  key, (int)i);
    }
}

static void check_windows(const json_t *want)
{
    double x[MOST], y[ROWS];
    int64_t window = golden_int(want, "window"), horizon = golden_int(want, "horizon");
    int64_t width = 2 * window, n = golden_list(want, "y", y, ROWS);
    td__data_opts o = {.source = "csv",
                       .source_opts = {.train = check_path("a.csv"),
                                       .label = "c1",
                                       .target = "number",
                                       .window = window,
                                       .horizon = horizon ? horizon : -1,
                                       .stride = golden_int(want, "stride")}};
    static const td_feature BOTH[] = {{.kind = "numeric", .column = "c0"},
                                      {.kind = "numeric", .column = "c1"}};
    td__data *d;

    o.source_opts.features = BOTH;
    o.source_opts.n_features = 2;
    CHECK_OK(td__data_open(&o, &d));
    check_x(d, TD_PART_TRAIN, want, "x", 0);
    CHECK_EQ_INT(golden_list(want, "x", x, MOST), n * width);
    for (int64_t i = 0; i < n; i++) {
        float row[64], label;
        CHECK(width <= TD_LEN(row), "%d places", (int)width);
        CHECK_OK(td__dataset_read(td__data_part(d, TD_PART_TRAIN), &i, 1, NULL,
                                  (void *[]){row, &label}));
        CHECK(label == (float)y[i], "sample %d: label %g, not %g", (int)i, (double)label, y[i]);
    }
    td__data_close(d);
    if (!json_object_get(want, "valid"))
        return;
    o.order = "file";
    o.valid_fraction = 6.0 / (double)n;
    CHECK_OK(td__data_open(&o, &d));
    check_windows_of(d, TD_PART_TRAIN, want, "train", x, width);
    check_windows_of(d, TD_PART_VALID, want, "valid", x, width);
    td__data_close(d);
}

TEST(windows)
{
    json_t *root = golden_json(FOLDER "expected.json");
    const json_t *windows = golden_get(root, "windows"), *cases = golden_get(windows, "cases");
    double rows[2 * ROWS];
    int64_t n = golden_list(windows, "rows", rows, 2 * ROWS);

    check_tmpdir();
    write_rows(check_path("a.csv"), rows, n / 2, 2);
    CHECK(json_array_size(cases) >= 4, "%zu cases", json_array_size(cases));
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_windows(json_array_get(cases, i));
    check_tmpdir_remove();
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_cells_and_unknown_categories),
        cmocka_unit_test(standardised),
        cmocka_unit_test(fitted_on_training_rows),
        cmocka_unit_test(standardised_in_the_order_of_the_file),
        cmocka_unit_test(numbered),
        cmocka_unit_test(bins),
        cmocka_unit_test(missing_words),
        cmocka_unit_test(ranges),
        cmocka_unit_test(folds),
        cmocka_unit_test(windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
