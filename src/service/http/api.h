/* api.h -- the training service over HTTP: JSON under /v1, /metrics for Prometheus, /healthz and
 * the dashboard. Handlers translate between HTTP and service.h; routes.def lists them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_HTTP_API_H
#define TD_SERVICE_HTTP_API_H

#include "rpc/httpd.h"
#include "service/config.h"
#include "service/grpc/api.h"
#include "service/service.h"
#include "service/sweep/sweeps.h"

typedef struct td__http_api td__http_api;

/* All borrowed. */
typedef struct td__http_api_opts {
    td__service *service;
    td__sweeps *sweeps;
    const td__tokens *tokens; /* NULL: none */
    const td__grpc_api *grpc; /* for /metrics; NULL: none */
} td__http_api_opts;

/* Listens on every address of http.listen. */
TD_NODISCARD td_status td__http_api_create(const td__http_api_opts *o, td__http_api **out);
void td__http_api_destroy(td__http_api *a); /* NULL is allowed */
/* Where it listens, NULL after the last: "127.0.0.1:6004". */
const char *td__http_api_address(const td__http_api *a, int i);

/* The tokens of the configuration; also for gRPC. */
TD_NODISCARD td_status td__config_tokens(const td__service_config *c, td__tokens **out);

#endif
