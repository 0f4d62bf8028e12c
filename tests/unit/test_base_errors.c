/* Statuses and their texts, per thread; types, shapes; the log; CPU features; file replacement. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "support/check.h"
#include "tandem/alloc.h"

TEST(statuses_have_names_and_texts)
{
    assert_string_equal(td_status_name(TD_EPEER), "EPEER");
    assert_string_equal(td_status_name(TD_OK), "OK");
    assert_string_equal(td_status_text(TD_ENOMEM), "out of memory");
    assert_string_equal(td_status_name((td_status)99), "UNKNOWN");
    assert_non_null(td_status_text((td_status)99));
}

static td_status inner(int x)
{
    return x ? TD_FAIL(TD_EPROTO, "x is %d", x) : TD_OK;
}

static td_status outer(int x, int *released)
{
    td_status st = TD_OK;
    TD_TRY(inner(0));
    TD_TRY_OR(st, out, inner(x));
    *released = -100;
out:
    ++*released;
    return st;
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    td_status st = TD_FAIL(TD_EIO, "another thread");
    return st == TD_EIO ? (void *)1 : NULL;
}

TEST(the_text_is_written_once_and_per_thread)
{
    int released = 0;
    pthread_t thread;
    void *result;

    CHECK_EQ_INT(outer(7, &released), TD_EPROTO);
    CHECK_EQ_INT(released, 1);
    assert_string_equal(td_last_error(), "x is 7");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_string_equal(td_last_error(), "x is 7");

    CHECK_EQ_INT(TD_FAIL(TD_EINVAL, "node: %s", td_last_error()), TD_EINVAL);
    assert_string_equal(td_last_error(), "node: x is 7");
    CHECK_EQ_INT(TD_FAIL(TD_EINVAL, "%5000d", 1), TD_EINVAL); /* longer than the buffer */
    CHECK(strlen(td_last_error()) < 5000, "not cut");
}

/* Names out of files end up in texts: on a terminal they do nothing. */
TEST(texts_hold_no_control_characters)
{
    CHECK_EQ_INT(TD_FAIL(TD_EINVAL, "a '%s'", "\x1b[2Jb\nc\x7f\xc2\x9b\xc3\xa9"), TD_EINVAL);
    assert_string_equal(td_last_error(), "a '?[2Jb?c???\xc3\xa9'");

    td__text t = {0};
    td__text_printable(&t, "a\x1b[2J\t\xc2\x9b\xc3\xa9\xc2");
    CHECK_OK(td__text_status(&t));
    assert_string_equal(t.data, "a\\x1b[2J\\x09\\xc2\\x9b\xc3\xa9\xc2");
    td__text_fini(&t);
}

TEST(dtypes_and_shapes)
{
    td_dtype t;
    char text[128];
    td_shape huge = TD_SHAPE(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);

    assert_true(td_dtype_parse("bf16", &t) && t == TD_BF16);
    assert_false(td_dtype_parse("f8", &t));
    assert_int_equal(td_dtype_size(TD_F64), 8);
    assert_int_equal(td_dtype_size((td_dtype)77), 0);
    assert_string_equal(td_dtype_name((td_dtype)-1), "?");
    assert_true(td_dtype_is_float(TD_F16) && !td_dtype_is_float(TD_BOOL));

    CHECK_EQ_INT(td_shape_count(&TD_SCALAR), 1);
    CHECK_EQ_INT(td_shape_count(&TD_SHAPE(64, 784)), 64 * 784);
    CHECK_EQ_INT(td_shape_count(&TD_SHAPE(INT64_MAX, 2, 0)), 0);
    CHECK_EQ_INT(td_shape_count(&TD_SHAPE(INT64_MAX, 2)), -1);
    CHECK_EQ_INT(td_shape_count(&TD_SHAPE(3, -1)), -1);
    CHECK_EQ_INT(td_shape_count(&(td_shape){.ndim = 7}), -1);
    assert_true(td_shape_equal(&TD_SHAPE(2, 3), &TD_SHAPE(2, 3)));
    assert_false(td_shape_equal(&TD_SHAPE(2, 3), &TD_SHAPE(2, 3, 1)));

    assert_string_equal(td_shape_text(&TD_SCALAR, text, sizeof text), "()");
    assert_string_equal(td_shape_text(&TD_SHAPE(5), text, sizeof text), "(5)");
    assert_string_equal(td_shape_text(&TD_SHAPE(64, 784), text, sizeof text), "(64, 784)");
    CHECK_EQ_INT(strlen(td_shape_text(&huge, text, sizeof text)), 126);
    assert_string_equal(td_shape_text(&TD_SHAPE(64, 784), text, 6), "(64, ");
}

TEST(size_arithmetic_notices_overflow)
{
    size_t n;
    int64_t i;
    assert_true(td__size_mul(3, 4, &n) && n == 12);
    assert_false(td__size_mul(SIZE_MAX, 2, &n));
    assert_false(td__size_add(SIZE_MAX, 1, &n));
    assert_false(td__i64_mul(INT64_MIN, -1, &i));
    CHECK_EQ_INT(td__align_up(65, 64), 128);
}

/* The log, by a sink that keeps the last line. */
typedef struct seen {
    int count;
    td_log_level level;
    td_log_part part;
    char line[4096];
} seen;

static void keep(void *user, td_log_level level, td_log_part part, const char *line)
{
    seen *s = user;
    s->count++;
    s->level = level;
    s->part = part;
    snprintf(s->line, sizeof s->line, "%s", line);
}

TEST(log_levels_by_part)
{
    seen s = {0};

    td_log_set_sink(keep, &s);
    CHECK_OK(td_log_configure("warn,graph=debug"));
    TD_LOG(INFO, BACKEND, "no");
    TD_LOG(TRACE, GRAPH, "no");
    CHECK_EQ_INT(s.count, 0);
    TD_LOG(DEBUG, GRAPH, "%d nodes", 12);
    CHECK_EQ_INT(s.count, 1);
    CHECK(s.level == TD_LOG_DEBUG && s.part == TD_LOG_PART_GRAPH, "level and part");
    CHECK(strstr(s.line, " debug graph 12 nodes"), "line: %s", s.line);
    td_log_set_rank(3);
    TD_LOG(WARN, OPTIM, "text");
    CHECK(strstr(s.line, " warn  optim [rank 3] text"), "line: %s", s.line);
    td_log_set_rank(-1);
    CHECK_STATUS(td_log_configure("graph=loud"), TD_EINVAL);
    CHECK_STATUS(td_log_configure("debug,garph=debug"), TD_EINVAL);
    CHECK_STATUS(td_log_configure("=debug"), TD_EINVAL);
    s.count = 0;
    TD_LOG(DEBUG, BASE, "unchanged by what failed");
    CHECK_EQ_INT(s.count, 0);
    td_log_set_level(TD_LOG_OFF);
    TD_LOG(ERROR, BASE, "off");
    CHECK_EQ_INT(s.count, 0);
    td_log_set_level(TD_LOG_TRACE);
    TD_LOG(TRACE, NN, "%4000d", 1); /* longer than a line */
    CHECK_EQ_INT(s.count, 1);
    td_log_set_level(TD_LOG_WARN);
    td_log_set_sink(NULL, NULL);
}

TEST(a_broken_invariant_aborts)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        td_log_set_sink(keep, &(seen){0}); /* quiet */
        TD_ASSERT(1 + 1 == 3, "values %d", 2);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", status);
}

TEST(cpu_features_are_consistent)
{
    td__isa isa = td__cpu_isa();
    volatile double tiny = 0x1p-1030;

    CHECK_EQ_INT(isa, td__cpu_isa());
    for (int i = 0; i < TD_ISA_COUNT; i++)
        assert_string_not_equal(td__isa_name((td__isa)i), "?");
    CHECK(strlen(td__cpu_kind()) > 0, "no kind");
    print_message("cpu %s, %s, amx leaves hidden: %d\n", td__cpu_kind(), td__isa_name(isa),
                  td__cpu_amx_leaves_hidden());
#if defined(__x86_64__)
    CHECK((isa >= TD_ISA_AVX2) ==
                  (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) ||
              getenv("TANDEM_ISA"),
          "%s", td__isa_name(isa));
    unsigned mode = td__cpu_fp_flush();
    CHECK(tiny * 1.0 == 0, "denormals are not flushed");
    td__cpu_fp_restore(mode);
#endif
    CHECK(tiny * 1.0 != 0, "denormals are flushed");
}

/* What a fresh process answers with a variable set. These two run first: once asked for, features
 * and levels are kept. */
static int answer_with(const char *variable, const char *value, int (*ask)(void))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        setenv(variable, value, 1);
        _exit(ask());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    CHECK(WIFEXITED(status), "status %x", status);
    return WEXITSTATUS(status);
}

static int ask_isa(void)
{
    td_log_set_sink(keep, &(seen){0}); /* an unknown name warns */
    return (int)td__cpu_isa();
}

TEST(the_environment_lowers_the_isa)
{
    int best = answer_with("TANDEM_ISA", "", ask_isa);

    for (int i = 0; i < TD_ISA_COUNT; i++)
        CHECK_EQ_INT(answer_with("TANDEM_ISA", td__isa_name((td__isa)i), ask_isa),
                     i < best ? i : best);
    CHECK_EQ_INT(answer_with("TANDEM_ISA", "mmx", ask_isa), best);
}

static int ask_levels(void)
{
    return td__log_enabled(TD_LOG_DEBUG, TD_LOG_PART_GRAPH) * 2 +
           td__log_enabled(TD_LOG_INFO, TD_LOG_PART_NN);
}

TEST(the_environment_sets_log_levels)
{
    CHECK_EQ_INT(answer_with("TANDEM_LOG", "", ask_levels), 0);
    CHECK_EQ_INT(answer_with("TANDEM_LOG", "debug", ask_levels), 3);
    CHECK_EQ_INT(answer_with("TANDEM_LOG", "graph=trace,backend=info", ask_levels), 2);
    CHECK_EQ_INT(answer_with("TANDEM_LOG", "info", ask_levels), 1);
}

static int files_in(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* As an editor, or a shell's `>`, does. */
TEST(a_small_file_that_is_cut_is_there_for_who_has_opened_it)
{
    char path[128], text[9000];
    td__file_map m;

    memset(text, 'x', sizeof text);
    snprintf(path, sizeof path, "%s/file", check_tmpdir());
    check_write_file(path, text, sizeof text);
    CHECK_OK(td__file_map_open(&m, path));
    CHECK_EQ_INT(truncate(path, 0), 0);
    td__file_map_forget(&m, 0, m.nbytes);
    CHECK(m.nbytes == sizeof text && memcmp(m.data, text, sizeof text) == 0, "wrong content");
    td__file_map_close(&m);
    CHECK_OK(td__file_map_open(&m, path));
    CHECK_EQ_INT(m.nbytes, 0);
    td__file_map_close(&m);
    check_tmpdir_remove();
}

TEST(files_are_replaced_as_a_whole)
{
    const char *dir = check_tmpdir();
    char path[128], big[200000];
    td__file_out f;
    td__file_map m;

    memset(big, 'x', sizeof big);
    snprintf(path, sizeof path, "%s/file", dir);
    check_write_file(path, "old", 3);
    CHECK_OK(td__file_out_open(&f, path));
    td__file_out_write(&f, "new ", 4);
    td__file_out_write(&f, big, sizeof big);
    td__file_out_write(&f, "end", 3);
    CHECK_EQ_INT(f.offset, sizeof big + 7);
    CHECK_OK(td__file_map_open(&m, path));
    CHECK(m.nbytes == 3 && memcmp(m.data, "old", 3) == 0, "seen too early");
    td__file_map_close(&m);
    CHECK_OK(td__file_out_commit(&f));
    CHECK_OK(td__file_map_open(&m, path));
    CHECK(m.nbytes == sizeof big + 7 && memcmp(m.data, "new x", 5) == 0 &&
              memcmp(m.data + m.nbytes - 4, "xend", 4) == 0,
          "wrong content");
    td__file_map_close(&m);

    CHECK_OK(td__file_out_open(&f, path));
    td__file_out_write(&f, "no", 2);
    td__file_out_abandon(&f);
    CHECK_EQ_INT(files_in(dir), 1);

    /* A target that cannot be replaced: the temporary file goes, the error comes. */
    snprintf(path, sizeof path, "%s/folder", dir);
    CHECK_OK(td__file_out_open(&f, path));
    CHECK_EQ_INT(mkdir(path, 0700), 0);
    CHECK_STATUS(td__file_out_commit(&f), TD_EIO);
    CHECK_EQ_INT(files_in(dir), 2);
    CHECK_STATUS(td__file_out_open(&f, path), TD_EIO);
    CHECK_STATUS(td__file_map_open(&m, path), TD_EIO);
    snprintf(path, sizeof path, "%s/missing/file", dir);
    CHECK_STATUS(td__file_out_open(&f, path), TD_EIO);
    CHECK_STATUS(td__file_map_open(&m, path), TD_EIO);
    snprintf(path, sizeof path, "%s/fifo", dir);
    CHECK_EQ_INT(mkfifo(path, 0600), 0);
    CHECK_STATUS(td__file_map_open(&m, path), TD_EIO);
    CHECK_STATUS(td__file_out_open(&f, path), TD_EIO); /* and not replaced by a file */
    check_tmpdir_remove();
}

TEST(a_full_disk_is_an_error)
{
    const char *dir = check_tmpdir();
    td__file_out f;
    uint64_t live = td_alloc_get_stats().live;

    CHECK_OK(td__file_out_open(&f, check_path("full")));
    close(f.fd);
    f.fd = open("/dev/full", O_WRONLY);
    td__file_out_write(&f, "x", 1);
    CHECK_STATUS(td__file_out_commit(&f), TD_EIO);
    CHECK_EQ_INT(files_in(dir), 0);
    CHECK_EQ_INT(td_alloc_get_stats().live, live);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_lowers_the_isa),
        cmocka_unit_test(the_environment_sets_log_levels),
        cmocka_unit_test(statuses_have_names_and_texts),
        cmocka_unit_test(the_text_is_written_once_and_per_thread),
        cmocka_unit_test(texts_hold_no_control_characters),
        cmocka_unit_test(dtypes_and_shapes),
        cmocka_unit_test(size_arithmetic_notices_overflow),
        cmocka_unit_test(log_levels_by_part),
        cmocka_unit_test(a_broken_invariant_aborts),
        cmocka_unit_test(cpu_features_are_consistent),
        cmocka_unit_test(files_are_replaced_as_a_whole),
        cmocka_unit_test(a_small_file_that_is_cut_is_there_for_who_has_opened_it),
        cmocka_unit_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
