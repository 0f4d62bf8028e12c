/* catch_up.h -- at the start of a generation all ranks get the same state of the run; see
 * catch_up.c, and catch_up_shards.c for ranks that hold shards. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_ELASTIC_CATCH_UP_H
#define TD_ELASTIC_CATCH_UP_H

#include "elastic/elastic.h"

/* What a rank tells all others. */
typedef struct td__hello {
    td__train_state state;
    uint64_t optimizer_steps, tried;
    td__faults_known faults;
    uint32_t crc;         /* of the params block; 0 where it is in shards */
    uint32_t agreement;   /* crc32c of what all ranks must have in common */
    uint32_t has;         /* 0: only the beginning */
    uint64_t sync_nbytes; /* of the sync rule's states */
    uint32_t stopping;    /* it knows that the run is to stop here */
    uint64_t last;        /* generation that this process was in; 0: none */
    int32_t rank, size;   /* there */
    /* Shards. */
    int32_t n_holdings;
    td__holding holding[TD__MOST_HOLDINGS]; /* the newest first */
    uint32_t prepared; /* it can make the step after its state's, without help */
    uint32_t whole;    /* it has all params */
    td__replica_part part;
} td__hello;

/* Brings all ranks of the generation to the newest state that any of them holds. Collective. */
TD_NODISCARD td_status td__catch_up(td__elastic *e);
/* Fixed ranks: brings all to what rank 0 has, whatever the others hold. Collective. */
TD_NODISCARD td_status td__catch_up_first(td__elastic *e);
/* At a step border: ranks that leave hand their shards to those that stay. Collective. */
TD_NODISCARD td_status td__hand_over_shards(td__elastic *e);

/* catch_up_parts.c: the update that a rank is prepared for is made, if others have made it, and is
 * dropped else; *changed: there was such a rank. Then, if rank best has parts of its moment alone:
 * it gets the others, or, if nobody has them, whoever has parts of it has nothing. Collective. */
TD_NODISCARD td_status td__parts_settle(td__elastic *e, const td__hello *all, int best,
                                        bool *changed);
TD_NODISCARD td_status td__parts_bring(td__elastic *e, const td__hello *all, int best);

/* Between catch_up.c and catch_up_shards.c: what this rank holds in shards, besides what any rank
 * says. */
void td__shards_say(const td__elastic *e, td__hello *h);
/* Take over everything but the blocks from what `from` said. */
void td__catch_up_commit(td__elastic *e, const td__hello *from);
/* Above 0: a is further. */
int td__hello_compare(const td__hello *a, const td__hello *b);
/* All ranks come to the moment of rank `best`, which is the furthest, or, if it cannot be put
 * together, to what is on disk. Collective. */
TD_NODISCARD td_status td__catch_up_shards(td__elastic *e, const td__hello *all, int best);

#endif
