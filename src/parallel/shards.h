/* shards.h -- what ranks that train together hold in shards instead of whole (ownership.h): the
 * optimizer's state, and params too or not; and how shards come to all ranks, or to one.
 *
 *   gather    every rank gets the shards of all others of a bucket of the params
 *   drop      their memory is given back
 *   collect   one rank gets the shards of any block that is laid out like the params
 *
 * Row-sparse params and states stay whole on every rank.
 *
 * Threads   One at a time. Calls marked "collective" are made by all ranks in the same order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SHARDS_H
#define TD_PARALLEL_SHARDS_H

#include "parallel/ownership.h"
#include "tandem/coll.h"

typedef struct td__shards td__shards;
struct td__planner;

typedef struct td__shards_opts {
    td_comm *comm; /* borrowed; of at least 2 ranks */
    td_params *params;
    bool of_params;           /* params are sharded too, not the optimizer's state alone */
    bool mirrors;             /* every rank holds the shards of another too (ownership.h) */
    const td__owners *owners; /* who has what; NULL: all are cut evenly */
    int twin;                 /* with owners: whose shards this rank has too; itself: nobody's */
    const int *kin; /* with owners, by rank: those with this rank's number have its params, too, of
                       params in pieces those in its place along the lanes; NULL: none */
    size_t bucket_nbytes; /* 0: the default */
    int slots;            /* pieces of all ranks that the inbox has room for; 0: one */
} td__shards_opts;

TD_NODISCARD td_status td__shards_create(const td__shards_opts *opts, td__shards **out); /* local */
void td__shards_destroy(td__shards *s); /* NULL is allowed; local */
int td__shards_rank(const td__shards *s);
bool td__shards_of_params(const td__shards *s);
const td__ownership *td__shards_ownership(const td__shards *s);
/* What this rank holds; its mirror is the rank whose shards it holds too. */
td__holding td__shards_holding(const td__shards *s);
int td__shards_mirror(const td__shards *s); /* -1: none */

/* With mirrors, ranks stand in a ring: whom a rank mirrors, who mirrors it, and which one it is,
 * from rank 0 on. host_of as in td__holdings_of. */
typedef struct td__mirror_place {
    int mirror, mirrored_by, place;
} td__mirror_place;
TD_NODISCARD td_status td__mirror_place_of(const int *host_of, int rank, int ranks,
                                           td__mirror_place *out);
/* The comm is about to be destroyed, what is local stays. */
void td__shards_leave(td__shards *s);

/* All shards of bucket b of the params into the block. Collective. */
TD_NODISCARD td_status td__shards_gather(td__shards *s, int b);
/* Give back the memory of others' shards, mirrored ones aside; they are no longer known. */
void td__shards_drop(td__shards *s, int b);
/* gather and drop of all buckets. */
TD_NODISCARD td_status td__shards_gather_all(td__shards *s);
void td__shards_drop_all(td__shards *s);
/* Shards of a block that is laid out like the params: that of this rank is at `own`. The whole
 * bucket goes to rank `root`'s `out` (elsewhere NULL), or to that of all (-1). Collective. */
TD_NODISCARD td_status td__shards_collect(td__shards *s, int b, const float *own, int root,
                                          float *out);

/* Bytes that this rank has sent so far to all, as messages. */
uint64_t td__shards_sent(const td__shards *s);

/* The calls that bring bucket b of a map to all ranks, or that many slots of it to their owners. */
void td__shards_plan_gather(struct td__planner *w, const td__ownership *m, int b);
void td__shards_plan_reduce(struct td__planner *w, const td__ownership *m, int b, int slots);

/* Bytes that one of these numbers holds on a rank, as the operating system counts them: pages
 * shared with others count for each. */
size_t td__shards_nbytes(const td__ownership *m, int slots, bool shared);

#endif
