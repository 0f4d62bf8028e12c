/* http_pool.h -- HTTP clients for several threads: each takes one, uses it and gives it back, so
 * that connections are kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_HTTP_POOL_H
#define TD_REMOTE_HTTP_POOL_H

#include "remote/http.h"

typedef struct td__http_pool td__http_pool;

TD_NODISCARD td_status td__http_pool_create(const td__http_opts *o, td__http_pool **out);
void td__http_pool_destroy(td__http_pool *p); /* when all are back; NULL is allowed */
TD_NODISCARD td_status td__http_pool_take(td__http_pool *p, td__http **out);
void td__http_pool_give(td__http_pool *p, td__http *h);
/* From any thread: all requests under way, and all later ones, end with TD_EABORTED. */
void td__http_pool_stop(td__http_pool *p);
/* td__http_call with one of them. */
TD_NODISCARD td_status td__http_pool_call(td__http_pool *p, const td__http_request *q,
                                          td__http_response *r);

#endif
