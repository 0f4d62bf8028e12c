/* tandem/status.h -- the one error vocabulary of the tree.
 *
 * Every function that can fail returns td_status; zero is success, so "if (st)" reads "if it
 * failed". The text of the last failure on this thread is td_last_error(). Broken invariants are
 * not errors: they abort through TD_ASSERT, which is compiled into release builds too. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STATUS_H
#define TD_STATUS_H

#include "tandem/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TD_STATUS_MAP(X)                                   \
    X(OK, 0, "success")                                    \
    X(EINVAL, -1, "invalid argument")                      \
    X(ENOMEM, -2, "out of memory")                         \
    X(EIO, -3, "local i/o error")                          \
    X(EPROTO, -4, "malformed or unsupported data")         \
    X(ETIMEDOUT, -5, "deadline passed")                    \
    X(EPEER, -6, "a peer died or reset its connection")    \
    X(EABORTED, -7, "aborted by this process")             \
    X(EMISMATCH, -8, "ranks disagree about the operation") \
    X(ENOTSUP, -9, "not supported here")                   \
    X(EDEADLOCK, -10, "ranks would wait for each other")

typedef enum td_status {
#define X(name, value, text) TD_##name = (value),
    TD_STATUS_MAP(X)
#undef X
} td_status;

TD_API const char *td_status_name(td_status st); /* "EPEER"; never NULL */
TD_API const char *td_status_text(td_status st); /* "a peer died ..."; never NULL */
TD_API const char *td_last_error(void);          /* this thread's last text; "" if none */

#ifdef __cplusplus
}
#endif
#endif
