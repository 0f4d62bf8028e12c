/* Sources of tables and text (csv, jsonl, text, tokens, intents), on small files that the test
 * makes and on files that are wrong: one clear line, never a crash. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "support/check.h"
#include "support/sources.h"

TEST(csv_features_and_classes)
{
    td__source_opts o = {.dir = check_tmpdir(), .train = "a.csv", .test = "b.csv"};
    td__dataset *d;

    source_write_text("a.csv", "\xef\xbb\xbfsize,colour,\"kind, of\"\r\n1.5,red,10\r\n"
                               "-2,\"bl\"\"ue\",9\r\n\r\n 3e1 ,red,10\r\n");
    source_write_text("b.csv", "colour,\"kind, of\",size\nred,9,0\n");
    CHECK_OK(source_open("csv", &o, "train", &d));
    CHECK_EQ_INT(d->count, 3);
    CHECK_EQ_INT(d->fields[0].shape.dim[0], 3); /* size, then one place per colour */
    CHECK_EQ_INT(d->fields[1].classes, 2);
    assert_string_equal(d->fields[1].class_names[0], "9"); /* numbers by value */
    static const float WANT[3][3] = {{1.5f, 0, 1}, {-2, 1, 0}, {30, 0, 1}};
    for (int i = 0; i < 3; i++) {
        void *const *v = source_read(d, i);
        assert_memory_equal(v[0], WANT[i], sizeof WANT[i]);
        CHECK_EQ_INT(*(int32_t *)v[1], i != 1);
    }
    td__dataset_destroy(d);
    CHECK_OK(source_open("csv", &o, "test", &d));
    void *const *v = source_read(d, 0);
    assert_memory_equal(v[0], ((float[]){0, 0, 1}), 12);
    CHECK_EQ_INT(*(int32_t *)v[1], 0);
    td__dataset_destroy(d);
    source_refused("csv", &o, "valid", TD_ENOTSUP, "valid");

    /* numbers as targets, chosen columns, another delimiter, no header */
    source_write_text("a.csv", "1;2;3\n4;5;6");
    static const char *const COLUMNS[] = {"c0"};
    o = (td__source_opts){.dir = o.dir,
                          .train = "a.csv",
                          .delimiter = ';',
                          .no_header = true,
                          .label = "c1",
                          .target = "number",
                          .columns = COLUMNS,
                          .n_columns = 1};
    CHECK_OK(source_open("csv", &o, "train", &d));
    v = source_read(d, 1);
    assert_true(*(float *)v[0] == 4 && *(float *)v[1] == 5);
    CHECK_EQ_INT(d->fields[1].shape.ndim, 1);
    td__dataset_destroy(d);

    /* one column of texts: bytes */
    source_write_text("a.csv", "text,label\nhi there,x\nbye,y\n");
    o = (td__source_opts){.dir = o.dir, .train = "a.csv"};
    CHECK_OK(source_open("csv", &o, "train", &d));
    CHECK_EQ_INT(d->fields[0].dtype, TD_U8);
    v = source_read(d, 1);
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
        {"a,b,a\n1,2,3\n", TD_EPROTO, "two columns are named 'a'"},
        {"a,b\n1,2\n3,4\nNA,6\n", TD_EPROTO, "a.csv:4: column 'a' is 'NA', expected a finite"},
        {"a,b\n\"1\"x,2\n", TD_EPROTO, "text follows a closing quote"},
        {"a,b\n1,\n", TD_EPROTO, "column 'b' is '', expected a value"},
        {"a,b\n1,2.5\n", TD_EPROTO, "set data.target to number"},
        {"b\n1\n", TD_EINVAL, "no column besides the label"},
    };
    td__source_opts o = {.dir = check_tmpdir(), .train = "a.csv"};

    source_refused("csv", &o, "train", TD_EINVAL, "expected a CSV file");
    for (int i = 0; i < TD_LEN(BAD); i++) {
        source_write_text("a.csv", BAD[i].text);
        source_refused("csv", &o, "train", BAD[i].status, BAD[i].says);
    }
    /* A missing number does not make the column one of texts. */
    source_write_text("a.csv", "a,b,c\n1,x,0\nnan,y,1\n");
    source_refused("csv", &o, "train", TD_EPROTO,
                   "a.csv:3: column 'a' is 'nan', expected a finite");
    source_write_text("a.csv", "a,b,c\n1,x,0\n2,y,1\n");
    source_write_text("b.csv", "a,b,c\ninf,x,0\n");
    o.valid = "b.csv";
    source_refused("csv", &o, "valid", TD_EPROTO, "b.csv:2: column 'a' is 'inf'");
    source_write_text("b.csv", "a,b,c\n1,x,2\n");
    source_refused("csv", &o, "valid", TD_EPROTO, "a class that occurs in the train file");
    source_write_text("b.csv", "a,c\n1,0\n");
    source_refused("csv", &o, "valid", TD_EINVAL, "no column 'b'; it has a, c");
    o = (td__source_opts){.dir = o.dir, .train = "a.csv", .label = "z"};
    source_refused("csv", &o, "train", TD_EINVAL, "no column 'z'; it has a, b, c");
    o.label = NULL;
    o.target = "words";
    source_refused("csv", &o, "train", TD_EINVAL, "expected class or number");
    o.train = NULL;
    source_refused("csv", &o, "train", TD_EINVAL, "set data.train");

    /* A few bytes must not ask for a table of gigabytes. */
    FILE *f = fopen(check_path("a.csv"), "w");
    fprintf(f, "a,b\n%065536d x,0\n", 0);
    for (int i = 0; i < 100000; i++)
        fprintf(f, "x,0\n");
    fclose(f);
    source_refused("csv", &(td__source_opts){.dir = o.dir, .train = "a.csv"}, "train", TD_EINVAL,
                   "too much");
    check_tmpdir_remove();
}

TEST(jsonl)
{
    td__source_opts o = {.dir = check_tmpdir(), .train = "a.jsonl", .label = "y"};
    td__dataset *d;

    source_write_text("a.jsonl",
                      "{\"x\": [1, [2, 3]], \"y\": \"cat\", \"b\": true}\n\n"
                      "{\"y\": \"ant\", \"b\": false, \"x\": [4, [5, 6.5]], \"more\": 1}\n");
    CHECK_OK(source_open("jsonl", &o, "train", &d));
    CHECK_EQ_INT(d->count, 2);
    CHECK_EQ_INT(d->fields[0].shape.dim[0], 4);
    void *const *v = source_read(d, 1);
    assert_memory_equal(v[0], ((float[]){4, 5, 6.5f, 0}), 16);
    CHECK_EQ_INT(*(int32_t *)v[1], 0);
    td__dataset_destroy(d);

    static const char *const COLUMNS[] = {"x"};
    o.columns = COLUMNS;
    o.n_columns = 1;
    CHECK_OK(source_open("jsonl", &o, "train", &d));
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
        source_write_text("a.jsonl", BAD[i].text);
        source_refused("jsonl", &o, "train", TD_EPROTO, BAD[i].says);
    }
    check_tmpdir_remove();
}

TEST(text_windows)
{
    td__source_opts o = {.dir = check_tmpdir(), .train = "t.txt", .context = 3};
    td__dataset *d;

    source_write_text("t.txt", "abc\xc3\xa9"
                               "ab\nca"); /* 9 characters, 10 bytes */
    CHECK_OK(source_open("text", &o, "train", &d));
    CHECK_EQ_INT(d->count, 2);
    CHECK_EQ_INT(d->fields[0].classes, 5); /* newline a b c e-acute */
    assert_string_equal(d->fields[0].class_names[4], "\xc3\xa9");
    assert_true(d->in_order && d->gap == 1);
    void *const *v = source_read(d, 1);
    assert_memory_equal(v[0], ((int32_t[]){4, 1, 2}), 12);
    assert_memory_equal(v[1], ((int32_t[]){1, 2, 0}), 12);
    td__dataset_destroy(d);

    o.unit = "byte";
    o.stride = 1;
    CHECK_OK(source_open("text", &o, "train", &d));
    CHECK_EQ_INT(d->count, 7);
    CHECK_EQ_INT(d->gap, 3);
    td__dataset_destroy(d);

    o = (td__source_opts){.dir = o.dir, .train = "t.txt", .valid = "v.txt", .context = 3};
    source_write_text("v.txt", "abcz");
    source_refused("text", &o, "valid", TD_EINVAL, "U+007A at byte 3");
    source_write_text("v.txt", "ab");
    source_refused("text", &o, "valid", TD_EINVAL, "too few");
    source_write_text("v.txt", "ab\xff\xff");
    source_refused("text", &o, "valid", TD_EPROTO, "byte 2 is not UTF-8");
    source_write_text("t.txt", "a\xe2\x82");
    source_refused("text", &o, "train", TD_EPROTO, "not UTF-8");
    source_write_text("t.txt", "");
    source_refused("text", &o, "train", TD_EINVAL, "too few");
    o.unit = "word";
    source_refused("text", &o, "train", TD_EINVAL, "char or byte");
    o.unit = NULL;
    o.context = -1;
    source_write_text("t.txt", "hello");
    source_refused("text", &o, "train", TD_EINVAL, "context -1");
    o.train = "gone.txt";
    source_refused("text", &o, "train", TD_EINVAL, "expected a text file");
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

TEST(token_files)
{
    td__source_opts o = {.dir = check_tmpdir(), .context = 2, .vocab = 100};
    uint16_t tokens[10];
    td__dataset *d;

    for (int i = 0; i < 10; i++)
        tokens[i] = (uint16_t)(10 * i);
    source_refused("tokens", &o, "train", TD_EINVAL, "no file matches");
    write_tokens("a_train_000.bin", 20240520, 5, tokens, 5);
    write_tokens("a_train_001.bin", 20240520, 6, tokens + 4, 6);
    CHECK_OK(source_open("tokens", &o, "train", &d));
    CHECK_EQ_INT(d->count, 4); /* two of each: windows do not cross files */
    void *const *v = source_read(d, 1);
    assert_memory_equal(v[0], ((int32_t[]){20, 30}), 8);
    assert_memory_equal(v[1], ((int32_t[]){30, 40}), 8);
    v = source_read(d, 2);
    assert_memory_equal(v[0], ((int32_t[]){40, 50}), 8);
    td__dataset_destroy(d);
    source_refused("tokens", &o, "valid", TD_ENOTSUP, "valid");
    o.vocab = 90;
    source_refused("tokens", &o, "train", TD_EINVAL, "token 90 is not below data.vocab");
    o.vocab = 100;
    write_tokens("a_train_001.bin", 20240520, 1000000000, tokens, 6);
    source_refused("tokens", &o, "train", TD_EPROTO, "header says 1000000000 tokens");
    write_tokens("a_train_001.bin", 20240520, -3, tokens, 6);
    source_refused("tokens", &o, "train", TD_EPROTO, "header says -3");
    write_tokens("a_train_001.bin", 1, 6, tokens, 6);
    source_refused("tokens", &o, "train", TD_EPROTO, "not a token file");
    source_write_text("a_train_001.bin", "short");
    source_refused("tokens", &o, "train", TD_EPROTO, "not a token file");
    check_tmpdir_remove();
}

TEST(intents)
{
    td__source_opts o = {.dir = check_tmpdir(), .context = 4};
    td__dataset *d;

    source_refused("intents", &o, "train", TD_EINVAL, "CLINC150");
    source_write_text(
        "data_small.json",
        "{\"train\": [[\"Pay my bill, pay!\", \"pay\"], [\"what's my name\", \"name\"]],"
        " \"val\": [[\"my new bill\", \"pay\"]], \"test\": [[\"x\", \"other\"]]}");
    CHECK_OK(source_open("intents", &o, "train", &d));
    CHECK_EQ_INT(d->fields[0].classes, 7); /* pad, unknown, my pay bill name what's */
    assert_string_equal(d->fields[0].class_names[2], "my");
    assert_string_equal(d->fields[1].class_names[1], "pay");
    void *const *v = source_read(d, 0);
    assert_memory_equal(v[0], ((int32_t[]){3, 2, 4, 3}), 16);
    CHECK_EQ_INT(*(int32_t *)v[1], 1);
    td__dataset_destroy(d);
    CHECK_OK(source_open("intents", &o, "valid", &d));
    v = source_read(d, 0);
    assert_memory_equal(v[0], ((int32_t[]){2, 1, 4, 0}), 16);
    td__dataset_destroy(d);
    source_refused("intents", &o, "test", TD_EINVAL, "'other' does not occur");
    o.vocab = 3;
    CHECK_OK(source_open("intents", &o, "train", &d));
    CHECK_EQ_INT(d->fields[0].classes, 3);
    td__dataset_destroy(d);
    static const char *const BAD[] = {"{",
                                      "[]",
                                      "{\"train\": 3}",
                                      "{\"train\": []}",
                                      "{\"train\": [[\"a\"]]}",
                                      "{\"train\": [[\"a\", 3]]}"};
    for (int i = 0; i < TD_LEN(BAD); i++) {
        source_write_text("data_small.json", BAD[i]);
        source_refused("intents", &o, "train", TD_EPROTO, "data_small.json");
    }
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_features_and_classes),
        cmocka_unit_test(csv_hostile),
        cmocka_unit_test(jsonl),
        cmocka_unit_test(text_windows),
        cmocka_unit_test(token_files),
        cmocka_unit_test(intents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
