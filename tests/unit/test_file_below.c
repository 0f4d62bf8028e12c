/* Files below directories that others write to: links, FIFOs and names that lead elsewhere are
 * refused, without waiting. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/file_below.h"
#include "support/check.h"

static char TOP[64], DIR[100], SECRET[100];

static void path_of(char out[200], const char *name)
{
    snprintf(out, 200, "%s/%s", DIR, name);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int set_up(void **state)
{
    char path[200];

    (void)state;
    snprintf(TOP, sizeof TOP, "/tmp/td-below-XXXXXX");
    assert_non_null(mkdtemp(TOP));
    snprintf(DIR, sizeof DIR, "%s/dir", TOP);
    snprintf(SECRET, sizeof SECRET, "%s/secret", TOP);
    write_file(SECRET, "secret");
    assert_int_equal(mkdir(DIR, 0755), 0);
    path_of(path, "sub");
    assert_int_equal(mkdir(path, 0755), 0);
    path_of(path, "sub/file");
    write_file(path, "text");
    path_of(path, "link");
    assert_int_equal(symlink(SECRET, path), 0);
    path_of(path, "up");
    assert_int_equal(symlink(TOP, path), 0);
    path_of(path, "fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    return 0;
}

static int tear_down(void **state)
{
    static const char *const FILES[] = {"sub/file", "sub/new/deep/file", "link", "up", "fifo",
                                        "made"};
    static const char *const DIRS[] = {"sub/new/deep", "sub/new", "sub", ""};
    char path[200];

    (void)state;
    for (int i = 0; i < TD_LEN(FILES); i++) {
        path_of(path, FILES[i]);
        unlink(path);
    }
    for (int i = 0; i < TD_LEN(DIRS); i++) {
        path_of(path, DIRS[i]);
        rmdir(path);
    }
    unlink(SECRET);
    return rmdir(TOP);
}

TEST(reads_plain_files_only)
{
    static const char *const REFUSED[] = {"link",      "up/secret", "fifo",      "sub",
                                          "../secret", "sub/../x",  "sub//file", "/etc/passwd",
                                          "",          ".",         "sub/."};
    char text[8] = "", path[200];
    int fd = td__file_open_below(DIR, "sub/file", O_RDONLY, 0);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof text), 4);
    assert_string_equal(text, "text");
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    for (int i = 0; i < TD_LEN(REFUSED); i++)
        if (td__file_open_below(DIR, REFUSED[i], O_RDONLY, 0) >= 0)
            fail_msg("'%s' was opened", REFUSED[i]);
    path_of(path, "link");
    assert_int_equal(td__file_open_plain(path, O_RDONLY, 0), -1);
    assert_int_equal(errno, ELOOP);
    path_of(path, "fifo");
    assert_int_equal(td__file_open_plain(path, O_RDONLY, 0), -1);
    assert_int_equal(errno, ENXIO);
    assert_int_equal(td__file_open_plain(path, O_WRONLY | O_APPEND, 0), -1);
}

/* What somebody else has written is not taken into memory whatever its size: 20 GB, sparse. */
TEST(copies_no_more_than_wanted)
{
    char path[200];
    td__file_map m;

    path_of(path, "sub/file");
    CHECK_OK(td__file_map_copy(&m, path, 4));
    assert_int_equal(m.nbytes, 4);
    td__file_map_close(&m);
    CHECK_STATUS(td__file_map_copy(&m, path, 3), TD_EINVAL);
    snprintf(path, sizeof path, "%s/upload", TOP);
    write_file(path, "");
    assert_int_equal(truncate(path, INT64_C(20) << 30), 0);
    CHECK_STATUS(td__file_map_copy(&m, path, 256 << 20), TD_EINVAL);
    assert_non_null(strstr(td_last_error(), "/upload"));
    unlink(path);
}

TEST(places_files)
{
    char from[200], path[200], text[8] = "";

    snprintf(from, sizeof from, "%s/upload", TOP);
    write_file(from, "new");
    assert_int_equal(td__file_place_below(DIR, "sub/new/deep/file", from), 0);
    path_of(path, "sub/new/deep/file");
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof text), 3);
    close(fd);
    write_file(from, "new");
    assert_int_not_equal(td__file_place_below(DIR, "up/made", from), 0); /* a link on the way */
    assert_int_equal(td__file_place_below(DIR, "../made", from), EINVAL);
    assert_int_equal(td__file_place_below(DIR, "link", from), 0); /* the link itself is replaced */
    fd = open(SECRET, O_RDONLY);
    memset(text, 0, sizeof text);
    assert_int_equal(read(fd, text, sizeof text), 6);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_plain_files_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_no_more_than_wanted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(places_files, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
