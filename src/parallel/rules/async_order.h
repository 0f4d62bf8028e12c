/* async_order.h -- the order in which a rank that is not in step applies messages, on which the
 * result of an asynchronous rule depends: recorded for metrics.jsonl, and imposed by a replay.
 *
 * Both are words (td__order_event): ranks in groups, whose meaning is the rule's, and meetings.
 * What a rank has recorded goes to rank 0 at meetings, and where there is much of it; rank 0 tells
 * the trainer. Of a replay rank 0 reads the file and gives each rank its words when the run begins.
 *
 * A replay has the meetings of the run as well: a rank that comes to another one fails. Where ranks
 * halt for a request, the replay is left: messages are then applied as they come.
 *
 * Threads   With the post's lock, but for td__async_order_told, which is for the rank's own thread
 *           where no post is open, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_ASYNC_ORDER_H
#define TD_PARALLEL_ASYNC_ORDER_H

#include "coll/post.h"
#include "parallel/sync.h"
#include "run/backup_sets.h"

typedef struct td__async_words {
    int32_t *at; /* (n) */
    size_t n, room;
} td__async_words;

typedef struct td__async_order {
    td__async_words made; /* recorded, and not sent yet */
    bool open;            /* its last group has no end */
    /* Rank 0: what is to be told; what was told last. */
    struct td__async_words_of *first, *last, *told;
    /* The replay. */
    const char *path;      /* of this rank's config, for texts; NULL: none */
    td__backup_sets *sets; /* rank 0, until the run begins */
    td__async_words given; /* this rank's */
    size_t at;             /* the next one */
    bool follows;
    uint64_t met;   /* step of the last meeting that was passed */
    uint64_t until; /* of the next; 0: there is none */
} td__async_order;

void td__async_order_fini(td__async_order *o);

/* ---- The record ------------------------------------------------------------------------------ */

TD_NODISCARD td_status td__async_order_add(td__async_order *o, int from);
TD_NODISCARD td_status td__async_order_end(td__async_order *o); /* of a group */
TD_NODISCARD td_status td__async_order_met(td__async_order *o, uint64_t step);
/* What was recorded, for rank 0; NULL: no memory. It is then no longer here. */
td__post_bytes *td__async_order_take(td__async_order *o);
bool td__async_order_full(const td__async_order *o); /* time to take it */
/* Rank 0: what a rank has recorded. */
TD_NODISCARD td_status td__async_order_came(td__async_order *o, int from, td__post_bytes *b);
/* Rank 0: the next to be told, which is borrowed until the next call; false: nothing is left. */
bool td__async_order_told(td__async_order *o, td__order_event *out);

/* ---- The replay ------------------------------------------------------------------------------ */

/* A part of an order, between two meetings or the beginning and one. */
typedef struct td__async_part {
    int rank, ranks;
    uint64_t from, to;      /* steps: after one, to another */
    size_t groups;          /* before the meeting */
    const uint64_t *counts; /* (ranks) messages of each */
    const int32_t *words;   /* (n) */
    size_t n;
} td__async_part;

/* Before ranks are started: is config->replay a record of a run on so many ranks, and each part of
 * it one that this rule can have? */
TD_NODISCARD td_status td__async_order_check(const td__sync_config *c, int ranks,
                                             bool (*fits)(const td__sync_config *c,
                                                          const td__async_part *p));
/* Rank 0 of several: reads it. */
TD_NODISCARD td_status td__async_order_read(td__async_order *o, const td__sync_ctx *x,
                                            const char *rule, int ranks);
/* Rank 0: the words of a rank; NULL: no memory. */
td__post_bytes *td__async_order_of(const td__async_order *o, int rank);
/* This rank follows these words from now on. */
TD_NODISCARD td_status td__async_order_give(td__async_order *o, td__post_bytes *b);
void td__async_order_leave(td__async_order *o);

/* A step begins, or ranks are about to meet after one: does the replay do so as well? resumed: it
 * may begin after any meeting. */
TD_NODISCARD td_status td__async_order_begins(td__async_order *o, uint64_t step, bool resumed);
TD_NODISCARD td_status td__async_order_meets(const td__async_order *o, uint64_t step);
/* The meeting is over; TD_EINVAL: messages of before it are left. */
TD_NODISCARD td_status td__async_order_pass(td__async_order *o, uint64_t step);

/* The rank whose message is next; TD__ORDER_END; TD__ORDER_MET also where nothing is left. */
int td__async_order_next(const td__async_order *o);
static inline void td__async_order_took(td__async_order *o)
{
    o->at++;
}

#endif
