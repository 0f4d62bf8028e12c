/* buckets.h -- cutting the gradient block in buckets.
 *
 * A bucket is what is reduced at once: large enough that a message's fixed cost does not matter,
 * small enough that the first one leaves while backward still has much to do. Buckets lie one
 * behind the other, front to back as backward makes gradients final, and together cover the block.
 * A bucket ends where a param ends, unless a param alone is larger: that one is cut in equal
 * pieces. The last few are smaller, each half of what is left: what is final when backward ends has
 * nothing to hide behind. Statistics of states, which are final last, have buckets of their own
 * (`exact`). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_BUCKETS_H
#define TD_PARALLEL_BUCKETS_H

#include "graph/cut.h"
#include "parallel/compress/compressor.h"

/* Of how many bytes, by default. Over 1 Gbit/s a bucket then takes some 35 ms, a small part of a
 * backward that is worth overlapping with; tried: a quarter to 16 MiB. */
enum { TD__BUCKET_NBYTES = 4 << 20, TD__BUCKET_HALVINGS = 4 };

typedef struct td__buckets {
    td__bucket *at;
    int n;
} td__buckets;

/* Of the gradient block of ps; nbytes 0: the default. own (n_own): ranges of params and states
 * that they are to cover, where a rank has part of the model; NULL: all. */
TD_NODISCARD td_status td__buckets_init(td__buckets *b, const td_params *ps,
                                        const td__param_range *own, int n_own, size_t nbytes);
void td__buckets_fini(td__buckets *b);

#endif
