/* api_impl.h -- what the handlers of the HTTP API share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_HTTP_API_IMPL_H
#define TD_SERVICE_HTTP_API_IMPL_H

#include "rpc/work.h"
#include "service/http/api.h"

struct td__http_api {
    td__http_api_opts o;
    td__httpd **servers;
    int n_servers;
    char *spool;
    const char **hosts, **origins; /* NULL-terminated */
    td__work_threads *workers;     /* for uploads */
};

/* Every handler of routes.def. */
#define TD_ROUTE(method, path, scope, body, handler, summary, query) \
    void td__http_##handler(void *arg, td__httpd_request *r);
#include "service/http/routes.def"
#undef TD_ROUTE

td__caller td__http_caller(const td__httpd_request *r);
/* The number in the path, "{id}"; 0: it is none, and the request is answered. */
int32_t td__http_job_id(td__httpd_request *r);
/* A whole number of the query within [lo, hi]; false: it is none, and the request is answered. */
bool td__http_number(td__httpd_request *r, const char *name, int64_t lo, int64_t hi,
                     int64_t otherwise, int64_t *out);
bool td__http_flag(td__httpd_request *r, const char *name); /* 1, true, yes */

/* Answers a request that was refused: true if it was. The text is td_last_error(). */
bool td__http_api_refused(td__httpd_request *r, td__answer a);
/* {} or {"id": 7, "job_id": 7} */
void td__http_done(td__httpd_request *r, unsigned status, int32_t job);

/* One job as an object; `whole` adds what was submitted, without secrets. */
void td__job_json(td__service *s, const td__job_record *j, bool whole, td__text *out);
void td__event_json(const td__job_event *e, td__text *out);

#endif
