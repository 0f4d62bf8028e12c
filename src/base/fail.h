/* fail.h -- raising and passing on errors, inside the library.
 *
 * The text of an error is written where the error is born, with TD_FAIL, and kept per thread for
 * td_last_error(). Callers pass the code up with TD_TRY, which adds one line of trail to the debug
 * log; they never re-word it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_FAIL_H
#define TD_BASE_FAIL_H

#include "tandem/status.h"

/* Record an error where it is born; evaluates to its code. */
#define TD_FAIL(code, ...) td__failed(td__fail((code), __FILE__, __LINE__, __VA_ARGS__))

/* Pass a failure up from a function that has nothing to release. */
#define TD_TRY(call)                                   \
    do {                                               \
        td_status st_ = (call);                        \
        if (st_) {                                     \
            td__trail(st_, #call, __FILE__, __LINE__); \
            return st_;                                \
        }                                              \
    } while (0)

/* The same for a function that has: st keeps the failure, label releases. */
#define TD_TRY_OR(st, label, call)                      \
    do {                                                \
        (st) = (call);                                  \
        if (st) {                                       \
            td__trail((st), #call, __FILE__, __LINE__); \
            goto label;                                 \
        }                                               \
    } while (0)

/* A broken invariant: prints what, where and the values, then aborts; on in release builds. */
#define TD_ASSERT(cond, ...)                                           \
    do {                                                               \
        if (!(cond))                                                   \
            td__assert_failed(#cond, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

td_status td__fail(td_status code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void td__trail(td_status st, const char *what, const char *file, int line);

/* Tells the compiler that a failure is not TD_OK, so that it can see that results are set. */
static inline td_status td__failed(td_status st)
{
    if (st == TD_OK)
        __builtin_unreachable();
    return st;
}

_Noreturn void td__assert_failed(const char *cond, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
