/* grpc_wire.h -- the parts of gRPC over HTTP/2 that are texts and bytes: time-outs, error texts,
 * frames of messages. Nothing here knows connections. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_GRPC_WIRE_H
#define TD_RPC_GRPC_WIRE_H

#include "base/text.h"
#include "tandem/status.h"

/* A message on the wire: one byte (1 = compressed), its size as 4 bytes big-endian, its bytes. */
enum { TD_GRPC_FRAME_BYTES = 5 };

static inline uint32_t td__grpc_frame_size(const uint8_t head[TD_GRPC_FRAME_BYTES])
{
    return (uint32_t)head[1] << 24 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 8 | head[4];
}

static inline void td__grpc_frame_head(uint8_t head[TD_GRPC_FRAME_BYTES], uint32_t nbytes)
{
    head[0] = 0;
    head[1] = (uint8_t)(nbytes >> 24);
    head[2] = (uint8_t)(nbytes >> 16);
    head[3] = (uint8_t)(nbytes >> 8);
    head[4] = (uint8_t)nbytes;
}

/* grpc-timeout: 1 to 8 digits and a unit of H, M, S, m, u, n. false: malformed. */
bool td__grpc_timeout(const char *text, size_t nbytes, uint64_t *ns);

/* grpc-message: bytes outside of ' ' to '~', and '%', become %XX. */
void td__grpc_percent(td__text *out, const char *text);

#endif
