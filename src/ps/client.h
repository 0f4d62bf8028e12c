/* client.h -- push and pull of ranges of a block of floats that lies on servers, with handles: a
 * call starts, a ticket is waited for.
 *
 *     td__ps_push(c, ranges, n, values, &pushed);      the servers add them to their block
 *     td__ps_pull(c, ranges, n, values, &pulled);      the block after that push
 *     td__ps_wait(c, pulled);
 *
 * Shards   The block is cut in equal ranges, one a server. A call names ranges of the block (keys
 *          of any sizes); those that follow one another travel as one piece of up to 1 MB, so that
 *          a server adds a piece while the next one is written.
 * Order    A client's requests to a server are carried out in the order of the calls; a ticket is
 *          done when all requests up to it are answered. Between clients there is no order: each
 *          piece is added, and read, as a whole.
 * Memory   Values of a push are read until its ticket is done. In shared memory a push whose values
 *          lie in the areas already (td__ps_client_area; values NULL) is added by the server from
 *          there; else they are copied there once. A pull with values NULL leaves them where
 *          td__ps_client_view reads them. Over TCP pieces are sent from, and received in, the
 *          caller's memory.
 * Threads  One at a time uses a client. A server has a thread for each client.
 * Failure  Of a server fails all calls of the client; a client that dies is forgotten. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_CLIENT_H
#define TD_PS_CLIENT_H

#include "ps/lane.h"

typedef struct td__ps_client td__ps_client;
typedef struct td__ps_host td__ps_host;
typedef uint64_t td__ps_ticket;

typedef struct td__ps_range {
    size_t begin, count; /* floats of the block */
} td__ps_range;

/* A piece of the block, and what was pushed for it. With the host's lock. */
typedef void td__ps_apply_fn(void *user, float *block, const float *pushed, size_t begin,
                             size_t count);

typedef struct td__ps_host_opts {
    td__ps_apply_fn *apply; /* NULL: what is pushed is added */
    void *user;
    const float *values; /* (floats) of the block at the beginning; NULL: zeros */
    td__ps_wait_mode waits;
} td__ps_host_opts;

/* Collective over the comm: its first `servers` ranks call host_open, the others client_open, with
 * the same sizes. */
TD_NODISCARD td_status td__ps_host_open(td_comm *comm, int servers, size_t floats,
                                        const td__ps_host_opts *opts, td__ps_host **out);
TD_NODISCARD td_status td__ps_client_open(td_comm *comm, int servers, size_t floats,
                                          td__ps_client **out);
/* When all clients have closed, or died; NULL is allowed. The first failure of a client that did
 * neither. */
TD_NODISCARD td_status td__ps_host_close(td__ps_host *h);
TD_NODISCARD td_status td__ps_client_close(td__ps_client *c); /* waits for what is under way */

TD_NODISCARD td_status td__ps_push(td__ps_client *c, const td__ps_range *ranges, size_t n,
                                   const float *values, td__ps_ticket *out);
TD_NODISCARD td_status td__ps_pull(td__ps_client *c, const td__ps_range *ranges, size_t n,
                                   float *values, td__ps_ticket *out);
/* Both, piece by piece: in shared memory what a server has added is read while it adds the next. */
TD_NODISCARD td_status td__ps_push_pull(td__ps_client *c, const td__ps_range *ranges, size_t n,
                                        const float *from, float *into, td__ps_ticket *out);
TD_NODISCARD td_status td__ps_wait(td__ps_client *c, td__ps_ticket ticket);

/* Where a push finds, and a pull leaves, the floats from `begin` on; *count: so many of them follow
 * one another. A view holds until the next push. */
float *td__ps_client_area(td__ps_client *c, size_t begin, size_t *count);
const float *td__ps_client_view(td__ps_client *c, size_t begin, size_t *count);
void td__ps_client_waits(td__ps_client *c, td__ps_wait_mode mode);

/* ---- Between client.c and host.c ------------------------------------------------------------- */

typedef enum td__ps_ask_verb { TD__PS_ASK_PUSH, TD__PS_ASK_PULL, TD__PS_ASK_END } td__ps_ask_verb;
typedef struct td__ps_ask {
    uint64_t verb, number, begin, count;
} td__ps_ask;
enum { TD__PS_PIECE = 1 << 18 }; /* floats of a request at most */

/* What server s of n has of the block. */
td__ps_range td__ps_even_shard(size_t floats, int n, int s);

#endif
