/* answer.h -- how a request ends, with the numbers of gRPC and HTTP for it. The text that goes with
 * anything but OK is td_last_error(), or an argument beside the answer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_ANSWER_H
#define TD_SERVICE_ANSWER_H

#include "tandem/status.h"

/* Identifier, gRPC's name and number, HTTP's number. */
#define TD_ANSWER_MAP(X)                                                \
    X(OK, "OK", 0, 200)                                                 \
    X(INVALID, "INVALID_ARGUMENT", 3, 400) /* the request is wrong */   \
    X(NOT_FOUND, "NOT_FOUND", 5, 404)                                   \
    X(EXISTS, "ALREADY_EXISTS", 6, 409)                                 \
    X(DENIED, "PERMISSION_DENIED", 7, 403)                              \
    X(EXHAUSTED, "RESOURCE_EXHAUSTED", 8, 429) /* a quota or a limit */ \
    X(STATE, "FAILED_PRECONDITION", 9, 409)    /* not in this state */  \
    X(UNIMPLEMENTED, "UNIMPLEMENTED", 12, 501)                          \
    X(INTERNAL, "INTERNAL", 13, 500)                                    \
    X(UNAVAILABLE, "UNAVAILABLE", 14, 503) /* try again */              \
    X(UNAUTHENTICATED, "UNAUTHENTICATED", 16, 401)

typedef enum td__answer {
#define X(id, name, grpc, http) TD_ANSWER_##id,
    TD_ANSWER_MAP(X)
#undef X
        TD_ANSWER_COUNT
} td__answer;

const char *td__answer_name(td__answer a); /* "NOT_FOUND" */
int td__answer_grpc(td__answer a);
int td__answer_http(td__answer a);
/* What a failed call inside is to a client: TD_EINVAL is INVALID, the rest INTERNAL. */
td__answer td__answer_of(td_status st);
/* Sets td_last_error(); evaluates to the answer. */
td__answer td__answer_fail(td__answer a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
