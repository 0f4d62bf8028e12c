/* partition.h -- which samples a worker sees: the arithmetic behind td__partition (loader.h).
 *
 *     mode          positions in an epoch     sample at position p
 *     (none)        n                         order(p)
 *     even          n*(w+1)/W - n*w/W         first + order of the range(p)
 *     weighted      the same by weights       first + order of the range(p)
 *     replacement   n*(w+1)/W - n*w/W         uniform, keyed by (seed, epoch, worker, p)
 *     shuffled      every Wth, from w         order(p*W + w)
 *     features      n                         order(p)
 *
 * order is the epoch's permutation, or nothing without shuffle. Ranges are "equal" to within one
 * sample, and together they are all samples. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_PARTITION_H
#define TD_DATA_PARTITION_H

#include "data/loader.h"
#include "data/permute.h"

/* What one worker sees of n samples. */
typedef struct td__share {
    td__partition_mode mode;
    bool whole; /* no partition */
    int worker, workers;
    int64_t n;             /* samples of the dataset */
    int64_t first, count;  /* range of samples, or only the count of positions */
    bool shuffle, uniform; /* uniform: all orders are equally likely */
    uint64_t seed;
} td__share;

/* The order of one epoch of a share. */
typedef struct td__order {
    td__permute permute;
    uint64_t epoch;
} td__order;

TD_NODISCARD td_status td__share_init(td__share *s, const td__partition *p, int64_t n, bool shuffle,
                                      uint64_t seed);
void td__order_init(td__order *o, const td__share *s, uint64_t epoch);
int64_t td__order_at(const td__order *o, const td__share *s, int64_t position);

/* Range w of `total` things cut in W: [*begin, *end). */
void td__even_range(int64_t total, int worker, int workers, int64_t *begin, int64_t *end);

const char *td__partition_name(td__partition_mode mode); /* "even" */

#endif
