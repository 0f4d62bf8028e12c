/* socket.h -- sockets by text address: "host:port", "[::1]:port", "unix:@name" (abstract).
 *
 * All sockets made here are non-blocking, closed on exec, and without Nagle's delay. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_SOCKET_H
#define TD_NET_SOCKET_H

#include "base/deadline.h"
#include "tandem/status.h"

enum { TD_ADDRESS_BYTES = 256 }; /* a text address with its final 0 */

/* "127.0.0.1:0" picks a port. `actual` is the address that others use. */
TD_NODISCARD td_status td__socket_listen(const char *address, int *fd,
                                         char actual[TD_ADDRESS_BYTES]);
/* Tries all addresses that the name stands for, one after the other. While nobody listens, or the
 * name stands for none, it tries again: the listener's process or container may be starting. */
TD_NODISCARD td_status td__socket_connect(const char *address, td__deadline until, int *fd);
/* Only begins; the socket becomes writable when it is connected or has failed (socket_connected
 * says which). For numeric addresses. */
TD_NODISCARD td_status td__socket_connect_start(const char *address, int *fd);
TD_NODISCARD td_status td__socket_connected(int fd, const char *address);
/* Accept one; -1 when there is none (or none can be had now). */
int td__socket_accept(int listener);

/* Have the kernel ask an idle peer for signs of life: a host that vanished without a word ends the
 * connection after some TD_SOCKET_SILENCE_MS. No effect on unix sockets. */
enum { TD_SOCKET_SILENCE_MS = 5000, TD_SOCKET_LOOK_MS = 1000 };
void td__socket_keep(int fd);
/* The kernel does not ask while data waits to be acknowledged, but sends it again for a quarter of
 * an hour. (TCP_USER_TIMEOUT would end that sooner, but also take a peer that is late to read for a
 * dead one.) Milliseconds for which sent data has met nothing but silence; 0 where all is well. For
 * who waits, to look at every TD_SOCKET_LOOK_MS. */
unsigned td__socket_silence_ms(int fd);

/* The numeric address that this host has on the way to `address`; "127.0.0.1" for unix sockets. */
TD_NODISCARD td_status td__socket_route(const char *address, char host[TD_ADDRESS_BYTES]);
/* The numeric address by which other hosts are likely to know this one: that of the default route,
 * else of the first interface that is up; "127.0.0.1" if there is none. */
void td__socket_own_host(char host[TD_ADDRESS_BYTES]);
/* "host:port" from its parts; brackets around IPv6. */
TD_NODISCARD td_status td__socket_join(const char *host, const char *port,
                                       char address[TD_ADDRESS_BYTES]);
/* Who is at the other end, without the port: "10.0.0.7", "local"; for the log. */
void td__socket_source(int fd, char host[TD_ADDRESS_BYTES]);

/* Sleep until the socket is readable (or writable), or the deadline. */
void td__socket_poll(int fd, bool write, td__deadline until);

#endif
