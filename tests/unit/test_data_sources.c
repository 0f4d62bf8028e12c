/* The list of sources; those of images and arrays, on small files that the test makes and on files
 * that are wrong: one clear line, never a crash; and those that draw their samples. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "support/check.h"
#include "support/sources.h"
#include "tandem/tensor.h"

static const uint8_t IMAGES[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const uint8_t LABELS[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 1};

TEST(idx_plain_and_packed)
{
    const char *dir = check_tmpdir();
    td__source_opts o = {.dir = dir};

    check_write_file(check_path("train-images-idx3-ubyte"), IMAGES, sizeof IMAGES);
    check_write_file(check_path("train-labels.idx1-ubyte"), LABELS, sizeof LABELS);
    source_write_gz("t10k-images-idx3-ubyte.gz", IMAGES, sizeof IMAGES);
    source_write_gz("t10k-labels-idx1-ubyte.gz", LABELS, sizeof LABELS);
    for (int p = 0; p < 2; p++) {
        td__dataset *d;
        CHECK_OK(source_open("idx", &o, p ? "test" : "train", &d));
        CHECK_EQ_INT(d->count, 2);
        assert_true(td_shape_equal(&d->fields[0].shape, &TD_SHAPE(1, 2, 3)));
        CHECK_EQ_INT(d->fields[0].dtype, TD_U8);
        CHECK_EQ_INT(d->fields[1].classes, 5);
        void *const *v = source_read(d, 1);
        assert_memory_equal(v[0], IMAGES + 22, 6);
        CHECK_EQ_INT(*(int32_t *)v[1], 1);
        td__dataset_destroy(d);
    }
    source_refused("idx", &o, "valid", TD_ENOTSUP, "valid");
    check_tmpdir_remove();
}

TEST(idx_hostile)
{
    static const struct {
        uint8_t bytes[32];
        size_t nbytes;
        const char *text;
    } BAD[] = {
        {{0}, 0, "not an IDX file"},
        {{1, 2, 3, 4}, 4, "not an IDX file"},
        {{0, 0, 0x0d, 1, 0, 0, 0, 0}, 8, "type 0x0d"},
        {{0, 0, 8, 0}, 4, "0 axes"},
        {{0, 0, 8, 200}, 4, "200 axes"},
        {{0, 0, 8, 3, 0, 0}, 6, "truncated"},
        {{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
         16,
         "impossible sizes"},
        {{0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 2}, 12, "header says 8589934590 bytes"},
        {{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5, 6}, 18, "but it has 2"},
        {{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5}, 17, "1 images, but 2 labels"},
        {{0x1f, 0x8b, 8, 0, 0, 0}, 6, "damaged or truncated"},
    };
    td__source_opts o = {.dir = check_tmpdir()};

    source_refused("idx", &o, "train", TD_EINVAL, "get the four files of MNIST");
    check_write_file(check_path("train-labels-idx1-ubyte"), LABELS, sizeof LABELS);
    for (int i = 0; i < TD_LEN(BAD); i++) {
        check_write_file(check_path("train-images-idx3-ubyte"), BAD[i].bytes, BAD[i].nbytes);
        source_refused("idx", &o, "train", TD_EPROTO, BAD[i].text);
    }
    /* A packed file whose header promises more than it can hold. */
    unlink(check_path("train-images-idx3-ubyte"));
    uint8_t huge[16] = {0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 16};
    source_write_gz("train-images-idx3-ubyte.gz", huge, 12);
    source_refused("idx", &o, "train", TD_EPROTO, "but its header says");
    unlink(check_path("train-images-idx3-ubyte.gz"));
    mkdir(check_path("train-images-idx3-ubyte"), 0777);
    source_refused("idx", &o, "train", TD_EINVAL, "is a directory");
    rmdir(check_path("train-images-idx3-ubyte"));
    assert_int_equal(symlink("train-images-idx3-ubyte", check_path("train-images-idx3-ubyte")), 0);
    source_refused("idx", &o, "train", TD_EINVAL, "symbolic links");
    unlink(check_path("train-images-idx3-ubyte"));
    check_tmpdir_remove();
}

TEST(cifar)
{
    enum { RECORD = 3073 };
    td__source_opts o = {.dir = check_tmpdir()};
    uint8_t *file = calloc(2, RECORD);
    td__dataset *d;
    char name[64];

    source_refused("cifar", &o, "train", TD_EINVAL, "CIFAR-10");
    file[0] = 7;
    file[RECORD] = 9;
    for (int i = 0; i < RECORD - 1; i++)
        file[RECORD + 1 + i] = (uint8_t)i;
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        check_write_file(check_path(name), file, 2 * RECORD);
    }
    check_write_file(check_path("test_batch.bin"), file, 2 * RECORD);
    source_write_text("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    CHECK_OK(source_open("cifar", &o, "train", &d));
    CHECK_EQ_INT(d->count, 10);
    assert_string_equal(d->fields[1].class_names[9], "j");
    void *const *v = source_read(d, 3);
    assert_memory_equal(v[0], file + RECORD + 1, RECORD - 1);
    CHECK_EQ_INT(*(int32_t *)v[1], 9);
    td__dataset_destroy(d);
    CHECK_OK(source_open("cifar", &o, "test", &d));
    td__dataset_destroy(d);
    check_write_file(check_path("test_batch.bin"), file, 2 * RECORD - 1);
    source_refused("cifar", &o, "test", TD_EPROTO, "not a multiple");
    file[0] = 10;
    check_write_file(check_path("test_batch.bin"), file, RECORD);
    source_refused("cifar", &o, "test", TD_EPROTO, "label 10");
    o.classes = 100;
    source_refused("cifar", &o, "test", TD_EINVAL, "CIFAR-100");
    o.classes = 11;
    source_refused("cifar", &o, "test", TD_EINVAL, "10 or 100");
    free(file);
    check_tmpdir_remove();
}

TEST(npy)
{
    td__source_opts o = {.dir = check_tmpdir(), .train = "x=x.npy,y=y.npy"};
    float values[6] = {0, 1, 2, 3, 4, 5};
    int64_t classes[3] = {2, 0, 1};
    td_tensor x, y;
    td__dataset *d;

    CHECK_OK(td_tensor_wrap(&x, TD_F32, TD_SHAPE(3, 2), values));
    CHECK_OK(td_tensor_wrap(&y, TD_I64, TD_SHAPE(3), classes));
    CHECK_OK(td_npy_save(check_path("x.npy"), &x));
    CHECK_OK(td_npy_save(check_path("y.npy"), &y));
    CHECK_OK(source_open("npy", &o, "train", &d));
    CHECK_EQ_INT(d->fields[1].dtype, TD_I32);
    CHECK_EQ_INT(d->fields[1].classes, 3);
    void *const *v = source_read(d, 2);
    assert_memory_equal(v[0], values + 4, 8);
    CHECK_EQ_INT(*(int32_t *)v[1], 1);
    td__dataset_destroy(d);
    source_refused("npy", &o, "test", TD_ENOTSUP, "test");

    /* an archive with parts: test has the classes of train */
    int64_t fewer[1] = {1};
    td_tensor ty, tx;
    CHECK_OK(td_tensor_wrap(&ty, TD_I64, TD_SHAPE(1), fewer));
    CHECK_OK(td_tensor_wrap(&tx, TD_F32, TD_SHAPE(1, 2), values));
    td_named_tensor items[] = {{"x_train", &x}, {"y_train", &y}, {"x_test", &tx}, {"y_test", &ty}};
    CHECK_OK(td_npz_save(check_path("d.npz"), items, 4, true));
    o.train = "d.npz";
    CHECK_OK(source_open("npy", &o, "train", &d));
    td__dataset_destroy(d);
    CHECK_OK(source_open("npy", &o, "test", &d));
    CHECK_EQ_INT(d->count, 1);
    CHECK_EQ_INT(d->fields[1].classes, 3);
    td__dataset_destroy(d);
    source_refused("npy", &o, "valid", TD_ENOTSUP, "valid");

    /* another order than train's, and new samples without labels */
    td_named_tensor turned[] = {{"y", &ty}, {"x", &tx}};
    CHECK_OK(td_npz_save(check_path("t.npz"), turned, 2, true));
    CHECK_OK(td_npz_save(check_path("n.npz"), turned + 1, 1, true));
    o.train = "x=x.npy,y=y.npy";
    o.test = "t.npz";
    CHECK_OK(source_open("npy", &o, "test", &d));
    CHECK(strcmp(d->fields[0].name, "x") == 0 && d->fields[1].classes == 3, "fields as in train");
    td__dataset_destroy(d);
    o.test = "n.npz";
    source_refused("npy", &o, "test", TD_EINVAL, "the array y of train is missing");
    o.unlabelled = true;
    CHECK_OK(source_open("npy", &o, "test", &d));
    v = source_read(d, 0);
    CHECK(d->fields[1].classes == 3 && *(int32_t *)v[1] == 0, "no label is class 0");
    td__dataset_destroy(d);
    o.test = NULL;

    values[3] = (float)strtod("nan", NULL);
    CHECK_OK(td_npy_save(check_path("x.npy"), &x));
    o.train = "x=x.npy,y=y.npy";
    source_refused("npy", &o, "train", TD_EPROTO, "not a finite number");
    classes[0] = -1;
    CHECK_OK(td_npy_save(check_path("y.npy"), &y));
    o.train = "y=y.npy";
    source_refused("npy", &o, "train", TD_EPROTO, "class -1 is negative");
    o.train = "x.npy";
    source_refused("npy", &o, "train", TD_EINVAL, "x=images.npy");
    o.train = "x=none.npy";
    source_refused("npy", &o, "train", TD_EINVAL, "no such file");
    source_write_text("z.npy", "\x93NUMPY\x01");
    o.train = "x=z.npy";
    source_refused("npy", &o, "train", TD_EPROTO, "npy");
    check_tmpdir_remove();
}

/* A drawn sample depends on seed, part and number alone. */
TEST(generators)
{
    static const char *const NAMES[] = {"digits", "spirals"};
    static float a[3][784], b[784];
    int32_t y;

    for (int g = 0; g < TD_LEN(NAMES); g++) {
        td__dataset *d, *e;
        size_t differ = 0;
        CHECK_OK(source_open(NAMES[g], &(td__source_opts){.count = 50, .seed = 4}, "train", &d));
        CHECK_EQ_INT(d->count, 50);
        int counts[10] = {0};
        for (int64_t i = 0; i < 50; i++) {
            CHECK_OK(td__dataset_read(d, &i, 1, NULL, (void *[]){b, &y}));
            assert_in_range(y, 0, d->fields[1].classes - 1);
            counts[y]++;
        }
        for (int c = 0; c < d->fields[1].classes; c++)
            assert_true(counts[c] > 0);
        int32_t ys[3];
        CHECK_OK(td__dataset_read(d, (int64_t[]){5, 6, 5}, 3, NULL, (void *[]){a, ys}));
        size_t n = td__field_nbytes(&d->fields[0]) / sizeof(float);
        float *flat = &a[0][0];
        assert_memory_equal(flat, flat + 2 * n, n * sizeof(float));
        assert_memory_not_equal(flat, flat + n, n * sizeof(float));
        static const struct {
            uint64_t seed;
            const char *part;
        } OTHER[] = {{5, "train"}, {4, "valid"}, {4, "test"}};
        for (int k = 0; k < TD_LEN(OTHER); k++) {
            CHECK_OK(source_open(NAMES[g], &(td__source_opts){.count = 50, .seed = OTHER[k].seed},
                                 OTHER[k].part, &e));
            CHECK_OK(td__dataset_read(e, (int64_t[]){5}, 1, NULL, (void *[]){b, &y}));
            differ += memcmp(flat, b, n * sizeof(float)) != 0;
            td__dataset_destroy(e);
        }
        CHECK_EQ_INT(differ, TD_LEN(OTHER));
        td__dataset_destroy(d);
        source_refused(NAMES[g], &(td__source_opts){.count = -1}, "train", TD_EINVAL, "count");
        source_refused(NAMES[g], &(td__source_opts){.noise = -1}, "train", TD_EINVAL, "noise");
    }
}

/* Those with ids: in their ranges, the same for the same number, others for others; clicks and
 * ratings of both kinds. */
TEST(generators_of_ids)
{
    enum { N = 200, NUMBERS = 13, CATEGORIES = 26, VOCAB = 2600 };
    static float x[N * NUMBERS], again[NUMBERS], y[N];
    static int32_t ids[N * CATEGORIES], same[CATEGORIES], clicked[N], user[N], item[N];
    const td__source_opts o = {.count = N, .vocab = VOCAB, .seed = 4};
    int64_t index[N];
    td__dataset *d;
    int clicks = 0, high = 0;

    for (int64_t i = 0; i < N; i++)
        index[i] = i;
    CHECK_OK(source_open("clicks", &o, "train", &d));
    CHECK_OK(td__dataset_read(d, index, N, NULL, (void *[]){x, ids, clicked}));
    for (int i = 0; i < N; i++)
        for (int c = 0; c < CATEGORIES; c++)
            assert_in_range(ids[i * CATEGORIES + c], c * 100, c * 100 + 99);
    for (int i = 0; i < N; i++)
        clicks += clicked[i];
    CHECK(clicks > N / 20 && clicks < N - N / 20, "%d clicks of %d", clicks, N);
    CHECK_OK(td__dataset_read(d, &index[7], 1, NULL, (void *[]){again, same, clicked}));
    assert_memory_equal(again, x + 7 * NUMBERS, sizeof again);
    assert_memory_equal(same, ids + 7 * CATEGORIES, sizeof same);
    assert_memory_not_equal(same, ids + 8 * CATEGORIES, sizeof same);
    td__dataset_destroy(d);
    CHECK_OK(source_open("ratings", &o, "test", &d));
    CHECK_OK(td__dataset_read(d, index, 100, NULL, (void *[]){user, item, y}));
    for (int i = 0; i < 100; i++) {
        assert_in_range(user[i], 0, VOCAB - 1);
        assert_in_range(item[i], 0, VOCAB - 1);
        high += y[i] > 0;
    }
    CHECK(high > 10 && high < 90, "%d of 100 ratings are high", high);
    td__dataset_destroy(d);
    source_refused("clicks", &(td__source_opts){.vocab = 20}, "train", TD_EINVAL, "vocab");
    source_refused("ratings", &(td__source_opts){.vocab = -1}, "train", TD_EINVAL, "vocab");
    source_refused("ratings", &(td__source_opts){.noise = -1}, "train", TD_EINVAL, "noise");
}

TEST(the_list_has_every_source)
{
    int n = 0;

    for (; td__source_list(n); n++) {
        const td__source_def *def = td__source_list(n);
        assert_ptr_equal(td__source_find(def->name), def);
        assert_true(strlen(def->help) > 10);
        assert_true(strlen(def->reads) > 2 || def == &td__source_memory); /* which has no keys */
    }
    CHECK_EQ_INT(n, 18);
    assert_null(td__source_find("none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_plain_and_packed),
        cmocka_unit_test(idx_hostile),
        cmocka_unit_test(cifar),
        cmocka_unit_test(npy),
        cmocka_unit_test(generators),
        cmocka_unit_test(generators_of_ids),
        cmocka_unit_test(the_list_has_every_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
