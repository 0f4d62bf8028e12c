/* mailbox.h -- short messages between two ranks that share memory: a ring of bytes in each
 * direction, with one writer and one reader.
 *
 * A message is written whole and becomes visible with one store, so that a reader that spins sees
 * it after the time of a cache line's way from core to core. A side that has looked in vain for a
 * while says that it sleeps and waits on the link (parallel/links.h) for one byte, the bell, which
 * the other side sends when it sees that word. So a wait has the link's deadline, is told to the
 * watchdog, and ends when the other side dies, leaves or is aborted, as every wait for a message.
 *
 *     reader                                  writer
 *     sleeps = 1; fence                       written += n; fence
 *     looks again: something is there?        sleeps == 1? taken back to 0 by one of the two:
 *       takes sleeps back to 0: no bell         the writer: sends the bell
 *       it was the writer: receives the bell
 *
 * Memory that is all zeros is an empty mailbox. Messages that do not fit go over the link: both
 * sides know the size. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_MAILBOX_H
#define TD_PS_MAILBOX_H

#include <stdatomic.h>

#include "tandem/coll.h"

enum { TD__MAILBOX_BYTES = 1 << 15, TD__MAILBOX_MOST = 1 << 13 }; /* of a message */

typedef struct td__mailbox {
    _Alignas(64) _Atomic uint64_t written;       /* bytes ever, by the writer */
    _Alignas(64) _Atomic uint64_t taken;         /* by the reader */
    _Alignas(64) _Atomic uint32_t reader_sleeps; /* until there is a message */
    _Alignas(64) _Atomic uint32_t writer_sleeps; /* until there is room */
    _Alignas(64) unsigned char data[TD__MAILBOX_BYTES];
} td__mailbox;

/* How a side waits. */
typedef struct td__mailbox_side {
    td_comm *link;
    int peer;                 /* in the link */
    const td_coll_opts *opts; /* of the bell: how long the other side may be silent */
    uint32_t spins;           /* looks before it sleeps */
} td__mailbox_side;

bool td__mailbox_fits(size_t nbytes);
/* TD_EMISMATCH: the message that is there has another size; the link has failed then. */
TD_NODISCARD td_status td__mailbox_put(td__mailbox *m, const td__mailbox_side *s,
                                       const void *message, size_t nbytes);
TD_NODISCARD td_status td__mailbox_get(td__mailbox *m, const td__mailbox_side *s, void *message,
                                       size_t nbytes);

#endif
