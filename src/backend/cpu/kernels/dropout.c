/* dropout.c -- see dropout.h. Philox4x32-10 exactly as in base/rng.c, for many counters at once:
 * the loop over blocks is the vector loop, and the rounds are inside it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/dropout.h"

#include "backend/cpu/kernels/widen.h"

enum { BLOCKS = 128, BLOCK = 4 * BLOCKS, ROUNDS = 10 };

#define M0 UINT32_C(0xD2511F53)
#define M1 UINT32_C(0xCD9E8D57)
#define W0 UINT32_C(0x9E3779B9)
#define W1 UINT32_C(0xBB67AE85)

/* bits[4 b + j]: word j of counter block first + b. */
static void random_bits(uint32_t bits[BLOCK], const td__rng_key *key, uint32_t first)
{
    const uint32_t stream = key->stream, step = key->step, shard = key->shard;
    const uint32_t key0 = (uint32_t)key->seed, key1 = (uint32_t)(key->seed >> 32);

    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t c0 = first + b, c1 = stream, c2 = step, c3 = shard, k0 = key0, k1 = key1;

#pragma GCC unroll 10
        for (int r = 0; r < ROUNDS; r++) {
            uint64_t p0 = (uint64_t)M0 * c0, p1 = (uint64_t)M1 * c2;

            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
            c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c3 = (uint32_t)p0;
            k0 += W0;
            k1 += W1;
        }
        bits[4 * b] = c0;
        bits[4 * b + 1] = c1;
        bits[4 * b + 2] = c2;
        bits[4 * b + 3] = c3;
    }
}

void TD_ISA_SYM(td__dropout)(void *y, const void *x, td_dtype t, int64_t n, const td__rng_key *key,
                             uint32_t threshold, float scale)
{
    _Alignas(64) uint32_t bits[BLOCK];
    _Alignas(64) float buf[BLOCK];

    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        const float *in = widen_at(buf, t, x, at, count);
        float *out = narrow_begin(buf, t, y, at);

        random_bits(bits, key, (uint32_t)(at / 4));
#pragma GCC ivdep
        for (int64_t i = 0; i < count; i++) {
            float v = in[i] * scale;

            out[i] = bits[i] >= threshold ? v : 0.0f;
        }
        narrow_end(out, t, y, at, count);
    }
}
