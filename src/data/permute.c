/* permute.c -- a keyed permutation without a table; see permute.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/permute.h"

#include "base/rng.h"

void td__permute_init(td__permute *p, int64_t n, uint64_t seed, uint32_t stream, uint64_t step)
{
    td__rng_key key = {.seed = seed,
                       .stream = stream,
                       .step = (uint32_t)step,
                       .micro_batch = (uint32_t)(step >> 32)};
    int bits = n > 1 ? 64 - __builtin_clzll((uint64_t)n - 1) : 0;

    *p = (td__permute){.n = n, .low_bits = bits - bits / 2};
    p->low_mask = (UINT64_C(1) << p->low_bits) - 1;
    p->high_mask = (UINT64_C(1) << (bits / 2)) - 1;
    for (uint32_t r = 0; r < TD__PERMUTE_ROUNDS; r += 4)
        td__philox4(&key, r / 4, p->key + r);
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
