/* shard_move.h -- shards of optimizer state and params from the ranks that hold them to those that
 * are to hold them, memory to memory: at the start of a generation, whose ownership map is another
 * one, and before ranks go.
 *
 * A cell goes straight from the memory of its holder to where it is to be (of a device whose memory
 * the host does not read, through a copy of that cell), so that nobody needs room for anything that
 * it does not keep. Params move within their block. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_ELASTIC_SHARD_MOVE_H
#define TD_ELASTIC_SHARD_MOVE_H

#include "parallel/reshard.h"
#include "tandem/coll.h"

/* All borrowed. */
typedef struct td__shard_move {
    td_comm *comm;
    td_params *params;
    const td__reshard *plan;   /* without missing elements */
    const td__holding *holds;  /* by rank: what it is to hold */
    const bool *has_params;    /* by rank: it has all params, and needs their states alone */
    td_optimizer *const *from; /* (n_from) the states that this rank holds */
    int n_from;
    td_optimizer *to; /* of holds[rank]; may be one of `from`; NULL: nothing is to be held */
} td__shard_move;

/* Collective. After a failure the rank still has what it held. */
TD_NODISCARD td_status td__shards_move(const td__shard_move *m);

#endif
