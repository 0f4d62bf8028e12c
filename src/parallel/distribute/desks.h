/* desks.h -- rank 0 answers questions of the other ranks while they train: a link and a thread for
 * each of them (its desk). What is asked and answered is a method's affair (distribute.h):
 *
 *     question  {part, n, draw}, then n numbers                   a rank -> rank 0
 *     answer    pieces, each {status, text} and its bytes         rank 0 -> that rank
 *
 * How many bytes a piece has, both sides know from the question. A piece with a status is the last.
 * A question of -1 numbers ends the link.
 *
 * Threads   Rank 0 answers on its own threads. Elsewhere any thread may ask: it holds the desk from
 *           the question to the last piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_DESKS_H
#define TD_PARALLEL_DESKS_H

#include "data/dataset.h"
#include "tandem/coll.h"

typedef struct td__question {
    int32_t part, draws;
    int64_t n;
    td__draw draw;
} td__question;

typedef struct td__desk td__desk;
typedef struct td__desks td__desks;
/* Rank 0: send all pieces of an answer. A failure closes the desk; what the other side should know
 * goes to it by td__desk_give. */
typedef td_status (*td__desk_fn)(void *user, td__desk *k, const td__question *q,
                                 const int64_t *numbers);

/* Collective. answer is rank 0's; user is borrowed. */
TD_NODISCARD td_status td__desks_open(td_comm *comm, td__desk_fn answer, void *user,
                                      td__desks **out);
/* Rank 0 waits, not for long, until the others have closed theirs. NULL is allowed. */
void td__desks_close(td__desks *v);

/* Rank 0: memory for the bytes of a piece; NULL: there is none. */
void *td__desk_room(td__desk *k, size_t nbytes);
/* Send a piece: what is in the room, or why not (the text is td_last_error). */
TD_NODISCARD td_status td__desk_give(td__desk *k, td_status status, size_t nbytes);

/* The others: hold the desk, ask, take the pieces, and let go, also after a failure. */
void td__desk_hold(td__desks *v);
TD_NODISCARD td_status td__desk_ask(td__desks *v, const td__question *q, const int64_t *numbers);
TD_NODISCARD td_status td__desk_take(td__desks *v, size_t nbytes, void **piece);
void td__desk_let_go(td__desks *v);

#endif
