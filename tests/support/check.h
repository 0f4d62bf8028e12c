/* check.h -- small helpers of the tests, on top of cmocka. All end the test when they fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_CHECK_H
#define TD_TESTS_SUPPORT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tandem/status.h"

#define TEST(name) static void name(void **state_ __attribute__((unused)))

/* A condition with a text of its own. */
#define CHECK(cond, ...)                                        \
    do {                                                        \
        if (!(cond))                                            \
            check_fail(__FILE__, __LINE__, #cond, __VA_ARGS__); \
    } while (0)

/* A call that must succeed; prints the library's text when it does not. */
#define CHECK_OK(call) check_status((call), TD_OK, #call, __FILE__, __LINE__)
/* A call that must fail with this status, and leave a text. */
#define CHECK_STATUS(call, want) check_status((call), (want), #call, __FILE__, __LINE__)

#define CHECK_EQ_INT(a, b)                                         \
    do {                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);        \
        CHECK(a_ == b_, "%s is %lld, %s is %lld", #a, a_, #b, b_); \
    } while (0)

_Noreturn void check_fail(const char *file, int line, const char *cond, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void check_status(td_status got, td_status want, const char *call, const char *file, int line);

/* A new empty directory, removed with all in it by check_tmpdir_remove. The name stays valid until
 * then. check_path gives "dir/name" in one of a few buffers used in turn. */
const char *check_tmpdir(void);
void check_tmpdir_remove(void);
const char *check_path(const char *name);

/* Whole files. check_read_file's result is freed with free(). */
void check_write_file(const char *path, const void *data, size_t nbytes);
void *check_read_file(const char *path, size_t *nbytes);

/* Memory with guard bytes before and after, aligned to 64 bytes, filled with 0xA5; freeing it fails
 * the test if a guard byte changed. check_guards looks without freeing. */
void *check_alloc_guarded(size_t nbytes);
void check_guards(const void *p);
void check_free_guarded(void *p);

#endif
