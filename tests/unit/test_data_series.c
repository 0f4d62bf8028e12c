/* Time series (windows over the rows of a table), splits in the order of the file,
 * cross-validation, ids in arrays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "data/data.h"
#include "data/fit_json.h"
#include "support/check.h"
#include "tandem/tensor.h"

/* Row i: u = i, v = 100 + i, y = 1000 + i. */
static td__data_opts rows(int n)
{
    td__data_opts o = {
        .source = "csv",
        .source_opts = {.dir = check_tmpdir(), .train = "a.csv", .target = "number"}};
    FILE *f = fopen(check_path("a.csv"), "w");

    fprintf(f, "u,v,y\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "%d,%d,%d\n", i, 100 + i, 1000 + i);
    fclose(f);
    return o;
}

TEST(windows)
{
    static const struct {
        int64_t window, horizon, stride, count;
    } CASES[] = {{3, 0, 0, 7}, {3, -1, 0, 8}, {4, 2, 0, 5}, {2, 1, 3, 3}, {9, 1, 0, 1}};

    for (int c = 0; c < TD_LEN(CASES); c++) {
        td__data_opts o = rows(10);
        int64_t w = CASES[c].window, stride = CASES[c].stride ? CASES[c].stride : 1;
        int64_t ahead = CASES[c].horizon < 0 ? 0 : CASES[c].horizon ? CASES[c].horizon : 1;
        td__data *d;
        o.source_opts.window = w;
        o.source_opts.horizon = CASES[c].horizon;
        o.source_opts.stride = CASES[c].stride;
        CHECK_OK(td__data_open(&o, &d));
        td__dataset *p = td__data_part(d, TD_PART_TRAIN);
        CHECK_EQ_INT(p->count, CASES[c].count);
        assert_true(td_shape_equal(&p->fields[0].shape, &TD_SHAPE(w, 2)));
        for (int64_t i = 0; i < p->count; i++) {
            float x[9][2], y;
            CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){x, &y}));
            for (int64_t t = 0; t < w; t++)
                CHECK(x[t][0] == (float)(i * stride + t) &&
                          x[t][1] == (float)(100 + i * stride + t),
                      "case %d, sample %d, row %d: %g", c, (int)i, (int)t, (double)x[t][0]);
            CHECK(y == (float)(1000 + i * stride + w - 1 + ahead), "case %d: y %g", c, (double)y);
        }
        td__data_close(d);
        check_tmpdir_remove();
    }
    td__data_opts o = rows(10);
    td__data *d;
    o.source_opts.window = 10;
    CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);
    CHECK(strstr(td_last_error(), "10 rows are too few for a window of 10"), "%s", td_last_error());
    check_tmpdir_remove();
}

/* New rows: the last window is that of the future. */
TEST(windows_of_new_rows_reach_the_last_row)
{
    static const char NEW[] = "u,v\n7,8\n9,10\n11,12\n13,14\n";
    td__data_opts o = rows(10);
    td__text text = {0};
    td__fit *fit;
    td__data *d;

    o.source_opts.window = 3;
    CHECK_OK(td__data_open(&o, &d));
    CHECK_OK(td__data_fit(d, &text));
    td__data_close(d);
    CHECK_OK(td__fit_parse(text.data, text.used, "fit", &fit));
    check_write_file(check_path("new.csv"), NEW, strlen(NEW));
    o.fit = fit;
    o.input = check_path("new.csv");
    CHECK_OK(td__data_open(&o, &d));
    td__dataset *p = td__data_part(d, TD_PART_TEST);
    CHECK_EQ_INT(p->count, 2);
    float x[3][2], y;
    CHECK_OK(td__dataset_read(p, &(int64_t){1}, 1, NULL, (void *[]){x, &y}));
    CHECK(x[2][0] == 13 && y == 0, "%g, %g", (double)x[2][0], (double)y);
    td__data_close(d);
    td__fit_destroy(fit);
    td__text_fini(&text);
    check_tmpdir_remove();
}

/* Windows do not run over rows that data.missing: drop leaves out, except in runs of older
 * versions, whose preprocessing does not say so. */
TEST(windows_end_at_gaps)
{
    static const char ROWS[] = "u,v,y\n0,0,0\n1,1,1\n2,2,2\n3,,3\n4,4,4\n5,5,5\n6,6,6\n7,7,7\n"
                               "NA,8,8\n9,9,9\n10,10,10\n";
    static const int FIRST[] = {0, 4, 5}, STRIDE[] = {0, 4}, JOINED[] = {0, 1, 2, 4, 5, 6, 7};
    td__data_opts o = rows(1);
    td__text text = {0};
    td__fit *fit;
    td__data *d;
    float x[2][2], y;

    check_write_file(check_path("a.csv"), ROWS, strlen(ROWS));
    o.source_opts.missing = "drop";
    o.source_opts.window = 2;
    for (int stride = 1; stride <= 2; stride++) {
        const int *first = stride == 1 ? FIRST : STRIDE;
        o.source_opts.stride = stride;
        CHECK_OK(td__data_open(&o, &d));
        td__dataset *p = td__data_part(d, TD_PART_TRAIN);
        CHECK_EQ_INT(p->count, stride == 1 ? TD_LEN(FIRST) : TD_LEN(STRIDE));
        for (int64_t i = 0; i < p->count; i++) {
            CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){x, &y}));
            CHECK(x[0][0] == (float)first[i] && x[1][1] == (float)(first[i] + 1) &&
                      y == (float)(first[i] + 2),
                  "window %d: %g, %g, label %g", (int)i, (double)x[0][0], (double)x[1][1],
                  (double)y);
        }
        if (stride == 1)
            CHECK_OK(td__data_fit(d, &text));
        td__data_close(d);
    }
    char *gaps = strstr(text.data, "\"gaps\"");
    CHECK(gaps, "%s", text.data);
    memcpy(gaps, "\"else\"", 6);
    CHECK_OK(td__fit_parse(text.data, text.used, "fit", &fit));
    o.fit = fit;
    o.source_opts.stride = 1;
    CHECK_OK(td__data_open(&o, &d));
    td__dataset *p = td__data_part(d, TD_PART_TRAIN);
    CHECK_EQ_INT(p->count, TD_LEN(JOINED));
    for (int64_t i = 0; i < p->count; i++) {
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){x, &y}));
        CHECK(x[0][0] == (float)JOINED[i], "joined window %d: %g", (int)i, (double)x[0][0]);
    }
    td__data_close(d);
    o.fit = NULL;
    o.source_opts.window = 4;
    CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);
    CHECK(strstr(td_last_error(), "no 5 rows on end are whole"), "%s", td_last_error());
    td__fit_destroy(fit);
    td__text_fini(&text);
    check_tmpdir_remove();
}

/* The means of a normalize stage, as text, and a normalized window. */
static void normalized(const td__data_opts *o, td__text *text, float x[3][2])
{
    td__data *d;
    float y;

    CHECK_OK(td__data_open(o, &d));
    if (!o->fit)
        CHECK_OK(td__data_fit(d, text));
    CHECK_OK(td__dataset_read(td__data_part(d, TD_PART_TRAIN), &(int64_t){1}, 1, NULL,
                              (void *[]){x, &y}));
    td__data_close(d);
}

/* Each column has its own mean over all rows of all windows. A run of an older version, which has
 * one for all columns, goes on with that. */
TEST(columns_are_normalized_one_by_one)
{
    static const td__map_opts NORMALIZE = {.name = "normalize"};
    static const char OLD[] = "{\"format\": \"tandem preprocessing\", \"version\": 1, \"source\": "
                              "\"csv\", \"parts\": {}, \"fields\": %s, \"measured\": %s, \"maps\": "
                              "[{\"map\": \"normalize\", \"mean\": [50], \"std\": [10]}]}";
    td__data_opts o = rows(10); /* 7 windows of 3 rows: their middle row is 1 .. 7 */
    float x[3][2];
    td__text text = {0}, old = {0};
    json_error_t error;
    td__fit *fit;

    o.source_opts.window = 3;
    o.maps = &NORMALIZE;
    o.n_maps = 1;
    normalized(&o, &text, x);
    double std = sqrt(4 + 2.0 / 3); /* variances of 1 .. 7 and of -1 .. 1 */
    for (int t = 0; t < 3; t++)
        for (int c = 0; c < 2; c++)
            CHECK(fabs((double)x[t][c] - (1 + t - 4) / std) < 1e-5, "row %d, column %d: %g", t, c,
                  (double)x[t][c]);

    json_t *root = json_loads(text.data, 0, &error);
    char *fields = json_dumps(json_object_get(root, "fields"), 0);
    char *measured = json_dumps(json_object_get(root, "measured"), 0);
    td__text_printf(&old, OLD, fields, measured);
    CHECK_OK(td__fit_parse(old.data, old.used, "fit", &fit));
    o.fit = fit;
    normalized(&o, NULL, x);
    CHECK(fabsf(x[0][0] - (1 - 50) / 10.0f) < 1e-5f && fabsf(x[0][1] - (101 - 50) / 10.0f) < 1e-5f,
          "%g, %g", (double)x[0][0], (double)x[0][1]);
    td__fit_destroy(fit);
    /* Its own: the same as when it was measured. */
    CHECK_OK(td__fit_parse(text.data, text.used, "fit", &fit));
    o.fit = fit;
    normalized(&o, NULL, x);
    CHECK(fabs((double)x[0][1] - (1 - 4) / std) < 1e-5, "%g", (double)x[0][1]);
    td__fit_destroy(fit);
    free(fields);
    free(measured);
    json_decref(root);
    td__text_fini(&old);
    td__text_fini(&text);
    check_tmpdir_remove();
}

/* Which rows a part has, by u of their first row. */
static int64_t rows_of(td__data *d, td__part part, int *at, int64_t width)
{
    td__dataset *p = td__data_part(d, part);

    for (int64_t i = 0; p && i < p->count; i++) {
        float x[64], y;
        CHECK(width <= 64, "%d", (int)width);
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){x, &y}));
        at[i] = (int)x[0];
    }
    return p ? p->count : 0;
}

TEST(splits_in_the_order_of_the_file)
{
    td__data_opts o = rows(20);
    td__data *d;
    int at[20];

    o.order = "file";
    o.valid_fraction = 0.2;
    o.test_fraction = 0.1;
    for (int64_t window = 0; window <= 3; window += 3) {
        o.source_opts.window = window; /* 17 windows, gaps of 3 */
        CHECK_OK(td__data_open(&o, &d));
        int64_t n = rows_of(d, TD_PART_TEST, at, 6);
        CHECK_EQ_INT(n, 2);
        CHECK_EQ_INT(at[0], window ? 15 : 18);
        n = rows_of(d, TD_PART_VALID, at, 6);
        CHECK_EQ_INT(n, window ? 3 : 4);
        CHECK_EQ_INT(at[0], window ? 9 : 14);
        n = rows_of(d, TD_PART_TRAIN, at, 6);
        CHECK_EQ_INT(n, window ? 6 : 14);
        CHECK_EQ_INT(at[n - 1], n - 1);
        td__data_close(d);
    }
    check_tmpdir_remove();
}

/* Every sample is in the validation part of one fold; sizes as those of scikit-learn's KFold. */
TEST(folds)
{
    enum { N = 23, FOLDS = 5 };

    for (int ordered = 0; ordered < 2; ordered++) {
        td__data_opts o = rows(N);
        int seen[N] = {0}, at[N];
        o.folds = FOLDS;
        o.valid_fraction = 0.5; /* does not matter */
        o.order = ordered ? "file" : NULL;
        for (o.fold = 0; o.fold < FOLDS; o.fold++) {
            td__data *d;
            CHECK_OK(td__data_open(&o, &d));
            int64_t n = rows_of(d, TD_PART_VALID, at, 2);
            CHECK_EQ_INT(n, o.fold < N % FOLDS ? N / FOLDS + 1 : N / FOLDS);
            for (int64_t i = 0; i < n; i++)
                seen[at[i]]++;
            CHECK(!ordered || at[0] == (int)(o.fold < 3 ? 5 * o.fold : 15 + 4 * (o.fold - 3)),
                  "fold %d begins at %d", (int)o.fold, at[0]);
            CHECK_EQ_INT(rows_of(d, TD_PART_TRAIN, at, 2), N - n);
            td__data_close(d);
        }
        for (int i = 0; i < N; i++)
            CHECK(seen[i] == 1, "row %d is in %d folds", i, seen[i]);
        td__data *d;
        CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL); /* fold 5 of 5 */
        check_tmpdir_remove();
    }
}

TEST(ids_of_arrays)
{
    int64_t ids[3][2] = {{0, 7}, {3, 1}, {2, 2}}, y[3] = {0, 1, 0};
    td_tensor tx, ty;
    td__data_opts o = {.source = "npy", .source_opts = {.dir = check_tmpdir(), .train = "a.npz"}};
    td__data *d;

    for (int negative = 0; negative < 2; negative++) {
        ids[1][1] = negative ? -1 : 1;
        CHECK_OK(td_tensor_wrap(&tx, TD_I64, TD_SHAPE(3, 2), ids));
        CHECK_OK(td_tensor_wrap(&ty, TD_I64, TD_SHAPE(3), y));
        td_named_tensor items[] = {{"x", &tx}, {"y", &ty}};
        CHECK_OK(td_npz_save(check_path("a.npz"), items, 2, false));
        CHECK_OK(td__data_open(&o, &d));
        CHECK_EQ_INT(td__data_part(d, TD_PART_TRAIN)->fields[0].classes, negative ? 0 : 8);
        td__data_close(d);
    }
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(windows_of_new_rows_reach_the_last_row),
        cmocka_unit_test(windows_end_at_gaps),
        cmocka_unit_test(columns_are_normalized_one_by_one),
        cmocka_unit_test(splits_in_the_order_of_the_file),
        cmocka_unit_test(folds),
        cmocka_unit_test(ids_of_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
