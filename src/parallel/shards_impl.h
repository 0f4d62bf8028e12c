/* shards_impl.h -- the inside of td__shards, for what sums up over shards (zero.c): the pieces in
 * which a bucket travels, and the buffers for them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SHARDS_IMPL_H
#define TD_PARALLEL_SHARDS_IMPL_H

#include "parallel/shards.h"

struct td__shards {
    td__shards_opts o;
    td__ownership map;
    int rank, size;
    size_t piece;            /* floats */
    float *send, *inbox;     /* (size, piece) registered; (slots, size, piece) */
    uint64_t sent;           /* bytes, so far */
    int mirror, mirrored_by; /* -1: nobody */
    int place;               /* in the ring of mirrors */
    bool *kin;               /* by rank: has the params of this one, too; NULL: none has */
};

/* s->send, registered when it is first needed, so that making a td__shards is local. Collective. */
TD_NODISCARD td_status td__shards_have_send(td__shards *s);
/* Elements of rank r's shard of bucket b in the piece that begins at `at`. */
size_t td__shards_in_piece(const td__shards *s, int b, int r, size_t at);
/* Elements that every rank sends of the piece, and of the last one no more than needed. */
size_t td__shards_piece_count(const td__shards *s, int b, size_t at);
/* This rank has sent `count` floats to each of the others. */
void td__shards_note_sent(td__shards *s, size_t count);

#endif
