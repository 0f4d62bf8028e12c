/* shards_impl.h -- the inside of td__shards, for what sums up over shards (zero.c): the pieces in
 * which a bucket travels, and the buffers for them.
 *
 * Ranks that compute on one GPU have a window there (peers.h) instead of buffers of the host. It
 * has two sets, used in turn. In a turn a rank writes what it has to its own window, all meet, and
 * each reads what it wants of the others' windows; nobody writes to a set again before all have
 * come to the turn after it, and so have read it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SHARDS_IMPL_H
#define TD_PARALLEL_SHARDS_IMPL_H

#include "device/device.h"
#include "parallel/peers.h"
#include "parallel/shards.h"

struct td__shards {
    td__shards_opts o;
    td__ownership map;
    int rank, size;
    size_t piece;            /* floats that travel at once, of a rank */
    size_t staged;           /* the same, through memory of the host */
    float *send, *inbox;     /* (size, staged) registered; (slots, size, staged) */
    td__peers *window;       /* (sets, slots, size, piece) of every rank; NULL: there is none */
    int set;                 /* of the turn */
    bool ready;              /* `send` or `window` is there */
    uint64_t sent;           /* bytes, so far */
    int mirror, mirrored_by; /* -1: nobody */
    int place;               /* in the ring of mirrors */
    int *kin;                /* by rank: those with one number have the same params; NULL */
    int lanes;               /* neighbours that have pieces of params; 1: none is cut */
};

/* s->window or s->send, made when it is first needed, so that making a td__shards is local. What
 * has to know s->piece calls it first. Collective. */
TD_NODISCARD td_status td__shards_ready(td__shards *s);
/* The next turn begins. Then: a slot of a rank's window, (size, piece). At last: what this rank has
 * put there is there, and so is what the others have. Collective. */
void td__shards_turn(td__shards *s);
float *td__shards_slot(const td__shards *s, int rank, int slot);
TD_NODISCARD td_status td__shards_meet(td__shards *s);
/* The stream of the device that has the params. */
td_stream *td__shards_stream(const td__shards *s);
/* Elements of rank r's shard of bucket b in the piece that begins at `at`. */
size_t td__shards_in_piece(const td__shards *s, int b, int r, size_t at);
/* Elements that every rank sends of the piece, and of the last one no more than needed. */
size_t td__shards_piece_count(const td__shards *s, int b, size_t at);
/* This rank has sent `count` floats to each of the others. */
void td__shards_note_sent(td__shards *s, size_t count);

#endif
