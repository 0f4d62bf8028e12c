/* gate.h -- the entrance of a listening socket: only peers that prove the secret are let in.
 *
 * A half-open connection costs a fixed amount of memory, has 5 seconds for the handshake, and there
 * are at most 1024 of them: when one more knocks, the oldest is thrown out (after 500 ms at least).
 * A member of the job needs a millisecond, so it is not the oldest for long, however many
 * strangers hold on. Refusals are logged as refusals.h says.
 *
 * A gate has an epoll set of its own, whose descriptor is readable when there is something to do,
 * so that it fits in any event loop. One thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_GATE_H
#define TD_NET_GATE_H

#include "net/conn.h"
#include "net/handshake.h"
#include "net/tls.h"

typedef struct td__gate td__gate;

/* listener is taken; secret and tls (may be NULL) are borrowed. */
TD_NODISCARD td_status td__gate_create_take(int listener, td__hs_service service,
                                            const td__secret *secret, const td__tls *tls,
                                            td__gate **out);
void td__gate_destroy(
    td__gate *g); /* NULL is allowed; closes the listener and all half-open ones */
int td__gate_fd(const td__gate *g);
/* Handle what there is, without blocking; for each authenticated connection, call `enter`, which
 * takes it. Call it at least every 5 seconds while half-open connections exist. */
void td__gate_serve(td__gate *g, void (*enter)(void *user, td__conn conn), void *user);
/* When half-open connections have to be looked at again; TD_DEADLINE_NEVER if there are none. */
td__deadline td__gate_deadline(const td__gate *g);

#endif
