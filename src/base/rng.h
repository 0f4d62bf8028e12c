/* rng.h -- Philox4x32-10: random numbers as a pure function of a key and a counter.
 *
 * Nothing is stored and nothing is advanced: who asks for element i of stream s at step t gets the
 * same number on every worker. The counter is (block, stream, step, micro-batch), where block = i /
 * 4 and the word taken is i % 4; so a stream has 2^34 elements before it repeats. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_RNG_H
#define TD_BASE_RNG_H

#include <stdint.h>

/* What a random stream is keyed by. */
typedef struct td__rng_key {
    uint64_t seed;
    uint32_t stream; /* which consumer: a node of the graph, a parameter, an epoch's shuffle */
    uint32_t step;
    uint32_t micro_batch;
} td__rng_key;

/* The four 32-bit words of block `block`. */
void td__philox4(const td__rng_key *key, uint32_t block, uint32_t out[4]);

/* Element i of the stream: 32 random bits; uniform in [0, 1) with 24 bits; standard normal. */
uint32_t td__rng_u32(const td__rng_key *key, uint64_t i);
float td__rng_uniform(const td__rng_key *key, uint64_t i);
float td__rng_normal(const td__rng_key *key, uint64_t i);

#endif
