/* replica.h -- what a process holds of a run: the blocks, the state beside them, the last events.
 * It is all that another process needs to go on from here.
 *
 * Every process holds everything, or, by the sync rule, shards (parallel/shards.h): then
 * `optimizer`, and where params are sharded the params block, have values for `holding` alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_ELASTIC_REPLICA_H
#define TD_ELASTIC_REPLICA_H

#include "checkpoint/checkpoint.h"
#include "graph/cut.h"
#include "parallel/reshard.h"
#include "parallel/shards.h"
#include "run/event_log.h"

typedef enum td__replica_has {
    TD_REPLICA_BEGINNING, /* first values: the run has not begun, as far as this process knows */
    TD_REPLICA_STATE,     /* a moment of the run, whole */
    TD_REPLICA_INVALID    /* nothing whole: to be made or received again */
} td__replica_has;

/* What is of the replica's moment, where that is not everything: of params, their optimizer states,
 * and states. Who has such parts puts them together when the next generation begins
 * (catch_up_parts.c). */
typedef struct td__replica_part {
    td__param_range at[2]; /* (n) rising */
    uint64_t total;        /* elements that all parts have */
    int32_t n, pad;        /* 0: everything */
} td__replica_part;

typedef struct td__replica {
    td_params *params;
    td_optimizer *optimizer;
    td_schedule *schedule;
    td__train_state state; /* everything besides the blocks */
    td__train_state first; /* at the beginning of the run */
    /* What a sync rule keeps (parallel/sync.h), while there is none: between two generations, and
     * where work is dealt out anew. */
    td__block_copies sync_states;
    td__event_log event_log;
    double loss; /* of the last step; NaN: none */
    td__replica_has has;
    td__replica_part part;
    bool received;       /* from another rank, since the last step of its own */
    uint64_t tried;      /* the highest step that any rank has begun */
    td__shards *shards;  /* NULL: every rank holds everything whole */
    td__holding holding; /* that params and optimizer have; ranks 0: none */
    bool whole;          /* the params block has all params, not only those of the holding */
    /* Held too until all ranks have the new ones, oldest first. */
    td__holding old_holding[TD__MOST_HOLDINGS - 1];
    td_optimizer *old_optimizer[TD__MOST_HOLDINGS - 1];
    int n_old;
    /* The last generation in which all came to one state, and this process there. */
    uint64_t last_generation;
    int last_rank, last_size;
} td__replica;

void td__replica_destroy(td__replica *r); /* all that it holds */

/* Shards: o, which has h, is what is held from now on; what was before is kept beside it, */
void td__replica_take(td__replica *r, td_optimizer *o, td__holding h);
/* all that is held, the newest first, (TD__MOST_HOLDINGS): returns how many; */
int td__replica_held(const td__replica *r, td__holding *h, td_optimizer **o);
/* what is held besides the newest is given back; */
void td__replica_drop_old(td__replica *r);
/* and all that is held. The optimizer has no elements then, but says what kind it is. */
TD_NODISCARD td_status td__replica_release(td__replica *r, const td_optim_opts *optim);

#endif
