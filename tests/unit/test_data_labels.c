/* Labels and features that are no plain numbers: ignored labels, labels out of range, truth values.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "data/data.h"
#include "support/check.h"
#include "tandem/tensor.h"

static void write_npz(const void *x, td_dtype x_type, const int64_t *y, int64_t n)
{
    td_tensor tx, ty;

    CHECK_OK(td_tensor_wrap(&tx, x_type, TD_SHAPE(n, 1), (void *)(uintptr_t)x));
    CHECK_OK(td_tensor_wrap(&ty, TD_I64, TD_SHAPE(n), (void *)(uintptr_t)y));
    td_named_tensor items[] = {{"x", &tx}, {"y", &ty}};
    CHECK_OK(td_npz_save(check_path("a.npz"), items, 2, false));
}

static void check_classes(const td__data_opts *o, int64_t classes, const int32_t *want, int64_t n)
{
    td__data *d;

    CHECK_OK(td__data_open(o, &d));
    td__dataset *train = td__data_part(d, TD_PART_TRAIN);
    CHECK_EQ_INT(train->count, n);
    CHECK_EQ_INT(train->fields[1].classes, classes);
    for (int64_t i = 0; i < n; i++) {
        float x;
        int32_t y;
        CHECK_OK(td__dataset_read(train, &i, 1, NULL, (void *[]){&x, &y}));
        CHECK_EQ_INT(y, want[i]);
    }
    td__data_close(d);
}

TEST(ignored_labels)
{
    static const int64_t NUMBERS[] = {-1, -100};

    for (int k = 0; k < TD_LEN(NUMBERS); k++) {
        int64_t none = NUMBERS[k], y[] = {0, none, 2, 1};
        const int32_t want[] = {0, (int32_t)none, 2, 1};
        const float x[] = {1, 2, 3, 4};
        td__data_opts o = {.source = "npy",
                           .source_opts = {.dir = check_tmpdir(), .train = "a.npz"}};
        td__data *d;
        write_npz(x, TD_F32, y, 4);
        CHECK_STATUS(td__data_open(&o, &d), TD_EPROTO);
        o.source_opts.no_class = none;
        check_classes(&o, 3, want, 4);
        /* In a table it would be a class of its own, before the others. */
        char text[100];
        int n = snprintf(text, sizeof text, "x,y\n1,0\n2,%d\n3,2\n4,1\n", (int)none);
        check_write_file(check_path("a.csv"), text, (size_t)n);
        o = (td__data_opts){.source = "csv", .source_opts = {.dir = o.source_opts.dir}};
        o.source_opts.train = "a.csv";
        check_classes(&o, 4, (const int32_t[]){1, 0, 3, 2}, 4);
        o.source_opts.no_class = none;
        check_classes(&o, 3, want, 4);
        check_tmpdir_remove();
    }
}

TEST(labels_out_of_range_are_told_as_they_are)
{
    static const struct {
        int64_t class;
        const char *text;
    } CASES[] = {{INT64_C(5000000000), "sample 1 of y: class 5000000000 is too large"},
                 {INT64_C(-4294967295), "sample 1 of y: class -4294967295 is negative"},
                 {INT64_C(2147483647), "class 2147483647 is too large"}};
    static const float X[] = {1, 2};

    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__data_opts o = {.source = "npy",
                           .source_opts = {.dir = check_tmpdir(), .train = "a.npz"}};
        td__data *d;
        write_npz(X, TD_F32, (const int64_t[]){0, CASES[i].class}, 2);
        CHECK_STATUS(td__data_open(&o, &d), TD_EPROTO);
        CHECK(strstr(td_last_error(), CASES[i].text), "%s", td_last_error());
        check_tmpdir_remove();
    }
}

/* Whole numbers of test may exceed those of train, once a stage has made them numbers; ids may
 * not. */
TEST(whole_numbers_beyond_those_of_train)
{
    static const int64_t X[] = {1, 5, 9, 70};
    const td__map_opts normalize = {.name = "normalize", .field = "x"};
    const td__map_opts one_hot = {.name = "one_hot", .field = "x"};
    td__data_opts o = {.source = "npy", .source_opts = {.dir = check_tmpdir(), .train = "a.npz"}};
    td_tensor t;
    td__data *d;

    write_npz(X, TD_I64, (const int64_t[]){0, 1, 0}, 3);
    CHECK_OK(td_tensor_wrap(&t, TD_I64, TD_SHAPE(2, 1), (void *)(uintptr_t)&X[2]));
    CHECK_OK(td_npy_save(check_path("x.npy"), &t));
    CHECK_OK(td_tensor_wrap(&t, TD_I64, TD_SHAPE(2), (void *)(uintptr_t)&X[2]));
    CHECK_OK(td_npy_save(check_path("y.npy"), &t));
    o.source_opts.test = "x=x.npy";
    o.source_opts.unlabelled = true;
    CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);
    CHECK(strstr(td_last_error(), "id 70 of x does not occur in train"), "%s", td_last_error());
    o.maps = &one_hot;
    o.n_maps = 1;
    CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);
    o.maps = &normalize;
    CHECK_OK(td__data_open(&o, &d));
    td__data_close(d);
    o.source_opts.unlabelled = false;
    o.source_opts.test = "x=x.npy,y=y.npy";
    CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);
    CHECK(strstr(td_last_error(), "class 70 of y does not occur in train"), "%s", td_last_error());
    check_tmpdir_remove();
}

TEST(truth_values_are_0_and_1)
{
    static const uint8_t X[] = {1, 0, 1};
    td__data_opts o = {.source = "npy", .source_opts = {.dir = check_tmpdir(), .train = "a.npz"}};
    td__data *d;

    write_npz(X, TD_BOOL, (const int64_t[]){0, 1, 0}, 3);
    CHECK_OK(td__data_open(&o, &d));
    for (int64_t i = 0; i < 3; i++) {
        float x;
        int32_t y;
        CHECK_OK(
            td__dataset_read(td__data_part(d, TD_PART_TRAIN), &i, 1, NULL, (void *[]){&x, &y}));
        CHECK(x == (float)X[i], "%g for %d", (double)x, X[i]);
    }
    td__data_close(d);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ignored_labels),
        cmocka_unit_test(whole_numbers_beyond_those_of_train),
        cmocka_unit_test(labels_out_of_range_are_told_as_they_are),
        cmocka_unit_test(truth_values_are_0_and_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
