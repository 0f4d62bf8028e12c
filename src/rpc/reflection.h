/* reflection.h -- server reflection, v1 and v1alpha: clients without .proto files ask for them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_REFLECTION_H
#define TD_RPC_REFLECTION_H

#include "rpc/grpc.h"

typedef struct td__reflection td__reflection;

/* Adds both versions to the server; they know themselves and health. */
TD_NODISCARD td_status td__reflection_create(td__grpc *g, td__reflection **out);
/* After the server was destroyed. NULL is allowed. */
void td__reflection_destroy(td__reflection *r);
/* Descriptors of further services, as the protobuf compiler writes them (descriptors.h). */
TD_NODISCARD td_status td__reflection_add(td__reflection *r, const uint8_t *set, size_t nbytes);

#endif
