/* Every source on small files that the test makes, and on files that are wrong: one clear line,
 * never a crash. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/check.h"
#include "data/source.h"
#include "support/check.h"
#include "tandem/tensor.h"

static td_status open_part(const char *source, const td__source_opts *o, const char *part,
                           td__dataset **d)
{
    const td__source_def *def = td__source_find(source);
    assert_non_null(def);
    return def->open(o, part, d);
}

/* Sample i of all fields, in buffers that the next call uses again. */
static void *const *read_sample(td__dataset *d, int64_t i)
{
    static _Alignas(64) char buffers[TD__MAX_FIELDS][16384];
    static void *out[TD__MAX_FIELDS];

    for (int f = 0; f < d->n_fields; f++) {
        assert_true(td__field_nbytes(&d->fields[f]) <= sizeof buffers[f]);
        out[f] = buffers[f];
    }
    CHECK_OK(td__dataset_read(d, &i, 1, NULL, out));
    return out;
}

static void write_text(const char *name, const char *text)
{
    check_write_file(check_path(name), text, strlen(text));
}

static void write_gz(const char *name, const void *data, size_t nbytes)
{
    gzFile f = gzopen(check_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, data, (unsigned)nbytes), nbytes);
    gzclose(f);
}

/* Open must fail with this status and say this. */
static void check_refused(const char *source, const td__source_opts *o, const char *part,
                          td_status want, const char *text)
{
    td__dataset *d;
    td_status st = open_part(source, o, part, &d);

    CHECK(st == want, "%s: %s (%s), expected '%s'", source, td_status_name(st), td_last_error(),
          text);
    CHECK(strstr(td_last_error(), text), "%s says '%s', expected '%s'", source, td_last_error(),
          text);
    CHECK(!strchr(td_last_error(), '\n'), "%s: more than one line", source);
}

static const uint8_t IMAGES[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const uint8_t LABELS[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 1};

TEST(idx_plain_and_packed)
{
    const char *dir = check_tmpdir();
    td__source_opts o = {.dir = dir};

    check_write_file(check_path("train-images-idx3-ubyte"), IMAGES, sizeof IMAGES);
    check_write_file(check_path("train-labels.idx1-ubyte"), LABELS, sizeof LABELS);
    write_gz("t10k-images-idx3-ubyte.gz", IMAGES, sizeof IMAGES);
    write_gz("t10k-labels-idx1-ubyte.gz", LABELS, sizeof LABELS);
    for (int p = 0; p < 2; p++) {
        td__dataset *d;
        CHECK_OK(open_part("idx", &o, p ? "test" : "train", &d));
        CHECK_EQ_INT(d->count, 2);
        assert_true(td_shape_equal(&d->fields[0].shape, &TD_SHAPE(1, 2, 3)));
        CHECK_EQ_INT(d->fields[0].dtype, TD_U8);
        CHECK_EQ_INT(d->fields[1].classes, 5);
        void *const *v = read_sample(d, 1);
        assert_memory_equal(v[0], IMAGES + 22, 6);
        CHECK_EQ_INT(*(int32_t *)v[1], 1);
        td__dataset_destroy(d);
    }
    check_refused("idx", &o, "valid", TD_ENOTSUP, "valid");
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
        {{0, 0, 8, 3, 0, 0}, 6, "cut short"},
        {{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
         16,
         "impossible sizes"},
        {{0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 2}, 12, "speaks of 8589934590 bytes"},
        {{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5, 6}, 18, "it holds 2"},
        {{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5}, 17, "1 images, but 2 labels"},
        {{0x1f, 0x8b, 8, 0, 0, 0}, 6, "damaged or cut short"},
    };
    td__source_opts o = {.dir = check_tmpdir()};

    check_refused("idx", &o, "train", TD_EINVAL, "get the four files of MNIST");
    check_write_file(check_path("train-labels-idx1-ubyte"), LABELS, sizeof LABELS);
    for (int i = 0; i < TD_LEN(BAD); i++) {
        check_write_file(check_path("train-images-idx3-ubyte"), BAD[i].bytes, BAD[i].nbytes);
        check_refused("idx", &o, "train", TD_EPROTO, BAD[i].text);
    }
    /* A packed file whose header promises more than it can hold. */
    unlink(check_path("train-images-idx3-ubyte"));
    uint8_t huge[16] = {0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 16};
    write_gz("train-images-idx3-ubyte.gz", huge, 12);
    check_refused("idx", &o, "train", TD_EPROTO, "cannot hold");
    unlink(check_path("train-images-idx3-ubyte.gz"));
    mkdir(check_path("train-images-idx3-ubyte"), 0777);
    check_refused("idx", &o, "train", TD_EINVAL, "is a folder");
    rmdir(check_path("train-images-idx3-ubyte"));
    assert_int_equal(symlink("train-images-idx3-ubyte", check_path("train-images-idx3-ubyte")), 0);
    check_refused("idx", &o, "train", TD_EINVAL, "symbolic links");
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

    check_refused("cifar", &o, "train", TD_EINVAL, "CIFAR-10");
    file[0] = 7;
    file[RECORD] = 9;
    for (int i = 0; i < RECORD - 1; i++)
        file[RECORD + 1 + i] = (uint8_t)i;
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        check_write_file(check_path(name), file, 2 * RECORD);
    }
    check_write_file(check_path("test_batch.bin"), file, 2 * RECORD);
    write_text("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    CHECK_OK(open_part("cifar", &o, "train", &d));
    CHECK_EQ_INT(d->count, 10);
    assert_string_equal(d->fields[1].class_names[9], "j");
    void *const *v = read_sample(d, 3);
    assert_memory_equal(v[0], file + RECORD + 1, RECORD - 1);
    CHECK_EQ_INT(*(int32_t *)v[1], 9);
    td__dataset_destroy(d);
    CHECK_OK(open_part("cifar", &o, "test", &d));
    td__dataset_destroy(d);
    check_write_file(check_path("test_batch.bin"), file, 2 * RECORD - 1);
    check_refused("cifar", &o, "test", TD_EPROTO, "no multiple");
    file[0] = 10;
    check_write_file(check_path("test_batch.bin"), file, RECORD);
    check_refused("cifar", &o, "test", TD_EPROTO, "label 10");
    o.classes = 100;
    check_refused("cifar", &o, "test", TD_EINVAL, "CIFAR-100");
    o.classes = 11;
    check_refused("cifar", &o, "test", TD_EINVAL, "10 or 100");
    free(file);
    check_tmpdir_remove();
}

TEST(csv_features_and_classes)
{
    td__source_opts o = {.dir = check_tmpdir(), .train = "a.csv", .test = "b.csv"};
    td__dataset *d;

    write_text("a.csv", "\xef\xbb\xbfsize,colour,\"kind, of\"\r\n1.5,red,10\r\n"
                        "-2,\"bl\"\"ue\",9\r\n\r\n 3e1 ,red,10\r\n");
    write_text("b.csv", "colour,\"kind, of\",size\nred,9,0\n");
    CHECK_OK(open_part("csv", &o, "train", &d));
    CHECK_EQ_INT(d->count, 3);
    CHECK_EQ_INT(d->fields[0].shape.dim[0], 3); /* size, then one place per colour */
    CHECK_EQ_INT(d->fields[1].classes, 2);
    assert_string_equal(d->fields[1].class_names[0], "9"); /* numbers by value */
    static const float WANT[3][3] = {{1.5f, 0, 1}, {-2, 1, 0}, {30, 0, 1}};
    for (int i = 0; i < 3; i++) {
        void *const *v = read_sample(d, i);
        assert_memory_equal(v[0], WANT[i], sizeof WANT[i]);
        CHECK_EQ_INT(*(int32_t *)v[1], i != 1);
    }
    td__dataset_destroy(d);
    CHECK_OK(open_part("csv", &o, "test", &d));
    void *const *v = read_sample(d, 0);
    assert_memory_equal(v[0], ((float[]){0, 0, 1}), 12);
    CHECK_EQ_INT(*(int32_t *)v[1], 0);
    td__dataset_destroy(d);
    check_refused("csv", &o, "valid", TD_ENOTSUP, "valid");

    /* numbers as targets, chosen columns, another delimiter, no header */
    write_text("a.csv", "1;2;3\n4;5;6");
    static const char *const COLUMNS[] = {"c0"};
    o = (td__source_opts){.dir = o.dir,
                          .train = "a.csv",
                          .delimiter = ';',
                          .no_header = true,
                          .label = "c1",
                          .target = "number",
                          .columns = COLUMNS,
                          .n_columns = 1};
    CHECK_OK(open_part("csv", &o, "train", &d));
    v = read_sample(d, 1);
    assert_true(*(float *)v[0] == 4 && *(float *)v[1] == 5);
    CHECK_EQ_INT(d->fields[1].shape.ndim, 1);
    td__dataset_destroy(d);

    /* one column of texts: bytes */
    write_text("a.csv", "text,label\nhi there,x\nbye,y\n");
    o = (td__source_opts){.dir = o.dir, .train = "a.csv"};
    CHECK_OK(open_part("csv", &o, "train", &d));
    CHECK_EQ_INT(d->fields[0].dtype, TD_U8);
    v = read_sample(d, 1);
    assert_memory_equal(v[0], "bye\0\0\0\0", 8);
    td__dataset_destroy(d);
    check_tmpdir_remove();
}

TEST(csv_hostile)
{
    static const struct {
        const char *text;
        td_status status;
        const char *says;
    } BAD[] = {
        {"", TD_EPROTO, "empty"},
        {"\n\n\r\n", TD_EPROTO, "empty"},
        {"a,b\n", TD_EPROTO, "no rows"},
        {"a,b\n1\n", TD_EPROTO, "a.csv:2: 1 cells, expected 2"},
        {"a,b\n1,2\n1,2,3\n", TD_EPROTO, "a.csv:3: 3 cells, expected 2"},
        {"a,b\n\"1,2\n", TD_EPROTO, "a.csv:2: a quote is not closed"},
        {"a,b,a\n1,2,3\n", TD_EPROTO, "two columns are called 'a'"},
        {"a,b\n1,2\n3,4\nNA,6\n", TD_EPROTO, "a.csv:4: column 'a' is 'NA', expected a finite"},
        {"a,b\n\"1\"x,2\n", TD_EPROTO, "text follows a closing quote"},
        {"a,b\n1,\n", TD_EPROTO, "column 'b' is '', expected a value"},
        {"a,b\n1,2.5\n", TD_EPROTO, "set data.target to number"},
        {"b\n1\n", TD_EINVAL, "no column besides the label"},
    };
    td__source_opts o = {.dir = check_tmpdir(), .train = "a.csv"};

    check_refused("csv", &o, "train", TD_EINVAL, "expected a CSV file");
    for (int i = 0; i < TD_LEN(BAD); i++) {
        write_text("a.csv", BAD[i].text);
        check_refused("csv", &o, "train", BAD[i].status, BAD[i].says);
    }
    write_text("a.csv", "a,b,c\n1,x,0\nnan,y,1\n"); /* NaN is a text, not a number */
    write_text("b.csv", "a,b,c\ninf,x,0\n");
    o.valid = "b.csv";
    check_refused("csv", &o, "valid", TD_EPROTO, "b.csv:2: column 'a' is 'inf'");
    write_text("b.csv", "a,b,c\n1,x,2\n");
    check_refused("csv", &o, "valid", TD_EPROTO, "a class that occurs in the train file");
    write_text("b.csv", "a,c\n1,0\n");
    check_refused("csv", &o, "valid", TD_EINVAL, "no column 'b'; it has a, c");
    o = (td__source_opts){.dir = o.dir, .train = "a.csv", .label = "z"};
    check_refused("csv", &o, "train", TD_EINVAL, "no column 'z'; it has a, b, c");
    o.label = NULL;
    o.target = "words";
    check_refused("csv", &o, "train", TD_EINVAL, "expected class or number");
    o.train = NULL;
    check_refused("csv", &o, "train", TD_EINVAL, "set data.train");

    /* A few bytes must not ask for a table of gigabytes. */
    FILE *f = fopen(check_path("a.csv"), "w");
    fprintf(f, "a,b\n%065536d x,0\n", 0);
    for (int i = 0; i < 100000; i++)
        fprintf(f, "x,0\n");
    fclose(f);
    check_refused("csv", &(td__source_opts){.dir = o.dir, .train = "a.csv"}, "train", TD_EINVAL,
                  "too much");
    check_tmpdir_remove();
}

TEST(jsonl)
{
    td__source_opts o = {.dir = check_tmpdir(), .train = "a.jsonl", .label = "y"};
    td__dataset *d;

    write_text("a.jsonl", "{\"x\": [1, [2, 3]], \"y\": \"cat\", \"b\": true}\n\n"
                          "{\"y\": \"ant\", \"b\": false, \"x\": [4, [5, 6.5]], \"more\": 1}\n");
    CHECK_OK(open_part("jsonl", &o, "train", &d));
    CHECK_EQ_INT(d->count, 2);
    CHECK_EQ_INT(d->fields[0].shape.dim[0], 4);
    void *const *v = read_sample(d, 1);
    assert_memory_equal(v[0], ((float[]){4, 5, 6.5f, 0}), 16);
    CHECK_EQ_INT(*(int32_t *)v[1], 0);
    td__dataset_destroy(d);

    static const char *const COLUMNS[] = {"x"};
    o.columns = COLUMNS;
    o.n_columns = 1;
    CHECK_OK(open_part("jsonl", &o, "train", &d));
    CHECK_EQ_INT(d->fields[0].shape.dim[0], 3);
    td__dataset_destroy(d);
    o.n_columns = 0;

    static const struct {
        const char *text, *says;
    } BAD[] = {
        {"", "no rows"},
        {"[1]\n", "a.jsonl:1: not an object"},
        {"{\"x\": 1, \"y\": 1}\n{\"x\": \n", "a.jsonl:2:"},
        {"{\"x\": 1, \"y\": 1}\n{\"x\": null, \"y\": 1}\n{\"x\": 2, \"z\": 0}", "column 'y'"},
        {"{\"y\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}}}}}\n",
         "levels"},
    };
    for (int i = 0; i < TD_LEN(BAD); i++) {
        write_text("a.jsonl", BAD[i].text);
        check_refused("jsonl", &o, "train", TD_EPROTO, BAD[i].says);
    }
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
    CHECK_OK(open_part("npy", &o, "train", &d));
    CHECK_EQ_INT(d->fields[1].dtype, TD_I32);
    CHECK_EQ_INT(d->fields[1].classes, 3);
    void *const *v = read_sample(d, 2);
    assert_memory_equal(v[0], values + 4, 8);
    CHECK_EQ_INT(*(int32_t *)v[1], 1);
    td__dataset_destroy(d);
    check_refused("npy", &o, "test", TD_ENOTSUP, "test");

    /* an archive with parts: test has the classes of train */
    int64_t fewer[1] = {1};
    td_tensor ty, tx;
    CHECK_OK(td_tensor_wrap(&ty, TD_I64, TD_SHAPE(1), fewer));
    CHECK_OK(td_tensor_wrap(&tx, TD_F32, TD_SHAPE(1, 2), values));
    td_named_tensor items[] = {{"x_train", &x}, {"y_train", &y}, {"x_test", &tx}, {"y_test", &ty}};
    CHECK_OK(td_npz_save(check_path("d.npz"), items, 4, true));
    o.train = "d.npz";
    CHECK_OK(open_part("npy", &o, "train", &d));
    td__dataset_destroy(d);
    CHECK_OK(open_part("npy", &o, "test", &d));
    CHECK_EQ_INT(d->count, 1);
    CHECK_EQ_INT(d->fields[1].classes, 3);
    td__dataset_destroy(d);
    check_refused("npy", &o, "valid", TD_ENOTSUP, "valid");

    /* another order than train's, and new samples without labels */
    td_named_tensor turned[] = {{"y", &ty}, {"x", &tx}};
    CHECK_OK(td_npz_save(check_path("t.npz"), turned, 2, true));
    CHECK_OK(td_npz_save(check_path("n.npz"), turned + 1, 1, true));
    o.train = "x=x.npy,y=y.npy";
    o.test = "t.npz";
    CHECK_OK(open_part("npy", &o, "test", &d));
    CHECK(strcmp(d->fields[0].name, "x") == 0 && d->fields[1].classes == 3, "fields as in train");
    td__dataset_destroy(d);
    o.test = "n.npz";
    check_refused("npy", &o, "test", TD_EINVAL, "no array y");
    o.unlabelled = true;
    CHECK_OK(open_part("npy", &o, "test", &d));
    v = read_sample(d, 0);
    CHECK(d->fields[1].classes == 3 && *(int32_t *)v[1] == 0, "no label is class 0");
    td__dataset_destroy(d);
    o.test = NULL;

    values[3] = (float)strtod("nan", NULL);
    CHECK_OK(td_npy_save(check_path("x.npy"), &x));
    o.train = "x=x.npy,y=y.npy";
    check_refused("npy", &o, "train", TD_EPROTO, "not a finite number");
    classes[0] = -1;
    CHECK_OK(td_npy_save(check_path("y.npy"), &y));
    o.train = "y=y.npy";
    check_refused("npy", &o, "train", TD_EPROTO, "class -1");
    o.train = "x.npy";
    check_refused("npy", &o, "train", TD_EINVAL, "x=images.npy");
    o.train = "x=none.npy";
    check_refused("npy", &o, "train", TD_EINVAL, "no such file");
    write_text("z.npy", "\x93NUMPY\x01");
    o.train = "x=z.npy";
    check_refused("npy", &o, "train", TD_EPROTO, "npy");
    check_tmpdir_remove();
}

TEST(text_windows)
{
    td__source_opts o = {.dir = check_tmpdir(), .train = "t.txt", .context = 3};
    td__dataset *d;

    write_text("t.txt", "abc\xc3\xa9"
                        "ab\nca"); /* 9 characters, 10 bytes */
    CHECK_OK(open_part("text", &o, "train", &d));
    CHECK_EQ_INT(d->count, 2);
    CHECK_EQ_INT(d->fields[0].classes, 5); /* newline a b c e-acute */
    assert_string_equal(d->fields[0].class_names[4], "\xc3\xa9");
    assert_true(d->in_order && d->gap == 1);
    void *const *v = read_sample(d, 1);
    assert_memory_equal(v[0], ((int32_t[]){4, 1, 2}), 12);
    assert_memory_equal(v[1], ((int32_t[]){1, 2, 0}), 12);
    td__dataset_destroy(d);

    o.unit = "byte";
    o.stride = 1;
    CHECK_OK(open_part("text", &o, "train", &d));
    CHECK_EQ_INT(d->count, 7);
    CHECK_EQ_INT(d->gap, 3);
    td__dataset_destroy(d);

    o = (td__source_opts){.dir = o.dir, .train = "t.txt", .valid = "v.txt", .context = 3};
    write_text("v.txt", "abcz");
    check_refused("text", &o, "valid", TD_EINVAL, "U+007A at byte 3");
    write_text("v.txt", "ab");
    check_refused("text", &o, "valid", TD_EINVAL, "too few");
    write_text("v.txt", "ab\xff\xff");
    check_refused("text", &o, "valid", TD_EPROTO, "byte 2 is not UTF-8");
    write_text("t.txt", "a\xe2\x82");
    check_refused("text", &o, "train", TD_EPROTO, "not UTF-8");
    write_text("t.txt", "");
    check_refused("text", &o, "train", TD_EINVAL, "too few");
    o.unit = "word";
    check_refused("text", &o, "train", TD_EINVAL, "char or byte");
    o.unit = NULL;
    o.context = -1;
    write_text("t.txt", "hello");
    check_refused("text", &o, "train", TD_EINVAL, "context -1");
    o.train = "gone.txt";
    check_refused("text", &o, "train", TD_EINVAL, "expected a text file");
    check_tmpdir_remove();
}

static void write_tokens(const char *name, int32_t magic, int32_t count, const uint16_t *tokens,
                         size_t n)
{
    char file[1024 + 64] = {0};
    int32_t header[3] = {magic, 1, count};

    memcpy(file, header, sizeof header);
    memcpy(file + 1024, tokens, n * 2);
    check_write_file(check_path(name), file, 1024 + n * 2);
}

TEST(token_micro_batches)
{
    td__source_opts o = {.dir = check_tmpdir(), .context = 2, .vocab = 100};
    uint16_t tokens[10];
    td__dataset *d;

    for (int i = 0; i < 10; i++)
        tokens[i] = (uint16_t)(10 * i);
    check_refused("tokens", &o, "train", TD_EINVAL, "no file matches");
    write_tokens("a_train_000.bin", 20240520, 5, tokens, 5);
    write_tokens("a_train_001.bin", 20240520, 6, tokens + 4, 6);
    CHECK_OK(open_part("tokens", &o, "train", &d));
    CHECK_EQ_INT(d->count, 4); /* two of each: windows do not cross files */
    void *const *v = read_sample(d, 1);
    assert_memory_equal(v[0], ((int32_t[]){20, 30}), 8);
    assert_memory_equal(v[1], ((int32_t[]){30, 40}), 8);
    v = read_sample(d, 2);
    assert_memory_equal(v[0], ((int32_t[]){40, 50}), 8);
    td__dataset_destroy(d);
    check_refused("tokens", &o, "valid", TD_ENOTSUP, "valid");
    o.vocab = 90;
    check_refused("tokens", &o, "train", TD_EINVAL, "token 90 is not below data.vocab");
    o.vocab = 100;
    write_tokens("a_train_001.bin", 20240520, 1000000000, tokens, 6);
    check_refused("tokens", &o, "train", TD_EPROTO, "speaks of 1000000000 tokens");
    write_tokens("a_train_001.bin", 20240520, -3, tokens, 6);
    check_refused("tokens", &o, "train", TD_EPROTO, "speaks of -3");
    write_tokens("a_train_001.bin", 1, 6, tokens, 6);
    check_refused("tokens", &o, "train", TD_EPROTO, "not a token file");
    write_text("a_train_001.bin", "short");
    check_refused("tokens", &o, "train", TD_EPROTO, "not a token file");
    check_tmpdir_remove();
}

TEST(intents)
{
    td__source_opts o = {.dir = check_tmpdir(), .context = 4};
    td__dataset *d;

    check_refused("intents", &o, "train", TD_EINVAL, "CLINC150");
    write_text("data_small.json",
               "{\"train\": [[\"Pay my bill, pay!\", \"pay\"], [\"what's my name\", \"name\"]],"
               " \"val\": [[\"my new bill\", \"pay\"]], \"test\": [[\"x\", \"other\"]]}");
    CHECK_OK(open_part("intents", &o, "train", &d));
    CHECK_EQ_INT(d->fields[0].classes, 7); /* pad, unknown, my pay bill name what's */
    assert_string_equal(d->fields[0].class_names[2], "my");
    assert_string_equal(d->fields[1].class_names[1], "pay");
    void *const *v = read_sample(d, 0);
    assert_memory_equal(v[0], ((int32_t[]){3, 2, 4, 3}), 16);
    CHECK_EQ_INT(*(int32_t *)v[1], 1);
    td__dataset_destroy(d);
    CHECK_OK(open_part("intents", &o, "valid", &d));
    v = read_sample(d, 0);
    assert_memory_equal(v[0], ((int32_t[]){2, 1, 4, 0}), 16);
    td__dataset_destroy(d);
    check_refused("intents", &o, "test", TD_EINVAL, "'other' does not occur");
    o.vocab = 3;
    CHECK_OK(open_part("intents", &o, "train", &d));
    CHECK_EQ_INT(d->fields[0].classes, 3);
    td__dataset_destroy(d);
    static const char *const BAD[] = {"{",
                                      "[]",
                                      "{\"train\": 3}",
                                      "{\"train\": []}",
                                      "{\"train\": [[\"a\"]]}",
                                      "{\"train\": [[\"a\", 3]]}"};
    for (int i = 0; i < TD_LEN(BAD); i++) {
        write_text("data_small.json", BAD[i]);
        check_refused("intents", &o, "train", TD_EPROTO, "data_small.json");
    }
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
        CHECK_OK(open_part(NAMES[g], &(td__source_opts){.count = 50, .seed = 4}, "train", &d));
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
            CHECK_OK(open_part(NAMES[g], &(td__source_opts){.count = 50, .seed = OTHER[k].seed},
                               OTHER[k].part, &e));
            CHECK_OK(td__dataset_read(e, (int64_t[]){5}, 1, NULL, (void *[]){b, &y}));
            differ += memcmp(flat, b, n * sizeof(float)) != 0;
            td__dataset_destroy(e);
        }
        CHECK_EQ_INT(differ, TD_LEN(OTHER));
        td__dataset_destroy(d);
        check_refused(NAMES[g], &(td__source_opts){.count = -1}, "train", TD_EINVAL, "count");
        check_refused(NAMES[g], &(td__source_opts){.noise = -1}, "train", TD_EINVAL, "noise");
    }
}

TEST(the_list_has_every_source)
{
    int n = 0;

    for (; td__source_list(n); n++) {
        const td__source_def *def = td__source_list(n);
        assert_ptr_equal(td__source_find(def->name), def);
        assert_true(strlen(def->help) > 10 && strlen(def->reads) > 2);
    }
    CHECK_EQ_INT(n, 10);
    assert_null(td__source_find("none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_plain_and_packed),
        cmocka_unit_test(idx_hostile),
        cmocka_unit_test(cifar),
        cmocka_unit_test(csv_features_and_classes),
        cmocka_unit_test(csv_hostile),
        cmocka_unit_test(jsonl),
        cmocka_unit_test(npy),
        cmocka_unit_test(text_windows),
        cmocka_unit_test(token_micro_batches),
        cmocka_unit_test(intents),
        cmocka_unit_test(generators),
        cmocka_unit_test(the_list_has_every_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
