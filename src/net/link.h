/* link.h -- an authenticated connection that carries frames both ways and never waits: what cannot
 * be sent now is kept, what has not come whole is kept too. Fits in any poll loop. One thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_LINK_H
#define TD_NET_LINK_H

#include "net/conn.h"

enum { TD_LINK_MOST = 1 << 20 }; /* bytes of one message */

typedef struct td__link {
    td__conn conn; /* fd -1: none */
    uint8_t *in, *out;
    size_t in_start, in_used, in_cap, out_sent, out_used, out_cap;
    bool ended;  /* the other end's kernel closed it: its process is gone, or let go */
    bool reset;  /* and not by a clean end of the stream */
    bool broken; /* nothing more will come: an error, or a malformed frame */
} td__link;

typedef struct td__link_msg {
    uint8_t kind;
    const void *data; /* borrowed until the next call on the link */
    size_t nbytes;
} td__link_msg;

void td__link_init_take(td__link *l, td__conn conn);
void td__link_fini(td__link *l);
static inline bool td__link_up(const td__link *l)
{
    return l->conn.fd >= 0 && !l->ended && !l->broken;
}
/* POLLIN, and POLLOUT while something waits to be sent. */
short td__link_events(const td__link *l);
/* Queue a message and send what can be sent. */
void td__link_send(td__link *l, uint8_t kind, const void *data, size_t nbytes);
void td__link_flush(td__link *l);
/* Read what is there; then take the messages one by one. */
void td__link_fill(td__link *l);
bool td__link_next(td__link *l, td__link_msg *m);

#endif
