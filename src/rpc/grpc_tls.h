/* grpc_tls.h -- TLS of a server as a filter of bytes: what comes from the socket goes in, what is
 * to go to the socket comes out. It never touches a descriptor. Clients must offer h2 by ALPN. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_GRPC_TLS_H
#define TD_RPC_GRPC_TLS_H

#include "tandem/status.h"

typedef struct td__grpc_tls_context td__grpc_tls_context; /* a certificate and its key */
typedef struct td__grpc_tls td__grpc_tls;                 /* one connection */

TD_NODISCARD td_status td__grpc_tls_context_create(const char *cert_file, const char *key_file,
                                                   td__grpc_tls_context **out);
void td__grpc_tls_context_destroy(td__grpc_tls_context *x); /* NULL is allowed */

TD_NODISCARD td_status td__grpc_tls_create(const td__grpc_tls_context *x, td__grpc_tls **out);
void td__grpc_tls_destroy(td__grpc_tls *t); /* NULL is allowed */

/* Bytes from the socket. */
TD_NODISCARD td_status td__grpc_tls_feed(td__grpc_tls *t, const uint8_t *data, size_t nbytes);
/* Clear bytes of what was fed: call until *got is 0. Advances the handshake. */
TD_NODISCARD td_status td__grpc_tls_read(td__grpc_tls *t, uint8_t *buf, size_t nbytes, size_t *got);
/* Encrypt. Only after td__grpc_tls_ready. */
TD_NODISCARD td_status td__grpc_tls_write(td__grpc_tls *t, const uint8_t *data, size_t nbytes);
bool td__grpc_tls_ready(const td__grpc_tls *t); /* the handshake is over */
/* Bytes for the socket: how many there are, and taking some. */
size_t td__grpc_tls_pending(const td__grpc_tls *t);
size_t td__grpc_tls_take(td__grpc_tls *t, uint8_t *buf, size_t nbytes);

#endif
