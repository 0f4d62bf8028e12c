/* permute.h -- a keyed permutation of 0 .. n-1, computed per position, without a table.
 *
 * A Feistel network on the b bits that n-1 needs, with halves of b/2 and b - b/2 bits: each round
 * xors one half with a hash of the other, which can be undone, hence is a permutation of 2^b
 * numbers. Results that are not below n are sent through again until they are (cycle walking);
 * 2^b < 2n, so that two passes suffice on average. The keys of the rounds are Philox words of
 * (seed, stream, step).
 *
 * Each number goes to each place equally often, but not each of the n! orders: eight rounds have
 * too few of them, and for n = 2^b all are even. td__permute_init_uniform takes swap-or-not instead
 * (Hoang, Morris and Rogaway, CRYPTO 2012): round r pairs x with k_r - x modulo n, and a hash bit
 * of the pair decides whether the two change places. After a few multiples of log2 n rounds all
 * orders are equally likely, as far as the keys can tell; it costs some 20 times as much. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_PERMUTE_H
#define TD_DATA_PERMUTE_H

#include <stdint.h>

enum { TD__PERMUTE_ROUNDS = 8, TD__UNIFORM_ROUNDS = 320 };

typedef struct td__permute {
    int64_t n;
    int low_bits;
    uint64_t low_mask, high_mask;
    uint32_t key[TD__PERMUTE_ROUNDS];
    int rounds;                        /* of swap-or-not; 0: the Feistel network */
    uint64_t pair[TD__UNIFORM_ROUNDS]; /* k_r, below n */
    uint64_t hash[TD__UNIFORM_ROUNDS];
} td__permute;

/* stream tells users apart (orders of epochs, splits), step numbers the permutations of one. */
void td__permute_init(td__permute *p, int64_t n, uint64_t seed, uint32_t stream, uint64_t step);
/* The same with all orders equally likely. */
void td__permute_init_uniform(td__permute *p, int64_t n, uint64_t seed, uint32_t stream,
                              uint64_t step);
int64_t td__permute_at(const td__permute *p, int64_t position); /* position in 0 .. n-1 */

/* Streams in use. */
enum { TD__STREAM_ORDER = 0x0da7a001, TD__STREAM_SPLIT, TD__STREAM_REPLACE, TD__STREAM_DRAW };

#endif
