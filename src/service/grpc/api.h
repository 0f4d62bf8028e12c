/* api.h -- the service's gRPC side: the book's services, tandem.v1, health and reflection, at all
 * addresses of grpc.listen. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_GRPC_API_H
#define TD_SERVICE_GRPC_API_H

#include "rpc/grpc.h"
#include "rpc/tokens.h"
#include "service/data/data.h"
#include "service/service.h"
#include "service/sweep/sweeps.h"

typedef struct td__grpc_api td__grpc_api;

/* Everything is borrowed for the life of the API. */
typedef struct td__grpc_api_opts {
    td__service *service;
    td__sweeps *sweeps;
    td__data *data;
    const td__tokens *tokens; /* NULL: no tokens */
} td__grpc_api_opts;

/* Listens. */
TD_NODISCARD td_status td__grpc_api_create(const td__grpc_api_opts *o, td__grpc_api **out);
void td__grpc_api_destroy(td__grpc_api *a); /* NULL is allowed */

/* Counters since the start, for metrics. */
enum { TD__GRPC_CODES = TD_GRPC_UNAUTHENTICATED + 1 };
typedef struct td__grpc_counters {
    td__grpc_stats now;
    uint64_t ended[TD__GRPC_CODES]; /* calls, by how they ended */
    double seconds;                 /* that they took, streams apart */
} td__grpc_counters;
void td__grpc_api_counters(const td__grpc_api *a, td__grpc_counters *out);

/* The addresses with the ports that were picked; NULL after the last. */
const char *td__grpc_api_address(const td__grpc_api *a, int i);
/* Health says NOT_SERVING, clients are told to go; done is called when all are gone or the time is
 * over (td__grpc_shutdown). */
void td__grpc_api_shutdown(td__grpc_api *a, td__deadline until, void (*done)(void *arg), void *arg);

#endif
