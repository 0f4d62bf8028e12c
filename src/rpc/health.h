/* health.h -- grpc.health.v1.Health: Check and Watch of the whole server ("") and of each service
 * by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_HEALTH_H
#define TD_RPC_HEALTH_H

#include "rpc/grpc.h"

typedef struct td__health td__health;

/* Adds the service to the server. Serving at first. */
TD_NODISCARD td_status td__health_create(td__grpc *g, td__health **out);
/* After the server was destroyed. NULL is allowed. */
void td__health_destroy(td__health *h);
/* From now on SERVING or NOT_SERVING; watchers are told. */
void td__health_set(td__health *h, bool serving);

#endif
