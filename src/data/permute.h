/* permute.h -- a keyed permutation of 0 .. n-1, computed per position, without a table.
 *
 * A Feistel network on the b bits that n-1 needs, with halves of b/2 and b - b/2 bits: each round
 * xors one half with a hash of the other, which can be undone, hence is a permutation of 2^b
 * numbers. Results that are not below n are sent through again until they are (cycle walking);
 * 2^b < 2n, so that two passes suffice on average. The keys of the rounds are Philox words of
 * (seed, stream, step). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_PERMUTE_H
#define TD_DATA_PERMUTE_H

#include <stdint.h>

enum { TD__PERMUTE_ROUNDS = 8 };

typedef struct td__permute {
    int64_t n;
    int low_bits;
    uint64_t low_mask, high_mask;
    uint32_t key[TD__PERMUTE_ROUNDS];
} td__permute;

/* stream tells users apart (orders of epochs, splits), step numbers the permutations of one. */
void td__permute_init(td__permute *p, int64_t n, uint64_t seed, uint32_t stream, uint64_t step);
int64_t td__permute_at(const td__permute *p, int64_t position); /* position in 0 .. n-1 */

/* Streams in use. */
enum { TD__STREAM_ORDER = 0x0da7a001, TD__STREAM_SPLIT, TD__STREAM_REPLACE, TD__STREAM_DRAW };

#endif
