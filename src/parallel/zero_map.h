/* zero_map.h -- who owns which elements, when ranks share the work of the optimizer.
 *
 * The gradient block (params with dense gradients, then the statistics of states) is cut in
 * buckets; every bucket is cut in one slice per rank, and the rank is the owner of its slices: it
 * adds up their gradients, holds their optimizer state and updates them. Buckets end where a tensor
 * ends, and one tensor is never in two: a bucket of params is what is gathered at once. Slices are
 * about equal; they begin where a chunk of a tensor does (optim/optimizer.h), so that what depends
 * on whole tensors can be put together from sums over chunks.
 *
 * All of this is a function of the params and the number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_ZERO_MAP_H
#define TD_PARALLEL_ZERO_MAP_H

#include "optim/optimizer.h"

/* Tensors smaller than this are gathered together. */
enum { TD__ZERO_BUCKET_NBYTES = 4 << 20 };

typedef struct td__zero_map {
    int size;      /* ranks */
    int n, params; /* buckets; of them, the first, those of params */
    size_t *begin; /* (n + 1) elements of the gradient block */
    size_t *cut;   /* (n, size + 1): where the ranks' slices begin */
    size_t total;  /* elements of the gradient block */
} td__zero_map;

TD_NODISCARD td_status td__zero_map_init(td__zero_map *m, td_params *ps, int size, size_t nbytes);
void td__zero_map_fini(td__zero_map *m);

static inline const size_t *td__zero_cut(const td__zero_map *m, int bucket)
{
    return m->cut + (size_t)bucket * ((size_t)m->size + 1);
}

static inline size_t td__zero_slice(const td__zero_map *m, int bucket, int rank)
{
    const size_t *cut = td__zero_cut(m, bucket);
    return cut[rank + 1] - cut[rank];
}

/* The longest slice of a bucket. */
size_t td__zero_widest(const td__zero_map *m, int bucket);
/* Elements of all slices of a rank, statistics included. */
size_t td__zero_owned(const td__zero_map *m, int rank);
/* What an optimizer on `rank` is to hold: its slices of params, those of `mirror` too (-1: nobody),
 * and row-sparse params, which every rank holds and updates whole. The caller frees *out. */
TD_NODISCARD td_status td__zero_ranges(const td__zero_map *m, td_params *ps, int rank, int mirror,
                                       td__optim_range **out, int *n);

/* Mirrors: in a world whose ranks may be lost every slice is held by a second rank. Ranks stand in
 * a ring in which neighbours are on different hosts as far as possible, and each mirrors the one
 * before it. order: (size) the ring; host_of: by rank, NULL: one host. */
void td__zero_ring(const int *host_of, int size, int *order);
/* Whose slices does `rank` mirror? -1: it is alone. */
int td__zero_before(const int *order, int size, int rank);

#endif
