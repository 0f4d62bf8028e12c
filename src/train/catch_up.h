/* catch_up.h -- what ranks tell each other at the start of a generation; see catch_up.c, and
 * catch_up_slices.c for ranks that hold slices. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_CATCH_UP_H
#define TD_TRAIN_CATCH_UP_H

#include "fault/faults.h"
#include "train/trainer_impl.h"

typedef struct td__hello {
    td__train_state state;
    uint64_t optimizer_steps, tried;
    td__faults_known faults;
    uint32_t crc;       /* of the params block; 0 where it is in slices */
    uint32_t agreement; /* crc32c of what all ranks must have in common (agree.c) */
    uint32_t has;       /* 0: only the beginning */
    uint32_t stopping;  /* it knows that the run is to stop here */
    uint64_t last;      /* generation that this process was in; 0: none */
    int32_t rank, size; /* there */
    /* Slices. */
    int32_t n_holdings;
    td__holding holding[TD__MOST_HOLDINGS];
    uint32_t prepared; /* it can make the step after its state's, without help */
    uint32_t whole;    /* it has all params */
} td__hello;

/* What this rank holds in slices, besides what any rank says. */
void td__slices_say(const td__trainer *t, td__hello *h);
/* Take over everything but the blocks from what `from` said. */
void td__catch_up_commit(td__trainer *t, const td__hello *from);
/* Above 0: a is further. */
int td__hello_compare(const td__hello *a, const td__hello *b);
/* With parallel.zero: all ranks come to the moment of rank `best`, which is the furthest, or, if it
 * cannot be put together, to what is on disk. Collective. */
TD_NODISCARD td_status td__slices_catch_up(td__trainer *t, const td__hello *all, int best);

#endif
