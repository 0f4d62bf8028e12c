/* answer.c -- names and numbers of answers; see answer.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/answer.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/fail.h"

static const struct {
    const char *name;
    int grpc, http;
} ANSWERS[] = {
#define X(id, name, grpc, http) [TD_ANSWER_##id] = {name, grpc, http},
    TD_ANSWER_MAP(X)
#undef X
};

const char *td__answer_name(td__answer a)
{
    return ANSWERS[a].name;
}

int td__answer_grpc(td__answer a)
{
    return ANSWERS[a].grpc;
}

int td__answer_http(td__answer a)
{
    return ANSWERS[a].http;
}

td__answer td__answer_of(td_status st)
{
    return st == TD_OK         ? TD_ANSWER_OK
           : st == TD_EINVAL   ? TD_ANSWER_INVALID
           : st == TD_ENOTSUP  ? TD_ANSWER_UNIMPLEMENTED
           : st == TD_EABORTED ? TD_ANSWER_UNAVAILABLE
                               : TD_ANSWER_INTERNAL;
}

td__answer td__answer_fail(td__answer a, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)TD_FAIL(TD_EINVAL, "%s", text);
    return a;
}
