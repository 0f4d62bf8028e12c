/* permute.c -- a keyed permutation without a table; see permute.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/permute.h"

#include <stdbool.h>

#include "base/rng.h"

__extension__ typedef unsigned __int128 u128;

enum { LEAST_ROUNDS = 64, ROUNDS_PER_BIT = 4, UNIFORM = 0x00010000 };
_Static_assert(LEAST_ROUNDS + 63 * ROUNDS_PER_BIT <= TD__UNIFORM_ROUNDS, "room for all rounds");

void td__permute_init(td__permute *p, int64_t n, uint64_t seed, uint32_t stream, uint64_t step)
{
    td__rng_key key = {.seed = seed,
                       .stream = stream,
                       .step = (uint32_t)step,
                       .micro_batch = (uint32_t)(step >> 32)};
    int bits = n > 1 ? 64 - __builtin_clzll((uint64_t)n - 1) : 0;

    p->n = n; /* pair and hash are large, and not used */
    p->rounds = 0;
    p->low_bits = bits - bits / 2;
    p->low_mask = (UINT64_C(1) << p->low_bits) - 1;
    p->high_mask = (UINT64_C(1) << (bits / 2)) - 1;
    for (uint32_t r = 0; r < TD__PERMUTE_ROUNDS; r += 4)
        td__philox4(&key, r / 4, p->key + r);
}

void td__permute_init_uniform(td__permute *p, int64_t n, uint64_t seed, uint32_t stream,
                              uint64_t step)
{
    td__rng_key key = {.seed = seed,
                       .stream = stream ^ UNIFORM,
                       .step = (uint32_t)step,
                       .micro_batch = (uint32_t)(step >> 32)};
    int bits = n > 1 ? 64 - __builtin_clzll((uint64_t)n - 1) : 0;

    p->n = n;
    p->rounds = LEAST_ROUNDS + ROUNDS_PER_BIT * bits;
    for (int r = 0; r < p->rounds; r++) {
        uint32_t word[4];
        td__philox4(&key, (uint32_t)r, word);
        uint64_t wide = (uint64_t)word[0] << 32 | word[1];
        p->pair[r] = (uint64_t)(((u128)wide * (uint64_t)n) >> 64);
        p->hash[r] = (uint64_t)word[2] << 32 | word[3];
    }
}

/* A bit of x under a key: the finaliser of SplitMix64. */
static inline bool bit_of(uint64_t x, uint64_t key)
{
    uint64_t h = (x + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ key;

    h = (h ^ h >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ h >> 27) * UINT64_C(0x94D049BB133111EB);
    return (h ^ h >> 31) >> 63;
}

static int64_t uniform_at(const td__permute *p, uint64_t x)
{
    uint64_t n = (uint64_t)p->n;

    for (int r = 0; r < p->rounds; r++) {
        uint64_t other = p->pair[r] >= x ? p->pair[r] - x : p->pair[r] + n - x;
        if (bit_of(x > other ? x : other, p->hash[r]))
            x = other;
    }
    return (int64_t)x;
}

/* 32 well mixed bits of a half: the finaliser of MurmurHash3 around one key. */
static inline uint64_t mix(uint64_t half, uint32_t key)
{
    uint32_t h = (uint32_t)half ^ key;

    h = (h ^ h >> 16) * UINT32_C(0x85EBCA6B);
    h = (h ^ h >> 13) * UINT32_C(0xC2B2AE35);
    return h ^ h >> 16;
}

int64_t td__permute_at(const td__permute *p, int64_t position)
{
    uint64_t x = (uint64_t)position;

    if (p->rounds)
        return uniform_at(p, x);
    do {
        uint64_t low = x & p->low_mask, high = x >> p->low_bits;
        for (int r = 0; r < TD__PERMUTE_ROUNDS; r += 2) {
            high ^= mix(low, p->key[r]) & p->high_mask;
            low ^= mix(high, p->key[r + 1]) & p->low_mask;
        }
        x = high << p->low_bits | low;
    } while (x >= (uint64_t)p->n);
    return (int64_t)x;
}
