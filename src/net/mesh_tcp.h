/* mesh_tcp.h -- ranks joined by TCP: several streams per pair, each authenticated, optionally
 * encrypted and checksummed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_MESH_TCP_H
#define TD_NET_MESH_TCP_H

#include "net/fault.h"
#include "net/mesh.h"
#include "net/store.h"

/* Zero means default. */
typedef struct td__mesh_tcp_opts {
    int streams;                  /* per pair of ranks; 2 */
    bool checksum;                /* crc32c over payloads */
    const char *host;             /* address to listen on; NULL: the one on the way to the store */
    const char *tls_dir;          /* NULL: no TLS */
    const td__fault_plan *faults; /* NULL: none */
    int local_size;               /* ranks of this host that compete for its cores; 0: all ranks */
} td__mesh_tcp_opts;

/* Collective over `size` ranks that give the same prefix, streams and checksum. The store is
 * borrowed for the call only. `o` may be NULL. */
TD_NODISCARD td_status td__mesh_tcp_create(td__store *s, const char *prefix, int rank, int size,
                                           const td__secret *secret, const td__mesh_tcp_opts *o,
                                           td__deadline until, td__mesh **out);

#endif
