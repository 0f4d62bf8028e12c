/* Tables as they are: missing cells and kinds of features. The numbers are those that
 * scikit-learn's SimpleImputer, OneHotEncoder and KBinsDiscretizer's intervals and pandas' dropna
 * give for the same table, worked out by hand. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "data/data.h"
#include "support/check.h"

/* age: mean 42.5, median 42.5 of 4; income: mean 97.625, median 95.25 of 4 */
static const char TABLE[] = "age,income,city,zip,note,kind\n"
                            "20,100.5,Oslo,0150,likes tea,a\n"
                            "35,NA,Rome,0151,,b\n"
                            "nan,80,Bonn,9999,rain,a\n"
                            "50,120,,0150,no,b\n"
                            "65,90,Oslo,1234,yes,a\n";
enum { ROWS = 5, WIDEST = 32 };

static td__data_opts table(const char *text)
{
    td__data_opts o = {.source = "csv",
                       .source_opts = {.dir = check_tmpdir(), .train = "a.csv", .label = "kind"}};

    check_write_file(check_path("a.csv"), text, strlen(text));
    return o;
}

/* x of all rows; returns their width. */
static int64_t read_x(const td__data_opts *o, int64_t rows, float x[][WIDEST])
{
    td__data *d;

    CHECK_OK(td__data_open(o, &d));
    td__dataset *p = td__data_part(d, TD_PART_TRAIN);
    int64_t width = p->fields[0].shape.dim[0];
    CHECK_EQ_INT(p->count, rows);
    CHECK(width <= WIDEST && strcmp(p->fields[0].name, "x") == 0, "%d places", (int)width);
    for (int64_t i = 0; i < rows; i++) {
        char more[TD__MAX_FIELDS][256];
        void *out[TD__MAX_FIELDS];
        for (int f = 0; f < p->n_fields; f++)
            out[f] = f ? (void *)more[f] : (void *)x[i];
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, out));
    }
    td__data_close(d);
    return width;
}

static void check_x(float x[][WIDEST], int64_t rows, int64_t width, const double *want)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < width; k++)
            CHECK(fabs((double)x[i][k] - want[i * width + k]) < 1e-5,
                  "row %d, place %d: %g, expected %g", (int)i, (int)k, (double)x[i][k],
                  want[i * width + k]);
}

TEST(missing_cells)
{
    static const char *const COLUMNS[] = {"age", "income", "city"};
    static const struct {
        const char *missing;
        int64_t rows;
        double want[ROWS * 5]; /* age, income, Bonn, Oslo, Rome */
    } CASES[] = {
        {"mean", 5, {20, 100.5, 0,  1,   0, 35, 97.625, 0,  0,  1, 42.5, 80, 1,
                     0,  0,     50, 120, 0, 0,  0,      65, 90, 0, 1,    0}},
        {"median", 5, {20, 100.5, 0,  1,   0, 35, 95.25, 0,  0,  1, 42.5, 80, 1,
                       0,  0,     50, 120, 0, 0,  0,     65, 90, 0, 1,    0}},
        {"zero", 5, {20, 100.5, 0,  1,   0, 35, 0, 0,  0,  1, 0, 80, 1,
                     0,  0,     50, 120, 0, 0,  0, 65, 90, 0, 1, 0}},
    };
    td__data_opts o = table(TABLE);
    float x[ROWS][WIDEST];
    td__data *d;

    o.source_opts.columns = COLUMNS;
    o.source_opts.n_columns = 3;
    for (int i = 0; i < TD_LEN(CASES); i++) {
        o.source_opts.missing = CASES[i].missing;
        CHECK_EQ_INT(read_x(&o, CASES[i].rows, x), 5);
        check_x(x, CASES[i].rows, 5, CASES[i].want);
    }
    /* pandas' dropna: the rows that have all of these columns; Bonn and Rome go with theirs. */
    o.source_opts.missing = "drop";
    CHECK_EQ_INT(read_x(&o, 2, x), 3);
    check_x(x, 2, 3, (const double[]){20, 100.5, 1, 65, 90, 1});
    for (int i = 0; i < 2; i++) { /* by default too */
        o.source_opts.missing = i ? NULL : "error";
        CHECK_STATUS(td__data_open(&o, &d), TD_EPROTO);
        CHECK(strstr(td_last_error(), "a.csv:4: column 'age' is 'nan'") &&
                  strstr(td_last_error(), "set data.missing"),
              "%s", td_last_error());
    }
    check_tmpdir_remove();
}

/* What pandas takes for missing, and what it does not. */
TEST(words_for_missing)
{
    static const char *const MISSING[] = {"",     "NA",   "N/A",  "n/a",  "nan", "NaN", "-nan",
                                          "null", "NULL", "None", "<NA>", "#NA", " NA "};
    static const char *const WORDS[] = {"none", "missing", "-", "?", "Nan"};
    char text[200];
    td__data *d;

    for (int i = 0; i < TD_LEN(MISSING) + TD_LEN(WORDS); i++) {
        bool missing = i < TD_LEN(MISSING);
        snprintf(text, sizeof text, "v,w,kind\n1,1,a\n%s,2,b\n3,3,a\n",
                 missing ? MISSING[i] : WORDS[i - TD_LEN(MISSING)]);
        td__data_opts o = table(text);
        o.source_opts.missing = "mean";
        td_status st = td__data_open(&o, &d);
        CHECK(st == (missing ? TD_OK : TD_EPROTO), "%s: %s", text, st ? td_last_error() : "read");
        CHECK(missing || strstr(td_last_error(), "as most others are"), "%s", td_last_error());
        td__data_close(d);
        check_tmpdir_remove();
    }
}

/* A table of 60 rows of which those that are not marked have other numbers and a city of their own.
 */
static td__data_opts marked_table(const bool *mark, double off)
{
    char text[8192];
    int n = snprintf(text, sizeof text, "a,b,city,kind\n");

    for (int i = 0; i < 60; i++) {
        bool own = mark && mark[i];
        n += snprintf(text + n, sizeof text - (size_t)n, "%g,", i + (own ? off : 0));
        if (i % 7)
            n += snprintf(text + n, sizeof text - (size_t)n, "%g", i * i + (own ? off : 0));
        n += snprintf(text + n, sizeof text - (size_t)n, ",%s,%d\n",
                      own && off > 0 ? "Graz"
                      : i % 2        ? "Rome"
                                     : "Oslo",
                      i % 3);
    }
    td__data_opts o = table(text);
    o.source_opts.missing = "mean";
    o.valid_fraction = o.test_fraction = 0.25;
    o.measured = "train";
    return o;
}

/* Nothing of the rows of other parts is in what is measured, however they are cut off; of the whole
 * file something is. */
TEST(measured_on_training_rows)
{
    static const struct {
        const char *order;
        int64_t folds, window;
    } CASES[] = {{NULL, 0, 0}, {"file", 0, 0}, {NULL, 4, 0}, {"file", 5, 0}, {NULL, 0, 3}};

    for (int i = 0; i < TD_LEN(CASES); i++) {
        char measured[3][4096];
        bool mark[64] = {false};
        for (int k = 0; k < 3; k++) { /* as it is; other rows of the other parts; measured on all */
            td__data_opts o = marked_table(mark, k ? 1000 : 0);
            td__data *d;
            o.order = CASES[i].order;
            o.folds = CASES[i].folds;
            o.source_opts.window = CASES[i].window;
            o.measured = k < 2 ? "train" : "all";
            CHECK_OK(td__data_open(&o, &d));
            snprintf(measured[k], sizeof measured[k], "%s",
                     td__data_source_part(d, TD_PART_TRAIN)->measured);
            for (int p = TD_PART_VALID; !k && p < TD_PART_COUNT; p++) {
                td__dataset *part = td__data_part(d, (td__part)p);
                for (int64_t r = 0; r < part->count; r++) { /* column a is the row's number */
                    char more[TD__MAX_FIELDS][256];
                    void *out[TD__MAX_FIELDS];
                    for (int f = 0; f < part->n_fields; f++)
                        out[f] = more[f];
                    CHECK_OK(td__dataset_read(part, &r, 1, NULL, out));
                    for (int64_t w = 0; w < (CASES[i].window ? CASES[i].window + 1 : 1); w++)
                        mark[(int)*(float *)(void *)more[0] + w] = true;
                }
            }
            td__data_close(d);
            check_tmpdir_remove();
        }
        CHECK(strcmp(measured[0], measured[1]) == 0, "case %d: %s and %s", i, measured[0],
              measured[1]);
        CHECK(strcmp(measured[1], measured[2]) != 0 && strstr(measured[2], "Graz"),
              "case %d: the rows do not matter at all", i);
    }
}

TEST(kinds_of_features)
{
    static const double LIMITS[] = {35, 60};
    static const char *const WITH[] = {"zip"};
    static const td_feature FEATURES[] = {
        {.kind = "numeric", .column = "income"},
        {.kind = "bucketized", .column = "age", .boundaries = LIMITS, .n_boundaries = 2},
        {.kind = "one_hot", .column = "zip"},
        {.kind = "hashed", .column = "zip", .buckets = 3},
        {.kind = "crossed", .column = "city", .with = WITH, .n_with = 1, .buckets = 4},
        {.kind = "embedding", .column = "city"},
        {.kind = "text", .column = "note"},
    };
    td__data_opts o = table(TABLE);
    td__data *d;

    o.source_opts.features = FEATURES;
    o.source_opts.n_features = TD_LEN(FEATURES);
    o.source_opts.missing = "median";
    CHECK_OK(td__data_open(&o, &d));
    td__dataset *p = td__data_part(d, TD_PART_TRAIN);
    CHECK_EQ_INT(p->n_fields, 4);
    assert_string_equal(p->fields[2].name, "city");
    CHECK_EQ_INT(p->fields[2].classes, 4); /* other, Bonn, Oslo, Rome */
    assert_string_equal(p->fields[2].class_names[2], "Oslo");
    assert_string_equal(p->fields[3].name, "note");
    CHECK_EQ_INT(p->fields[0].shape.dim[0], 1 + 3 + 4 + 3 + 4);
    static const int INTERVAL[] = {0, 1, 1, 1, 2}, CITY[] = {2, 3, 1, 0, 2},
                     ZIP[] = {0, 1, 3, 0, 2};
    static const char *const NOTE[] = {"likes tea", "", "rain", "no", "yes"};
    int hashed[ROWS] = {0}, crossed[ROWS] = {0};
    for (int64_t i = 0; i < ROWS; i++) {
        float x[15];
        int32_t y, city;
        float note[9]; /* bytes that no stage has read: as numbers, by 255 */
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){x, &y, &city, note}));
        CHECK_EQ_INT(city, CITY[i]);
        for (size_t k = 0; k < strlen(NOTE[i]); k++)
            CHECK_EQ_INT(lround((double)note[k] * 255), NOTE[i][k]);
        for (int k = 0; k < 3; k++)
            CHECK_EQ_INT((int)x[1 + k], k == INTERVAL[i]);
        for (int k = 0; k < 4; k++)
            CHECK_EQ_INT((int)x[4 + k], k == ZIP[i]);
        float sum = 0;
        for (int k = 0; k < 7; k++)
            sum += x[8 + k];
        CHECK(sum == 2, "%g places of two hashes", (double)sum);
        for (int k = 1; k < 4; k++) {
            hashed[i] += k < 3 && x[8 + k] > 0 ? k : 0;
            crossed[i] += x[11 + k] > 0 ? k : 0;
        }
    }
    CHECK_EQ_INT(hashed[0], hashed[3]); /* the same zip */
    CHECK(crossed[0] != crossed[4] || crossed[0] != crossed[1] || crossed[1] != crossed[2],
          "all in bucket %d", crossed[0]);
    td__data_close(d);
    check_tmpdir_remove();
}

/* New rows are filled in by what was measured on the train file. */
TEST(new_rows)
{
    static const char *const COLUMNS[] = {"age", "income"};
    static const char NEW[] = "age,income\n,77\n30,None\n";
    td__data_opts o = table(TABLE);
    td__text text = {0};
    td__fit *fit;
    td__data *d;

    o.source_opts.columns = COLUMNS;
    o.source_opts.n_columns = 2;
    o.source_opts.missing = "mean";
    check_write_file(check_path("new.csv"), NEW, strlen(NEW));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(td__data_open(&o, &d));
        CHECK_OK(td__data_fit(d, &text));
        CHECK_OK(td__data_columns(d, &text)); /* a line for each, after the JSON */
        CHECK(strstr(text.data, "column age") && (round || strstr(text.data, ", 20 % missing")),
              "%s", text.data);
        td__data_close(d);
        *strstr(text.data, "  column") = 0;
        CHECK_OK(td__fit_parse(text.data, strlen(text.data), "fit", &fit));
        td__data_opts with = o;
        with.fit = fit;
        with.input = check_path("new.csv");
        td_status st = td__data_open(&with, &d);
        CHECK(st == (round ? TD_EPROTO : TD_OK), "%s", td_last_error());
        for (int64_t i = 0; !st && i < 2; i++) {
            float x[2];
            int32_t y;
            CHECK_OK(
                td__dataset_read(td__data_part(d, TD_PART_TEST), &i, 1, NULL, (void *[]){x, &y}));
            CHECK(fabs((double)x[i] - (i ? 97.625 : 42.5)) < 1e-5, "%g", (double)x[i]);
        }
        td__data_close(d);
        td__fit_destroy(fit);
        td__text_fini(&text);
        o.source_opts.missing = "drop"; /* then a row to predict must have all */
    }
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_cells),
        cmocka_unit_test(words_for_missing),
        cmocka_unit_test(measured_on_training_rows),
        cmocka_unit_test(kinds_of_features),
        cmocka_unit_test(new_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
