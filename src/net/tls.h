/* tls.h -- optional encryption: TLS 1.3 with one self-signed certificate per job.
 *
 * The launcher makes the certificate and its key; all ranks have both and accept exactly that
 * certificate from the other end, client or server: there is no authority and no name to check. The
 * handshake of handshake.h then runs inside, bound to the channel by the exporter value. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_TLS_H
#define TD_NET_TLS_H

#include "net/conn.h"
#include "net/handshake.h"

typedef struct td__tls td__tls; /* certificate and settings, for any number of connections */

/* Makes dir/cert.pem and dir/key.pem (mode 0600), good for a year. */
TD_NODISCARD td_status td__tls_make(const char *dir);
/* from: such a folder, or one file that has both. */
TD_NODISCARD td_status td__tls_create(const char *from, td__tls **out);
void td__tls_destroy(td__tls *t); /* NULL is allowed */

/* Put TLS on a connection. Then step until *done; *write says what the socket must become first. */
TD_NODISCARD td_status td__tls_push(const td__tls *t, td__conn *c, td__hs_role role);
TD_NODISCARD td_status td__tls_step(td__conn *c, bool *done, bool *write);
/* The exporter value, after that. */
TD_NODISCARD td_status td__tls_binding(td__conn *c, uint8_t binding[TD_BINDING_BYTES]);

#endif
