/* random.c -- Philox4x32-10 (see base/rng.c) on many counters side by side, and Box and Muller's
 * method with polynomials of our own, so that no mathematics library has a say in the bits.
 *
 *     ln u, u = m 2^e, m in [sqrt 1/2, sqrt 2)   polynomial in m - 1, plus e ln 2 in two pieces
 *     cos, sin of 2 pi b / 2^32                  b = quadrant 2^30 + f, |f| <= 2^29; polynomials on
 *                                                [-pi/4, pi/4], then turned by the quadrant
 * The polynomials are Moshier's single-precision ones (Cephes). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kernels/random.h"

#include <math.h>
#include <string.h>

#define M0 UINT32_C(0xD2511F53)
#define M1 UINT32_C(0xCD9E8D57)

enum { ROUNDS = 10 };

/* The loop over blocks is the one that becomes vectors; the rounds within are unrolled, and low and
 * high halves of the products are written apart, so that all of it is arithmetic of 32 bits. */
void TD_ISA_SYM(td__random_words)(uint32_t *out, const td__rng_key *key, uint32_t first,
                                  size_t blocks)
{
    const uint32_t stream = key->stream, step = key->step, micro_batch = key->micro_batch;
    uint32_t k0[ROUNDS], k1[ROUNDS];

    for (uint32_t r = 0; r < ROUNDS; r++) {
        k0[r] = (uint32_t)key->seed + r * UINT32_C(0x9E3779B9);
        k1[r] = (uint32_t)(key->seed >> 32) + r * UINT32_C(0xBB67AE85);
    }
    for (size_t b = 0; b < blocks; b++) {
        uint32_t c0 = first + (uint32_t)b, c1 = stream, c2 = step, c3 = micro_batch;
#pragma GCC unroll 10
        for (int r = 0; r < ROUNDS; r++) {
            uint32_t high0 = (uint32_t)(((uint64_t)M0 * c0) >> 32), low0 = M0 * c0;
            uint32_t high1 = (uint32_t)(((uint64_t)M1 * c2) >> 32), low1 = M1 * c2;
            c0 = high1 ^ c1 ^ k0[r];
            c1 = low1;
            c2 = high0 ^ c3 ^ k1[r];
            c3 = low0;
        }
        out[4 * b] = c0;
        out[4 * b + 1] = c1;
        out[4 * b + 2] = c2;
        out[4 * b + 3] = c3;
    }
}

/* sqrt(-2 ln u) for a word: u = (a + 1) / 2^32 in (0, 1]. */
static inline float radius(uint32_t a)
{
    float u = ((float)a + 1.0f) * 0x1p-32f;
    int32_t bits;
    memcpy(&bits, &u, sizeof bits);
    /* Shift the exponent by the bits of sqrt(1/2), so that what is left lies around 1. */
    int32_t e = (bits - 0x3f3504f3) >> 23;
    int32_t mbits = bits - e * (1 << 23);
    float m;
    memcpy(&m, &mbits, sizeof m);
    float x = m - 1.0f, z = x * x, n = (float)e;
    float y = 7.0376836292e-2f;
    y = y * x - 1.1514610310e-1f;
    y = y * x + 1.1676998740e-1f;
    y = y * x - 1.2420140846e-1f;
    y = y * x + 1.4249322787e-1f;
    y = y * x - 1.6668057665e-1f;
    y = y * x + 2.0000714765e-1f;
    y = y * x - 2.4999993993e-1f;
    y = y * x + 3.3333331174e-1f;
    y = y * x * z - 2.12194440e-4f * n - 0.5f * z;
    float ln = x + y + 0.693359375f * n;
    return sqrtf(ln < 0.0f ? -2.0f * ln : 0.0f);
}

/* Cosine and sine of 2 pi b / 2^32. */
static inline void turn(uint32_t b, float *cosine, float *sine)
{
    uint32_t q = (b + 0x20000000u) >> 30;
    float a = (float)(int32_t)(b - (q << 30)) * 1.46291807927e-9f, z = a * a;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
    float c =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
        0.5f * z + 1.0f;
    float cq = q & 1 ? s : c, sq = q & 1 ? c : s;
    *cosine = ((q + 1) & 2) ? -cq : cq;
    *sine = (q & 2) ? -sq : sq;
}

void TD_ISA_SYM(td__random_normals)(float *out, const uint32_t *words, size_t n, float mean,
                                    float std)
{
    for (size_t i = 0; i < n / 2; i++) {
        float r = radius(words[2 * i]) * std, c, s;
        turn(words[2 * i + 1], &c, &s);
        out[2 * i] = r * c + mean;
        out[2 * i + 1] = r * s + mean;
    }
}
