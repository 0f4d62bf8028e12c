/* Files and names of the book's data sets: CSV rows, names of versions, the order and numbers of
 * labels, commits and versions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "service/data/csv.h"
#include "service/data/intent.h"
#include "service/data/labels.h"
#include "service/data/version_hash.h"
#include "support/check.h"

TEST(a_version_is_named_by_its_commits)
{
    static const struct {
        int commits[9], n;
        const char *name;
    } rows[] = {
        {{1}, 1, "hashAg=="},
        {{1, 2}, 2, "hashBg=="},
        {{1, 2, 3}, 3, "hashDg=="},
        {{2}, 1, "hashBA=="},
        {{1, 2, 3, 4, 5, 6, 7}, 7, "hash/g=="},
        {{8}, 1, "hashAAE="},
        {{1, 16}, 2, "hashAgAB"},
        {{24}, 1, "hashAAAAAQ=="},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        td__text t = {0};

        td__version_hash(rows[i].commits, rows[i].n, &t);
        assert_string_equal(t.data, rows[i].name);
        for (int commit = 1, k = 0; commit < 32; commit++) {
            bool in = k < rows[i].n && rows[i].commits[k] == commit;

            k += in;
            CHECK(td__version_has(t.data, commit) == in, "%s: commit %d", t.data, commit);
        }
        td__text_fini(&t);
    }
}

static void expect_rows(const char *csv, const char *want)
{
    td__csv c;
    td__text got = {0};

    td__csv_init(&c, csv, strlen(csv));
    while (td__csv_next(&c)) {
        td__text_printf(&got, "%d:", c.line);
        for (int i = 0; i < c.n_fields; i++)
            td__text_printf(&got, "[%s]", td__csv_field(&c, i));
    }
    assert_string_equal(got.data ? got.data : "", want);
    td__text_fini(&got);
    td__csv_fini(&c);
}

TEST(rows_are_read_as_the_book_reads_them)
{
    expect_rows("", "");
    expect_rows("a,b\nc,d", "1:[a][b]2:[c][d]");
    expect_rows("a, b\r\n\r\n\n  c  ,\"d\"\n", "1:[a][b]4:[c  ][d]");
    expect_rows("\"a,b\",\"say \"\"hi\"\"\"\n", "1:[a,b][say \"hi\"]");
    expect_rows("\"two\nlines\",x\ny,z\n", "1:[two\nlines][x]3:[y][z]");
    expect_rows("\"a\\\"b\",\"c\\\\d\\e\"\n", "1:[a\"b][c\\d\\e]");
    expect_rows("a,\n,b\n\"open", "1:[a][]2:[][b]3:[open]");
}

TEST(labels_are_written_in_the_order_of_a_hash_map)
{
    static const char *const added[] = {"translate",
                                        "transfer",
                                        "timer",
                                        "definition",
                                        "meaning_of_life",
                                        "insurance_change",
                                        "find_phone",
                                        "balance",
                                        "caf\xc3\xa9",
                                        "\xe4\xbd\xa0\xe5\xa5\xbd",
                                        "\xf0\x9f\x98\x80",
                                        "oos",
                                        "yes",
                                        "no",
                                        "flip_coin",
                                        "measurement_conversion"};
    static const char want[] = "14 13 5 1 9 6 3 12 2 7 8 10 11 4 15 16 ";
    td__labels l;
    td__text got = {0};

    CHECK_OK(td__labels_init(&l));
    for (size_t i = 0; i < sizeof added / sizeof added[0]; i++) {
        CHECK_EQ_INT(td__labels_add(&l, added[i])->number, i + 1);
        CHECK_EQ_INT(td__labels_add(&l, added[i])->number, i + 1);
    }
    for (td__label *k = td__labels_next(&l, NULL); k; k = td__labels_next(&l, k))
        td__text_printf(&got, "%d ", k->number);
    assert_string_equal(got.data, want);
    CHECK(!td__labels_find(&l, "nothing"), "a label that was never added");
    td__text_fini(&got);
    td__labels_fini(&l);
}

static void expect_file(const char *dir, const char *name, const char *want)
{
    char path[512];
    size_t n;
    char *data;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    data = check_read_file(path, &n);
    CHECK(n == strlen(want) && !memcmp(data, want, n), "%s holds: %.*s", name, (int)n, data);
    free(data);
}

static const char *new_dir(const char *name)
{
    const char *path = check_path(name);

    CHECK_EQ_INT(mkdir(path, 0755), 0);
    return path;
}

static void commit(const char *dir, const char *csv, int labels, int examples)
{
    const char *upload = check_path("upload.csv");
    td__intent_counts n;

    check_write_file(upload, csv, strlen(csv));
    CHECK_OK(td__intent_commit(upload, dir, &n));
    CHECK_EQ_INT(n.labels, labels);
    CHECK_EQ_INT(n.examples, examples);
}

TEST(commits_number_labels_and_versions_number_them_anew)
{
    char one[512], two[512], version[512];
    const char *commits[] = {one, two};
    td__intent_counts n;

    check_tmpdir();
    snprintf(one, sizeof one, "%s", new_dir("one"));
    snprintf(two, sizeof two, "%s", new_dir("two"));
    snprintf(version, sizeof version, "%s", new_dir("version"));
    commit(one, "how hot, weather\nhi \"you\",greeting;weather\n", 2, 2);
    expect_file(one, "examples.csv", "\"how hot\",\"1\"\n\"hi \"\"you\"\"\",\"2;1\"\n");
    expect_file(one, "labels.csv", "\"2\",\"greeting\"\n\"1\",\"weather\"\n");
    commit(two, "bye,goodbye\nhello,greeting\n", 2, 2);
    CHECK_OK(td__intent_version(commits, 2, version, &n));
    CHECK_EQ_INT(n.labels, 3);
    CHECK_EQ_INT(n.examples, 4);
    expect_file(version, "labels.csv",
                "\"1\",\"greeting\"\n\"2\",\"goodbye\"\n\"3\",\"weather\"\n");
    expect_file(version, "examples.csv",
                "\"how hot\",\"3\"\n\"hi \"\"you\"\"\",\"1;3\"\n\"bye\",\"2\"\n\"hello\",\"1\"\n");
    check_tmpdir_remove();
}

TEST(uploads_of_another_form_are_refused_with_their_line)
{
    td__intent_counts n;
    const char *upload, *dir;

    check_tmpdir();
    upload = check_path("upload.csv");
    dir = new_dir("out");
    check_write_file(upload, "a,b\nno label\n", 13);
    CHECK_STATUS(td__intent_commit(upload, dir, &n), TD_EINVAL);
    CHECK(strstr(td_last_error(), "upload.csv:2:"), "%s", td_last_error());
    CHECK(td__intent_commit(check_path("missing.csv"), dir, &n) != TD_OK, "a missing file");
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_is_named_by_its_commits),
        cmocka_unit_test(rows_are_read_as_the_book_reads_them),
        cmocka_unit_test(labels_are_written_in_the_order_of_a_hash_map),
        cmocka_unit_test(commits_number_labels_and_versions_number_them_anew),
        cmocka_unit_test(uploads_of_another_form_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
