/* http_impl.h -- the inside of an HTTP client. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_HTTP_IMPL_H
#define TD_REMOTE_HTTP_IMPL_H

#include <curl/curl.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "remote/http.h"

struct td__http {
    td__http_opts opts;
    td__arena *texts; /* of opts */
    CURLM *multi;
    CURL *easy;
    atomic_bool stopped;
    char error[CURL_ERROR_SIZE];
};

#endif
