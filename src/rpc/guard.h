/* guard.h -- who may talk to an HTTP server at all: names, pages, rates. Pure, so that it can be
 * tested and fuzzed alone.
 *
 * Host    A page of a foreign site whose name was made to point here (DNS rebinding) sends its own
 *         name. So a name must be one that the server was told; addresses and localhost cannot be
 *         made to point elsewhere and are always accepted.
 * Origin  Browsers say which page sends a request. It must be one of this server's, or one that the
 *         server was told.
 * Rate    A bucket of tokens per client address; an IPv6 client is its /64 network.
 * Number  Connections of one client address at a time, so that one client cannot have them all. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_GUARD_H
#define TD_RPC_GUARD_H

#include <sys/socket.h>

#include "tandem/status.h"

/* "host", "host:port", "[::1]:port"; `names` ends with NULL, "*" accepts all, NULL has none. */
bool td__guard_host(const char *host, const char *const *names);
/* `origin` is "http://host:port"; `host` is what the same request says in Host. */
bool td__guard_origin(const char *origin, const char *host, const char *const *origins);

typedef struct td__rates td__rates;
TD_NODISCARD td_status td__rates_create(unsigned per_s, unsigned burst, td__rates **out);
void td__rates_destroy(td__rates *r); /* NULL is allowed */
/* Take one token of this client's bucket: false when it is empty. */
bool td__rates_take(td__rates *r, const struct sockaddr *client, uint64_t now_ns);

/* Connections of each client. Clients without an address (unix sockets) are not counted. */
typedef struct td__clients td__clients;
TD_NODISCARD td_status td__clients_create(unsigned most, td__clients **out);
void td__clients_destroy(td__clients *c); /* NULL is allowed */
/* May it have another one? */
bool td__clients_room(const td__clients *c, const struct sockaddr *from);
/* One comes; goes. What came goes with the same address, once. */
void td__clients_enter(td__clients *c, const struct sockaddr *from);
void td__clients_leave(td__clients *c, const struct sockaddr *from);

#endif
