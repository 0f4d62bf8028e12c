/* rng.c -- Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011).
 *
 * Ten rounds of two 32x32 -> 64 bit products; the high halves are mixed with the key and the other
 * words, the low halves pass through, and the key walks by two Weyl constants. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <math.h>

#define M0 UINT32_C(0xD2511F53)
#define M1 UINT32_C(0xCD9E8D57)
#define W0 UINT32_C(0x9E3779B9) /* golden ratio */
#define W1 UINT32_C(0xBB67AE85) /* sqrt(3) - 1 */

enum { ROUNDS = 10 };

void td__philox4(const td__rng_key *key, uint32_t block, uint32_t out[4])
{
    uint32_t c0 = block, c1 = key->stream, c2 = key->step, c3 = key->micro_batch;
    uint32_t k0 = (uint32_t)key->seed, k1 = (uint32_t)(key->seed >> 32);

    for (int r = 0; r < ROUNDS; r++) {
        uint64_t p0 = (uint64_t)M0 * c0, p1 = (uint64_t)M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += W0;
        k1 += W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t td__rng_u32(const td__rng_key *key, uint64_t i)
{
    uint32_t w[4];
    td__philox4(key, (uint32_t)(i / 4), w);
    return w[i % 4];
}

float td__rng_uniform(const td__rng_key *key, uint64_t i)
{
    return (float)(td__rng_u32(key, i) >> 8) * 0x1p-24f;
}

/* Box-Muller: words 2j and 2j+1 make the normals 2j (cosine) and 2j+1 (sine). In double, so that
 * differences between mathematics libraries vanish in the rounding to float. */
float td__rng_normal(const td__rng_key *key, uint64_t i)
{
    uint32_t w[4];
    td__philox4(key, (uint32_t)(i / 4), w);

    const uint32_t *pair = w + (i % 4 & 2);
    double u = ((double)pair[0] + 1.0) * 0x1p-32; /* (0, 1] */
    double angle = 6.283185307179586 * ((double)pair[1] * 0x1p-32);
    double radius = sqrt(-2.0 * log(u));
    return (float)(radius * (i & 1 ? sin(angle) : cos(angle)));
}
