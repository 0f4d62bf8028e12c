/* ownership.h -- the ownership map: which rank holds which elements of a block.
 *
 * Params, gradients and each optimizer state are blocks with the same offsets, so one map serves
 * all of them. It speaks of the gradient block: params with dense gradients, then the statistics of
 * states.
 *
 *   bucket   what is reduced or gathered at once. Buckets end where a tensor ends.
 *   shard    the part of a bucket that belongs to one rank. A bucket has one per rank, in the order
 *            of ranks; shards may be empty.
 *   owner    the rank of a shard: it adds up the gradients, holds the optimizer state, updates.
 *   mirror   where ranks may be lost, every rank holds the shards of a second one too.
 *   whole    ranges that every rank holds: row-sparse params, and states, which lie behind.
 *   holding  all that a rank holds, as numbers that travel: the shards of `rank` and of `mirror` in
 *            the map of so many ranks.
 *
 * Who cuts the block evenly (ZeRO) gets shards that begin where a chunk of a tensor does
 * (optim/optimizer.h), so that what depends on whole tensors can be put together from sums over
 * chunks. Parameter servers cut where params begin, by a map of their own (ps/shard_map.h): what
 * depends on a whole param (the norms of LAMB, its squares for clipping) is computed by one server,
 * in the order of one rank, and no push needs calls between servers to put it together.
 *
 * The map is a function of the params and the number of ranks: nothing of it is sent.
 * reshard.h says who sends what to whom when one map follows another. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_OWNERSHIP_H
#define TD_PARALLEL_OWNERSHIP_H

#include "optim/optimizer.h"

/* Tensors smaller than this are gathered together. */
enum { TD__SHARD_BUCKET_NBYTES = 4 << 20 };

typedef struct td__ownership {
    int ranks;
    bool one_owner;         /* of td__ownership_init_whole */
    int *group;             /* by rank; NULL: each is one of its own (td__owners) */
    int n, params;          /* buckets; of them, the first, those of params */
    size_t *begin;          /* (n + 1) elements: where buckets begin */
    size_t *cut;            /* (n, ranks + 1): where shards begin */
    size_t total;           /* elements of the gradient block */
    td__optim_range *whole; /* (n_whole) of row-sparse params */
    int n_whole;
} td__ownership;

/* An even map of the params. nbytes: of a bucket; 0: the default. */
TD_NODISCARD td_status td__ownership_init(td__ownership *m, td_params *ps, int ranks,
                                          size_t nbytes);
/* A map of params that are held whole, each by a rank, or by the piece (graph/params.h), each piece
 * by one of so many neighbours. */
typedef struct td__owners {
    const int *owner; /* by param: who has it, or the first of those that have pieces of it */
    int lanes;        /* that have pieces of a param; 0 or 1: none is cut */
    const int *group; /* by rank: those with one number hold what one of them has whole; NULL */
} td__owners;
/* A bucket has one owner, or is one param in pieces. */
TD_NODISCARD td_status td__ownership_init_whole(td__ownership *m, td_params *ps, int ranks,
                                                const td__owners *owners, size_t nbytes);
void td__ownership_fini(td__ownership *m);
/* The rank that has all of a bucket of such a map; -1: there is none. */
int td__ownership_sole(const td__ownership *m, int bucket);

/* Where the shards of a bucket begin, (ranks + 1). */
static inline const size_t *td__shards_of(const td__ownership *m, int bucket)
{
    return m->cut + (size_t)bucket * ((size_t)m->ranks + 1);
}

/* Elements of a shard; of the longest shard of a bucket; of all shards of a rank, statistics
 * included; of the params that are in shards at all. */
static inline size_t td__shard_count(const td__ownership *m, int bucket, int rank)
{
    const size_t *cut = td__shards_of(m, bucket);
    return cut[rank + 1] - cut[rank];
}
size_t td__shard_widest(const td__ownership *m, int bucket);
size_t td__ownership_owned(const td__ownership *m, int rank);
static inline size_t td__ownership_params(const td__ownership *m)
{
    return m->begin[m->params];
}

/* The bucket, and the rank, of an element of the params. */
int td__ownership_bucket(const td__ownership *m, size_t element);
int td__ownership_owner(const td__ownership *m, size_t element);

typedef struct td__holding {
    int32_t ranks, rank, mirror; /* ranks 0: nothing, 1: everything; mirror -1: nobody's */
} td__holding;

static inline bool td__holding_same(td__holding a, td__holding b)
{
    return a.ranks == b.ranks && a.rank == b.rank && a.mirror == b.mirror;
}
/* Does it contain the shards of `owner`? Of a map of h.ranks. */
static inline bool td__holding_has(td__holding h, int owner)
{
    return h.ranks && (h.rank == owner || h.mirror == owner);
}

/* The same of the shard that `owner` has of a bucket of the map m of h.ranks, which others of its
 * group, or of the mirrored rank's, may have too. */
bool td__ownership_holds(const td__ownership *m, td__holding h, int bucket, int owner);

/* The params of a holding in the map of h.ranks, in rising order, and what is whole. The caller
 * frees *out. */
TD_NODISCARD td_status td__ownership_ranges(const td__ownership *m, td__holding h,
                                            td__optim_range **out, int *n);

/* What the ranks of a world of n hold, with mirrors: ranks stand in a ring in which neighbours are
 * on different hosts as far as possible, and each mirrors the one before it. host_of[ranks[i]] is
 * the host of rank i; ranks NULL: host_of[i]; host_of NULL: one host. */
TD_NODISCARD td_status td__holdings_of(const int *host_of, const int *ranks, int n,
                                       td__holding *out);
/* What the ranks of worlds of any number hold: as td__ownership_init and td__holdings_of say, or as
 * a sync rule does. */
typedef struct td__worlds {
    size_t nbytes; /* of a bucket of an even map; 0: the default */
    /* (optional) The map of `ranks` ranks, at least 2, and (ranks) what each of them holds, where
     * td__holdings_of has written what it says; either may be NULL. Local. */
    td_status (*map)(void *user, int ranks, td__ownership *out, td__holding *holdings);
    void *user;
} td__worlds;
TD_NODISCARD td_status td__worlds_map(const td__worlds *w, td_params *ps, int ranks,
                                      td__ownership *out);
/* As td__holdings_of. */
TD_NODISCARD td_status td__worlds_holdings(const td__worlds *w, const int *host_of,
                                           const int *ranks, int n, td__holding *out);
/* An optimizer that holds what h says, as at the beginning of a run. */
TD_NODISCARD td_status td__ownership_optimizer(const td_optim_opts *opts, td_params *ps,
                                               const td__ownership *m, td__holding h,
                                               td_optimizer **out);
TD_NODISCARD td_status td__holding_optimizer(const td_optim_opts *opts, td_params *ps,
                                             td__holding h, const td__worlds *w,
                                             td_optimizer **out);

#endif
