/* Files that TensorFlow and pyarrow wrote are read back, every value, and what is not supported is
 * refused in a line: TFRecord files of tf.train.Example with numbers and with images; Parquet files
 * plain, with dictionaries and with deltas, in row groups and in pages of both versions,
 * uncompressed and by snappy, gzip and zstd, with missing values. tests/golden/formats/make.py
 * wrote them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "data/data.h"
#include "data/format/parquet.h"
#include "data/schema/schema.h"
#include "support/check.h"
#include "support/golden_json.h"

#define FOLDER "tests/golden/formats/"
enum { ROWS = 70, COLUMNS = 17, PIXELS = 5 * 6 * 3 };

/* ---- TFRecord -------------------------------------------------------------------------------- */

static td__data *open_tfrecord(const char *name)
{
    td__data_opts o = {.source = "tfrecord", .source_opts = {.dir = FOLDER, .train = name}};
    td__data *d;

    CHECK_OK(td__data_open(&o, &d));
    return d;
}

static void check_samples(td__data *d, const json_t *want)
{
    td__dataset *p = td__data_part(d, TD_PART_TRAIN);
    int64_t width = td_shape_count(&p->fields[0].shape);
    double x[PIXELS];
    float got[PIXELS];
    int32_t y;

    CHECK(p->n_fields == 2 && width <= PIXELS, "%d values", (int)width);
    CHECK_EQ_INT(p->count, json_array_size(want));
    for (int64_t i = 0; i < p->count; i++) {
        const json_t *row = json_array_get(want, (size_t)i);
        CHECK_EQ_INT(golden_list(row, "x", x, PIXELS), width);
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){got, &y}));
        CHECK_EQ_INT(y, golden_int(row, "y"));
        for (int64_t k = 0; k < width; k++)
            CHECK(got[k] == (float)x[k], "sample %d: value %d is %.9g, not %.17g", (int)i, (int)k,
                  (double)got[k], x[k]);
    }
}

TEST(tfrecord_of_numbers)
{
    json_t *root = golden_json(FOLDER "expected.json");
    td__data *d = open_tfrecord("numbers.tfrecord");

    check_samples(d, golden_get(golden_get(root, "tfrecord"), "numbers"));
    CHECK_EQ_INT(td__data_part(d, TD_PART_TRAIN)->fields[1].classes, 4);
    td__data_close(d);
    json_decref(root);
}

/* Images are bytes; where nothing makes numbers of them they are 0 .. 1. */
TEST(tfrecord_of_images)
{
    json_t *root = golden_json(FOLDER "expected.json");
    const json_t *want = golden_get(golden_get(root, "tfrecord"), "images");
    td__data *d = open_tfrecord("images.tfrecord");
    td__dataset *p = td__data_source_part(d, TD_PART_TRAIN);

    assert_true(td_shape_equal(&p->fields[0].shape, &TD_SHAPE(3, 5, 6)));
    CHECK_EQ_INT(p->count, json_array_size(want));
    for (int64_t i = 0; i < p->count; i++) {
        const json_t *row = json_array_get(want, (size_t)i);
        double x[PIXELS];
        uint8_t got[PIXELS];
        int32_t y;
        CHECK_EQ_INT(golden_list(row, "x", x, PIXELS), PIXELS);
        CHECK_OK(td__dataset_read(p, &i, 1, NULL, (void *[]){got, &y}));
        CHECK_EQ_INT(y, golden_int(row, "y"));
        for (int k = 0; k < PIXELS; k++)
            CHECK(got[k] == (uint8_t)x[k], "image %d: byte %d is %d, not %g", (int)i, k, got[k],
                  x[k]);
    }
    td__data_close(d);
    json_decref(root);
}

/* ---- Parquet --------------------------------------------------------------------------------- */

static td_status parse(const char *path, td__file_map *map, td__records *r)
{
    CHECK_OK(td__file_map_open(map, path));
    CHECK_OK(td__records_init(r, path));
    return td__parquet_parse(r, &(td__source_opts){0}, map->data, map->nbytes);
}

static void check_cell(const td__records *r, int64_t row, int64_t column, const json_t *want,
                       const char *where)
{
    char room[TD__CELL_ROOM], text[32];
    td__cell cell = td__cell_at(r, row, column, room);
    const char *expected = json_string_value(want);
    bool there = false;
    double x = 0;

    if (json_is_integer(want)) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(want));
        expected = text;
    }
    if (json_is_null(want)) {
        CHECK(!cell.text && td__missing_at(r, row, column), "%s: row %d is not missing", where,
              (int)row);
    } else if (json_is_real(want)) {
        td__rough_rows(r, row, 1, column, &x, &there);
        CHECK(there && x == json_real_value(want), "%s: row %d is %.*s, not %.17g", where, (int)row,
              (int)cell.nbytes, cell.text, json_real_value(want));
    } else {
        CHECK(cell.text && cell.nbytes == strlen(expected) &&
                  memcmp(cell.text, expected, cell.nbytes) == 0,
              "%s: row %d is '%.*s', not '%s'", where, (int)row, (int)cell.nbytes, cell.text,
              expected);
    }
}

TEST(parquet)
{
    json_t *root = golden_json(FOLDER "expected.json");
    const json_t *ways = golden_get(root, "ways"), *columns = golden_get(root, "columns"), *list;
    const char *name;

    CHECK_EQ_INT(json_object_size(columns), COLUMNS);
    CHECK(json_array_size(ways) >= 5, "%zu ways", json_array_size(ways));
    for (size_t w = 0; w < json_array_size(ways); w++) {
        char path[128], where[160];
        td__file_map map;
        td__records r;
        snprintf(path, sizeof path, FOLDER "%s.parquet",
                 json_string_value(json_array_get(ways, w)));
        CHECK_OK(parse(path, &map, &r));
        CHECK_EQ_INT(r.rows, ROWS);
        CHECK_EQ_INT(r.cols, COLUMNS);
        json_object_foreach((json_t *)(uintptr_t)columns, name, list)
        {
            int64_t at = td__records_find(&r, name);
            snprintf(where, sizeof where, "%s: %s", path, name);
            CHECK(at >= 0 && json_array_size(list) == ROWS, "%s: no such column", where);
            for (size_t i = 0; i < ROWS; i++)
                check_cell(&r, (int64_t)i, at, json_array_get(list, i), where);
        }
        td__records_fini(&r);
        td__file_map_close(&map);
    }
    json_decref(root);
}

TEST(refused)
{
    static const struct {
        const char *source, *name, *what;
    } CASES[] = {
        {"parquet", "nested.parquet", "a nested column is not supported"},
        {"parquet", "brotli.parquet", "this compression is not supported"},
        {"parquet", "split.parquet", "an encoding of a column is not supported"},
        {"parquet", "int96.parquet", "a column of INT96 is not supported"},
        {"parquet", "numbers.tfrecord", "it does not begin and end with PAR1"},
        {"tfrecord", "packed.tfrecord", "compressed; unpack it"},
        {"tfrecord", "plain.parquet", "plain.parquet"},
    };

    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__data_opts o = {.source = CASES[i].source,
                           .source_opts = {.dir = FOLDER, .train = CASES[i].name}};
        td__data *d = NULL;
        td_status st = td__data_open(&o, &d);
        CHECK(st == TD_EINVAL || st == TD_EPROTO, "%s: status %d", CASES[i].name, (int)st);
        CHECK(strstr(td_last_error(), CASES[i].what), "%s: %s", CASES[i].name, td_last_error());
        td__data_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tfrecord_of_numbers),
        cmocka_unit_test(tfrecord_of_images),
        cmocka_unit_test(parquet),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
