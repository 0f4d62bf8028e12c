/* post.h -- messages between any two ranks at any time, beside the calls of a comm: for sync rules
 * whose ranks are not in step.
 *
 * A post has a comm of its own and a thread that drives it. td__post_send puts a message in a queue
 * and returns; where it arrives, that rank's thread calls the owner's function with it. Messages
 * from one rank to another arrive in the order they were sent.
 *
 * Threads   td__post_send: any. The function is called with the post's lock, which also protects
 *           what the owner shares with it (td__post_lock); it may send, not wait.
 * Waiting   td__post_wait has the comm's deadline for a call. That nothing arrives is no failure of
 *           its own: a rank may compute for long.
 * Failure   Of any rank ends the post: td__post_wait returns it from then on. td__post_send only
 *           queues: what it is given then goes nowhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_POST_H
#define TD_COLL_POST_H

#include "tandem/coll.h"

typedef struct td__post td__post;

/* What goes before the bytes of a message; fields are the owner's but for nbytes. */
typedef struct td__post_head {
    uint32_t kind; /* below TD__POST_KINDS */
    int32_t flag;
    uint64_t step, number;
    uint64_t nbytes; /* that follow; filled in */
} td__post_head;
enum { TD__POST_KINDS = 1 << 16 };

/* Bytes of a message, which several may share. */
typedef struct td__post_bytes td__post_bytes;
td__post_bytes *td__post_bytes_create(size_t nbytes); /* one reference; NULL: no memory */
void td__post_bytes_retain(td__post_bytes *b);
void td__post_bytes_release(td__post_bytes *b); /* NULL is allowed */
void *td__post_bytes_data(td__post_bytes *b);   /* 64-byte aligned */
size_t td__post_bytes_size(const td__post_bytes *b);

/* b is NULL if there are none; retained by who keeps it. A failure ends the post. */
typedef td_status td__post_fn(void *user, int from, const td__post_head *h, td__post_bytes *b);

/* Collective over the comm, which is borrowed, and whose ranks all have fn called from now on. */
TD_NODISCARD td_status td__post_open(td_comm *comm, td__post_fn *fn, void *user, td__post **out);
/* Collective: when all have called it, everything that was sent has arrived; the post is gone. */
TD_NODISCARD td_status td__post_close(td__post *p);
/* This rank has failed, or others have: let nobody wait. NULL is allowed. */
void td__post_abort(td__post *p, const char *why);

/* b is retained; NULL: none. */
TD_NODISCARD td_status td__post_send(td__post *p, int to, const td__post_head *h,
                                     td__post_bytes *b);
void td__post_lock(td__post *p);
void td__post_unlock(td__post *p);
/* Wait, with the lock held by the caller, until ready(user) is true. what: for texts, "the centre
 * of rank 2". */
TD_NODISCARD td_status td__post_wait(td__post *p, bool (*ready)(void *user), void *user,
                                     const char *what);

#endif
