/* reshard.h -- from one ownership to another: who sends which elements to whom.
 *
 * Some ranks hold shards (ownership.h), of one map or of several; each is to hold what another map
 * says. A *cell* is the longest range of elements that is in one shard of every map involved. Of a
 * cell each rank that is to hold it, and does not, gets one copy from one holder. All ranks make
 * the same plan, without a word. What every rank holds whole goes to those who hold nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_RESHARD_H
#define TD_PARALLEL_RESHARD_H

#include "parallel/ownership.h"

/* What a rank holds, while it may be in the middle of a change; n 0: nothing. */
enum { TD__MOST_HOLDINGS = 3 };
typedef struct td__holder {
    int n;
    td__holding of[TD__MOST_HOLDINGS];
} td__holder;

/* Rank `to` is to hold params [begin, end), and `from` has them; from == to: it has them itself. */
typedef struct td__transfer {
    size_t begin, end;
    int from, to;
} td__transfer;

typedef struct td__reshard {
    int ranks;
    td__transfer *at; /* (n) in the order in which all ranks carry them out */
    size_t n;
    size_t params;   /* elements of the params that are in shards; what is behind is whole */
    size_t missing;  /* elements that nobody holds; if any are, `at` is incomplete */
    int *whole_from; /* (ranks) who gives what is held whole; itself: it has it, or needs none; -1:
                        nobody has it */
} td__reshard;

/* holders, to: by rank. Local. */
TD_NODISCARD td_status td__reshard_plan(td__reshard *p, td_params *ps, const td__worlds *worlds,
                                        int ranks, const td__holder *holders,
                                        const td__holding *to);
void td__reshard_fini(td__reshard *p);

#endif
