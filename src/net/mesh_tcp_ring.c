/* mesh_tcp_ring.c -- the messages of a peer that are under way, by number. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "net/mesh_tcp_impl.h"

enum { FIRST_RING = 16 };

static bool grow(td__tcp_ring *r)
{
    uint32_t cap = r->cap ? 2 * r->cap : FIRST_RING;
    td__tcp_msg *msg = td__calloc(cap, sizeof *msg);

    if (!msg)
        return false;
    for (uint32_t n = r->begin; n != r->end; n++)
        msg[n & (cap - 1)] = *td__tcp_ring_at(r, n);
    td__free(r->msg);
    r->msg = msg;
    r->cap = cap;
    return true;
}

bool td__tcp_ring_push(td__tcp_ring *r, td__xfer *x)
{
    if (r->end - r->begin == r->cap && !grow(r))
        return false;
    *td__tcp_ring_at(r, r->end++) = (td__tcp_msg){.x = x,
                                                  .data = x->data,
                                                  .nbytes = x->nbytes,
                                                  .left = x->nbytes ? x->nbytes : 1,
                                                  .tag = x->tag};
    return true;
}

void td__tcp_ring_moved(td__tcp_ring *r, td__tcp_msg *msg, uint64_t nbytes)
{
    msg->left -= msg->nbytes ? nbytes : 1;
    if (msg->left > 0)
        return;
    msg->x->moved = msg->x->nbytes;
    msg->x->done = true; /* from here on it is the owner's */
    msg->x = NULL;
    while (r->begin != r->end && !td__tcp_ring_at(r, r->begin)->x)
        r->begin++;
}
